// Enrollment: numbers to read aloud, the amount of speech, the training.

import { openStream } from "./api.js";
import { byId, seconds } from "./charts/dom.js";
import { PROBLEMS, explain, openMicrophone, showLevel } from "./microphone.js";

const PHRASE_SECONDS = 2.0; // of speech, then the next numbers are shown

function phrase() {
  const drawn = new Uint32Array(3);
  crypto.getRandomValues(drawn);
  return Array.from(drawn, (number) => 20 + (number % 80)).join(" – ");
}

export function enrollView() {
  const form = byId("enroll-form");
  const status = byId("enroll-status");
  const finish = byId("enroll-finish");
  let tell = () => {};
  let session = null;
  let warned = false;

  function say(text, good = false) {
    status.textContent = text;
    status.classList.toggle("good", good);
    byId("enroll-done").hidden = !good;
  }

  function busy(on) {
    byId("name").disabled = on;
    byId("enroll-start").disabled = on;
    byId("enroll-live").hidden = !on;
    finish.disabled = true;
  }

  function nextPhrase() {
    byId("phrase").textContent = phrase();
  }

  function progress({ speech_seconds: speech, aim_seconds: aim }) {
    byId("enroll-progress").value = Math.min(1, speech / aim);
    byId("enroll-left").textContent = speech < aim
      ? `${seconds(aim - speech)} of speech still needed`
      : `${seconds(speech)} of speech: enough, more improves the result`;
    if (speech >= aim && finish.disabled && session && !session.ended) {
      finish.disabled = false;
      say("Enough speech. Finish, or continue for a better result.");
    }
  }

  function hear(message, mine) {
    if (message.type === "progress") {
      progress(message);
      const spoken = message.utterance_speech_seconds >= PHRASE_SECONDS;
      if (spoken && message.utterances > mine.phrases && !mine.ended) advance(mine);
    } else if (message.type === "training") {
      say(`Training … ${message.seconds.toFixed(0)} s`);
    } else if (message.type === "enrolled") {
      sessionStorage.setItem("voiceclaim-enrolled", message.name);
      say(`${message.name} is enrolled, from ${seconds(message.seconds)} of speech in ${message.utterances} recordings.`, true);
      byId("name").value = "";
    }
  }

  function advance(mine) {
    mine.phrases += 1;
    mine.stream.say("utterance");
    nextPhrase();
  }

  async function end() {
    const ended = session;
    session = null;
    busy(false);
    await ended?.microphone?.close();
  }

  async function begin() {
    const mine = { microphone: null, stream: null, ready: false, phrases: 0, ended: false };
    session = mine;
    tell("");
    say("Opening the microphone …");
    try {
      mine.microphone = await openMicrophone({
        onChunk: (pcm) => { if (mine.ready && !mine.ended) mine.stream.audio(pcm); },
        onLevel: (level) => {
          showLevel(byId("enroll-meter"), level);
          if (level.problem || warned) tell(PROBLEMS[level.problem] ?? "", "wait");
          warned = Boolean(level.problem);
        },
        onLost: () => {
          tell("The microphone was disconnected: nobody was enrolled.");
          mine.stream?.close();
        },
      });
    } catch (error) {
      say("");
      tell(explain(error));
      await end();
      return;
    }
    if (session !== mine) {
      await mine.microphone.close();
      return;
    }
    connect(mine, byId("name").value.trim());
  }

  function connect(mine, name) {
    const hello = { name, rate: mine.microphone.rate, format: "pcm_s16le" };
    mine.stream = openStream("/enroll", hello, {
      onMessage: (message) => hear(message, mine),
      onEnd: async (problem) => {
        if (session !== mine) return;
        if (problem) {
          say("Nobody was enrolled.");
          tell(problem.message);
        }
        await end();
        byId("name").focus();
      },
    });
    mine.stream.ready.then((terms) => {
      if (session !== mine) return;
      mine.ready = true;
      busy(true);
      say("");
      progress({ speech_seconds: 0, aim_seconds: terms.aim_seconds });
      nextPhrase();
      byId("next-phrase").focus();
    }, () => {});
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!session) begin();
  });
  byId("next-phrase").addEventListener("click", () => { if (session?.ready && !session.ended) advance(session); });
  finish.addEventListener("click", async () => {
    const mine = session;
    mine.ended = true;
    byId("enroll-live").hidden = true;
    say("Training …");
    await mine.microphone.close();
    mine.stream.say("end");
  });
  byId("enroll-cancel").addEventListener("click", async () => {
    const mine = session;
    await end();
    mine?.stream?.close();
    tell("");
    say("Cancelled: nobody was enrolled.");
    byId("name").focus();
  });

  return {
    async show(show) {
      tell = show;
      say("");
    },
    leave() {
      const mine = session;
      end();
      mine?.stream?.close();
    },
  };
}

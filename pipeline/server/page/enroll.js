// Enrollment: numbers to read aloud, the amount of speech, the training.

import { ask, openStream } from "./api.js";
import { byId, seconds } from "./charts/dom.js";
import { explain, openMicrophone } from "./microphone.js";
import { prompt } from "./prompts.js";

const PHRASE_SECONDS = 2.0; // of speech, then the next numbers are shown

const recordings = (count) => (count === 1 ? "1 recording" : `${count} recordings`);

export function enrollView() {
  const form = byId("enroll-form");
  const status = byId("enroll-status");
  const finish = byId("enroll-finish");
  const training = byId("training");
  const files = byId("enroll-files");
  let tell = () => {};
  let session = null;

  function say(text, good = false) {
    status.textContent = text;
    status.classList.toggle("good", good);
    byId("enroll-done").hidden = !good;
  }

  function busy(on) {
    byId("name").disabled = on;
    byId("enroll-start").disabled = on;
    files.disabled = on;
    training.hidden = true;
    byId("enroll-live").hidden = !on;
    finish.disabled = true;
  }

  function nextPhrase() {
    byId("phrase").textContent = prompt(PHRASE_SECONDS);
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
      training.hidden = false;
      training.value = message.share;
      say(`Training: ${message.stage} … ${message.seconds.toFixed(0)} s`);
    } else if (message.type === "enrolled") {
      enrolled(message);
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

  function leave() {
    const mine = session;
    if (mine?.ended) return; // the training goes on
    end();
    mine?.stream?.close();
  }

  async function begin() {
    const mine = { microphone: null, stream: null, ready: false, phrases: 0, ended: false };
    session = mine;
    tell("");
    say("Opening the microphone …");
    try {
      mine.microphone = await openMicrophone({
        meter: byId("enroll-meter"),
        tell,
        onChunk: (pcm) => { if (mine.ready && !mine.ended) mine.stream.audio(pcm); },
        onLost: () => {
          leave();
          tell("The microphone was disconnected: nobody was enrolled.");
          say("");
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

  async function enrollFiles() {
    const name = byId("name").value.trim();
    if (!name) {
      files.value = "";
      tell("Enter the name first.");
      byId("name").focus();
      return;
    }
    const form = new FormData();
    for (const file of files.files) form.append("files", file);
    tell("");
    session = { ended: true };
    busy(true);
    byId("enroll-live").hidden = true;
    say(`Enrolling ${name} from ${recordings(files.files.length)} …`);
    try {
      const done = await ask(`/speakers/${encodeURIComponent(name)}`, { method: "POST", body: form });
      enrolled(done);
      const left = done.skipped.map(({ file, reason }) => `${file}: ${reason}`);
      if (left.length) tell(`Not used: ${left.join("; ")}`, "wait");
    } catch (error) {
      failed(error, name, true);
    } finally {
      await end();
      files.value = "";
    }
  }

  function enrolled({ name, seconds: speech, utterances }) {
    sessionStorage.setItem("voiceclaim-enrolled", name);
    const done = `${name} is enrolled, from ${seconds(speech)} of speech in ${recordings(utterances)}.`;
    say(done, true);
    if (byId("enroll").hidden) tell(done, "wait");
    byId("name").value = "";
  }

  /** Tells why `name` was not enrolled; once all was `sent`, only a refusal makes that sure. */
  function failed(problem, name, sent) {
    const unsure = sent && (problem.status === 0 || problem.status >= 500);
    say(unsure ? `See under Speakers whether ${name} was enrolled.` : "Nobody was enrolled.");
    tell(problem);
  }

  function connect(mine, name) {
    const hello = { name, rate: mine.microphone.rate, format: "pcm_s16le" };
    mine.stream = openStream("/enroll", hello, {
      onMessage: (message) => hear(message, mine),
      onEnd: async (problem) => {
        if (session !== mine) return;
        await end();
        byId("name").focus();
        if (problem) failed(problem, name, mine.ended);
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

  files.addEventListener("change", () => { if (files.files.length && !session) enrollFiles(); });
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
  byId("enroll-cancel").addEventListener("click", () => {
    leave();
    tell("");
    say("Cancelled: nobody was enrolled.");
    byId("name").focus();
  });

  return {
    async show(show) {
      tell = show;
      if (!session) say("");
    },
    leave,
  };
}

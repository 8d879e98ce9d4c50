// Identification: which enrolled speaker is speaking, into the microphone or in a file.

import { ask } from "./api.js";
import { byId, element, percent } from "./charts/dom.js";
import { explain, openMicrophone, sentence, wavOf } from "./microphone.js";

const MOST_SECONDS = 30;

export function identifyView() {
  const start = byId("identify-start");
  const stop = byId("identify-stop");
  const meter = byId("identify-meter");
  const file = byId("identify-file");
  const status = byId("identify-status");
  let tell = () => {};
  let session = null;

  function busy(on) {
    start.hidden = on;
    stop.hidden = !on;
    meter.hidden = !on;
    file.disabled = on;
  }

  function row(name, probability, llr) {
    return element("tr", {}, element("th", { scope: "row" }, name),
      element("td", { class: "number" }, percent(probability, 1)),
      element("td", { class: "number" }, llr === null ? "" : llr.toFixed(2)));
  }

  function show({ decision, name, nobody, candidates, warnings, speech_seconds: speech }) {
    const words = {
      identified: `${name} is speaking`,
      nobody: "Not an enrolled speaker",
      not_enough_speech: `Not enough speech: ${speech.toFixed(1)} s`,
    };
    status.textContent = words[decision];
    byId("identify-result").hidden = !candidates.length;
    const rows = candidates.map((one) => row(one.name, one.probability, one.llr));
    byId("candidate-rows").replaceChildren(...rows, row("No enrolled speaker", nobody ?? 0, null));
    byId("identify-warnings").replaceChildren(...warnings.map((warning) => element("li", {}, sentence(warning))));
  }

  async function send(recording) {
    const form = new FormData();
    form.append("file", recording);
    status.textContent = "Identifying …";
    byId("identify-result").hidden = true;
    start.disabled = true;
    try {
      show(await ask("/identify", { method: "POST", body: form }));
    } catch (error) {
      status.textContent = "";
      tell(error);
    } finally {
      start.disabled = false;
      file.value = "";
    }
  }

  async function finish() {
    const ended = session;
    session = null;
    busy(false);
    await ended?.microphone?.close();
    return ended;
  }

  async function record() {
    const mine = { microphone: null, chunks: [] };
    session = mine;
    tell("");
    busy(true);
    byId("identify-result").hidden = true;
    status.textContent = "Say a few words, then stop.";
    try {
      mine.microphone = await openMicrophone({
        meter,
        tell,
        onChunk: (pcm) => {
          mine.chunks.push(pcm);
          if (mine.chunks.length >= 10 * MOST_SECONDS) stop.click();
        },
        onLost: () => stop.click(),
      });
      if (session !== mine) await mine.microphone.close();
    } catch (error) {
      await finish();
      status.textContent = "";
      tell(explain(error));
    }
  }

  byId("identify-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!session) record();
  });
  stop.addEventListener("click", async () => {
    const ended = await finish();
    if (ended?.microphone) await send(wavOf(ended.chunks, ended.microphone.rate));
    if (byId("token-form").hidden) start.focus();
  });
  file.addEventListener("change", () => { if (file.files.length) { tell(""); send(file.files[0]); } });

  return {
    async show(say) {
      tell = say;
      const { speakers } = await ask("/speakers");
      start.disabled = file.disabled = speakers.length < 2;
      status.textContent = speakers.length < 2 ? "Two speakers must be enrolled first." : "";
    },
    leave() {
      finish();
      status.textContent = "";
      byId("identify-result").hidden = true;
    },
  };
}

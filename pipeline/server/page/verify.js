// Verification of live speech: the curve, the threshold, the decision.

import { ask, openStream } from "./api.js";
import { chart, ticks } from "./charts/chart.js";
import { byId, element } from "./charts/dom.js";
import { explain, openMicrophone, sentence } from "./microphone.js";
import { prompt } from "./prompts.js";

const WORDS = {
  accepted: (claim) => `Accepted as ${claim}`,
  rejected: (claim) => `Rejected: not ${claim}`,
  undecided: () => "Undecided: not enough evidence",
  not_enough_speech: () => "Not enough speech to decide",
};
const SO_FAR = {
  accepted: (claim) => `So far: accepted as ${claim} …`,
  rejected: (claim) => `So far: not ${claim} …`,
  undecided: () => "Undecided so far: keep speaking …",
  not_enough_speech: () => "Listening: keep speaking …",
};

const ASKED_SECONDS = 3.0; // of speech, then the page decides (docs/explanation.md, First users)

const priorOf = (terms) => terms.prior ?? 0.5;
const likely = (llr, terms) => 1 / (1 + Math.exp(-llr) * (1 / priorOf(terms) - 1));

/** Whether a sequential test tells or decides; the audio may have ended before it did. */
function byTest({ sequential_llr: llr, type }, terms) {
  const [low, high] = terms.sequential_bounds ?? [];
  return Number.isFinite(llr) && !(type === "final" && llr > low && llr < high);
}

/** The probability that the decision rests on. */
const probabilityOf = (message, terms) => (byTest(message, terms) ? likely(message.sequential_llr, terms) : message.probability);

/** Why a claim was rejected, as far as the numbers tell. */
function reasonsOf(message, terms) {
  if (message.decision !== "rejected" || message.type === "update") return [];
  const tested = byTest(message, terms);
  const reasons = tested ? ["The evidence against the claim reached the bound for a rejection."] : [];
  const [score, threshold] = terms.threshold === null ? [message.llr, terms.llr_threshold] : [message.score, terms.threshold];
  if (!tested && score !== null && score < threshold) reasons.push(`The score is ${(threshold - score).toFixed(2)} below the threshold of ${threshold.toFixed(2)}.`);
  const little = !tested && message.speech_seconds < ASKED_SECONDS;
  const told = message.warnings.some((warning) => warning.startsWith("little_speech:"));
  if (little && !told) reasons.push(`Only ${message.speech_seconds.toFixed(1)} s of speech: more may change the decision.`);
  if (message.warnings.length) reasons.push("The audio may explain it:");
  else if (!little) reasons.push(`No fault was found in the audio: the voice is unlike that of ${terms.claim}.`);
  return reasons;
}

export function verifyView() {
  const select = byId("claim");
  const start = byId("verify-start");
  const stop = byId("verify-stop");
  const meter = byId("verify-meter");
  const file = byId("verify-file");
  let tell = () => {};
  let session = null;
  let points = [];
  let drawn = { probability: true };

  function busy(on) {
    select.disabled = on;
    byId("early").disabled = on;
    file.disabled = on;
    start.hidden = on;
    stop.hidden = !on;
    stop.disabled = false;
    meter.hidden = !on;
    byId("claim-prompt").hidden = true;
  }

  function verdict(decision, words, detail = "", warnings = [], reasons = []) {
    byId("verdict").dataset.decision = decision;
    if (byId("verdict-word").textContent !== words) byId("verdict-word").textContent = words;
    byId("verdict-detail").textContent = detail;
    byId("verdict-reasons").replaceChildren(...reasons.map((reason) => element("li", {}, reason)));
    byId("verdict-warnings").replaceChildren(...warnings.map((warning) => element("li", {}, warning)));
  }

  function draw() {
    const end = Math.max(4, ...points.map(({ at }) => at));
    const x = { from: 0, to: end, ticks: ticks(0, end), title: "audio, s" };
    const values = points.flatMap(({ value, limit }) => [value, limit]).filter(Number.isFinite);
    const low = Math.min(...values, 0);
    const high = Math.max(...values, low + 1e-3);
    const y = drawn.probability
      ? { from: 0, to: 1, ticks: [0, 0.25, 0.5, 0.75, 1].map((v) => [v, `${100 * v} %`]) }
      : { from: low, to: high, ticks: ticks(low, high) };
    const picture = chart(byId("live"), x, y);
    const limits = points.filter(({ limit }) => Number.isFinite(limit)).map(({ at, limit }) => [at, limit]);
    if (limits.length) {
      picture.line([[0, limits[0][1]], ...limits, [end, limits.at(-1)[1]]], "limit");
      const [last, range] = [limits.at(-1)[1], y.to - y.from];
      const above = last + 0.1 * range < y.to; // there is room
      picture.words([end, last + (above ? 0.03 : -0.08) * range], "threshold", "end");
    }
    const lows = points.filter(({ low }) => Number.isFinite(low)).map(({ at, low }) => [at, low]);
    if (lows.length) picture.line([[0, lows[0][1]], [end, lows[0][1]]], "limit");
    const scored = points.filter(({ value }) => Number.isFinite(value)).map(({ at, value }) => [at, value]);
    picture.line(scored);
    if (scored.length) picture.dot(scored.at(-1));
  }

  function blank() {
    points = [];
    byId("live-words").textContent = "No audio yet.";
    draw();
  }

  function early(message, terms) {
    const value = message.sequential_llr === null ? NaN : likely(message.sequential_llr, terms);
    const [low, limit] = terms.sequential_bounds.map((llr) => likely(llr, terms));
    return { at: message.audio_seconds, value, limit, low };
  }

  async function stopSpeaking() {
    stop.disabled = true;
    await session?.microphone?.close();
    session?.stream?.say("end");
  }

  function numbers(message, terms) {
    const speech = `${message.speech_seconds.toFixed(1)} s of speech`;
    if (message.score === null) return speech;
    const share = probabilityOf(message, terms);
    const probability = share === null
      ? ""
      : `${(100 * share).toFixed(1)} % probable at a prior of ${Number((100 * priorOf(terms)).toPrecision(6))} %, `;
    return `${probability}score ${message.score.toFixed(3)}, ${speech}`;
  }

  function judge(message, terms, words) {
    if (message.duplicate_suspected) tell("The audio matches a known recording.", "wait");
    verdict(message.decision, words, numbers(message, terms), message.warnings.map(sentence), reasonsOf(message, terms));
  }

  function hear(message, terms) {
    drawn = { probability: terms.sequential_bounds || message.score === null || message.probability !== null };
    points.push(terms.sequential_bounds ? early(message, terms) : {
      at: message.audio_seconds,
      value: drawn.probability ? message.probability ?? NaN : message.score,
      limit: (drawn.probability ? message.threshold_probability : terms.threshold) ?? NaN,
    });
    draw();
    const final = message.type === "final";
    byId("claim-progress").value = Math.min(1, message.speech_seconds / ASKED_SECONDS);
    if (!final && !stop.disabled && (message.settled || message.speech_seconds >= ASKED_SECONDS)) stopSpeaking();
    const words = (final ? WORDS : SO_FAR)[message.decision](terms.claim);
    judge(message, terms, words);
    byId("live-words").textContent = final
      ? `${numbers(message, terms)}; ${message.decision.replaceAll("_", " ")}.`
      : terms.sequential_bounds ? "The dashed lines are the bounds at which the claim is accepted or rejected." : "The dashed line is the threshold.";
  }

  async function end() {
    const ended = session;
    session = null;
    busy(false);
    await ended?.microphone?.close();
  }

  async function begin() {
    const mine = { microphone: null, stream: null, terms: null, waiting: [] };
    session = mine;
    tell("");
    busy(true);
    blank();
    verdict("none", "Opening the microphone …");
    try {
      mine.microphone = await openMicrophone({
        meter,
        tell,
        onChunk: (pcm) => (mine.terms ? mine.stream.audio(pcm) : mine.waiting.push(pcm)),
        onLost: () => {
          tell("The microphone was disconnected.");
          mine.stream?.say("end");
        },
      });
    } catch (error) {
      tell(explain(error));
      verdict("none", "No decision.");
      await end();
      return;
    }
    if (session !== mine) {
      await mine.microphone.close();
      return;
    }
    const hello = { claim: select.value, rate: mine.microphone.rate, format: "pcm_s16le" };
    if (byId("early").checked) hello.early = { miss: 0.01, false_accept: 0.01, at_end: "fixed" };
    mine.stream = openStream("/verify", hello, {
      onMessage: (message) => hear(message, mine.terms),
      onEnd: async (problem) => {
        if (session !== mine) return;
        if (problem) verdict("none", "No decision.");
        await end();
        start.focus();
        if (problem) tell(problem);
      },
    });
    mine.stream.ready.then((terms) => {
      mine.terms = terms;
      verdict("none", SO_FAR.not_enough_speech());
      byId("claim-phrase").textContent = prompt(ASKED_SECONDS);
      byId("claim-progress").value = 0;
      byId("claim-prompt").hidden = false;
      mine.waiting.splice(0).forEach((pcm) => mine.stream.audio(pcm));
    }, () => {});
    stop.focus();
  }

  async function verifyFile() {
    const claim = select.value;
    const form = new FormData();
    form.append("claim", claim);
    form.append("file", file.files[0]);
    tell("");
    blank();
    verdict("none", "Verifying the recording …");
    start.disabled = true;
    try {
      const outcome = await ask("/verify", { method: "POST", body: form });
      judge(outcome, outcome, WORDS[outcome.decision](claim));
    } catch (error) {
      verdict("none", "No decision.");
      tell(error);
    } finally {
      start.disabled = false;
      file.value = "";
    }
  }

  file.addEventListener("change", () => { if (file.files.length && !session) verifyFile(); });
  byId("verify-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!session) begin();
  });
  stop.addEventListener("click", stopSpeaking);
  window.addEventListener("resize", () => { if (!byId("verify").hidden) draw(); });

  return {
    async show(say) {
      tell = say;
      const { speakers } = await ask("/speakers");
      const chosen = select.value || sessionStorage.getItem("voiceclaim-enrolled");
      const names = speakers.map(({ name }) => name);
      if (JSON.stringify(names) !== JSON.stringify([...select.options].map(({ value }) => value))) {
        select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
        if (names.includes(chosen)) select.value = chosen;
      }
      start.disabled = file.disabled = speakers.length === 0;
      byId("verify-empty").hidden = speakers.length > 0;
      draw();
    },
    leave() {
      session?.stream?.close();
      end();
      blank();
      verdict("none", "Choose a name, press start and read the numbers.");
    },
  };
}

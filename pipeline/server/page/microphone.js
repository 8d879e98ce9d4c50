// The microphone: its audio in chunks, its level, and its problems as text.

import { capital } from "./api.js";
import { shape } from "./charts/dom.js";

const SILENT_PEAK = 0.001; // -60 dB of full scale
const SILENT_CHUNKS = 25; // of a tenth of a second
const CLIPPED_SHARE = 0.002;
const WARN_CHUNKS = 20;

const REFUSALS = {
  NotAllowedError: "Access to the microphone was refused. Allow it for this page in the browser's settings, then start again.",
  NotFoundError: "No microphone was found. Plug one in, then start again.",
  NotReadableError: "The microphone cannot be used: another program may have it.",
  OverconstrainedError: "The microphone cannot record speech for this page.",
};

export function explain(error) {
  if (!navigator.mediaDevices?.getUserMedia) {
    return "Browsers allow the microphone only on pages from this machine or over HTTPS, and this page is neither.";
  }
  return REFUSALS[error.name] ?? `The microphone cannot be opened: ${error.message || error.name}`;
}

/** Opens the microphone. `onChunk` gets 16-bit samples; the level is shown on `meter`, and its problems by `tell`. */
export async function openMicrophone({ meter, tell, onChunk, onLost }) {
  // Processing for calls removes features that distinguish voices.
  const media = await navigator.mediaDevices.getUserMedia({
    audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
  });
  const context = new AudioContext();
  try {
    await context.audioWorklet.addModule("/page/worklet.js");
    await context.resume();
  } catch (error) {
    media.getTracks().forEach((track) => track.stop());
    await context.close();
    throw error;
  }
  const recorder = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 1 });
  const judge = levelJudge();
  let told = "";
  meter.querySelector(".wave").replaceChildren();
  recorder.port.onmessage = ({ data }) => {
    const problem = judge(data);
    showLevel(meter, data.peak, problem);
    if (problem || told) tell(PROBLEMS[problem] ?? "", "wait");
    told = problem;
    onChunk(data.pcm);
  };
  const mute = new GainNode(context, { gain: 0 });
  const source = context.createMediaStreamSource(media);
  source.connect(recorder).connect(mute).connect(context.destination);
  const [track] = media.getAudioTracks();
  track.addEventListener("ended", onLost);
  return {
    rate: context.sampleRate,
    async close() {
      if (context.state === "closed") return;
      track.removeEventListener("ended", onLost);
      recorder.port.onmessage = null;
      source.disconnect();
      media.getTracks().forEach((each) => each.stop());
      await context.close();
    },
  };
}

function levelJudge() {
  let silent = 0;
  let clipping = 0;
  return ({ peak, clipped }) => {
    silent = peak < SILENT_PEAK ? silent + 1 : 0;
    clipping = clipped > CLIPPED_SHARE ? WARN_CHUNKS : Math.max(0, clipping - 1);
    if (silent >= SILENT_CHUNKS) return "silent";
    return clipping > 0 ? "clipped" : "";
  };
}

// A warning reads "code: sentence".
export const sentence = (warning) => `${capital(warning.slice(warning.indexOf(":") + 2))}.`;

const PROBLEMS = {
  silent: "The microphone is silent: is it muted, or the wrong one selected?",
  clipped: "Too loud: the audio clips. Move away from the microphone, or reduce its gain.",
};

const SHOWN = 100; // chunks of the waveform: ten seconds

/** Draws a peak on a meter element, whose left end is -60 dB, and at the end of its waveform. */
function showLevel(meter, peak, problem) {
  const share = Math.max(0, Math.min(1, 1 + Math.log10(Math.max(peak, 1e-6)) / 3));
  meter.querySelector(".bar").style.transform = `scaleX(${share.toFixed(3)})`;
  meter.classList.toggle("clipped", problem === "clipped");
  const wave = meter.querySelector(".wave");
  const last = shape("rect", { x: 100, width: 0.7, y: (50 - 48 * Math.min(1, peak)).toFixed(1), height: Math.max(1, 96 * Math.min(1, peak)).toFixed(1) });
  for (const bar of wave.children) bar.setAttribute("x", Number(bar.getAttribute("x")) - 1);
  wave.append(last);
  if (wave.children.length > SHOWN) wave.firstChild.remove();
}

/** Joins chunks of 16-bit samples into a WAV file. */
export function wavOf(chunks, rate) {
  const bytes = chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
  const head = new DataView(new ArrayBuffer(44));
  const text = (at, word) => [...word].forEach((letter, n) => head.setUint8(at + n, letter.charCodeAt(0)));
  text(0, "RIFF"); head.setUint32(4, 36 + bytes, true); text(8, "WAVEfmt ");
  head.setUint32(16, 16, true); head.setUint16(20, 1, true); head.setUint16(22, 1, true);
  head.setUint32(24, rate, true); head.setUint32(28, 2 * rate, true);
  head.setUint16(32, 2, true); head.setUint16(34, 16, true);
  text(36, "data"); head.setUint32(40, bytes, true);
  return new Blob([head.buffer, ...chunks], { type: "audio/wav" });
}

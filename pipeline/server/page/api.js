// Requests and streams to the service, with the token if there is one.

const KEY = "voiceclaim-token";
const MOST_WAITING = 2 ** 21; // bytes that the network has not taken

/** Gives a text of the service a capital, unless it begins with the name of a file. */
export const capital = (text) => text.replace(/^[a-z]+(?=[ :])/, (word) => word[0].toUpperCase() + word.slice(1));

export class Problem extends Error {
  constructor({ status, detail }) {
    super(capital(detail));
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
};

export async function ask(path, options = {}) {
  const headers = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch {
    throw new Problem({ status: 0, detail: "The service cannot be reached." });
  }
  if (answer.ok) return answer.json();
  const table = await answer.json().catch(() => ({}));
  throw new Problem({ status: answer.status, detail: table.detail ?? `The service answered with ${answer.status}.` });
}

/** Opens a stream and says hello. `onMessage` gets each message after the first, `onEnd` a Problem or null. */
export function openStream(path, hello, { onMessage, onEnd }) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  let problem = null;
  let finished = false;
  let began;
  const ready = new Promise((resolve, reject) => { began = { resolve, reject }; });
  socket.onopen = () => socket.send(JSON.stringify(token.get() ? { ...hello, token: token.get() } : hello));
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === "ready") began.resolve(message);
    else if (message.type === "problem") problem = new Problem(message);
    else {
      finished ||= message.type === "final" || message.type === "enrolled";
      onMessage(message);
    }
  };
  socket.onclose = ({ code }) => {
    const lost = code === 1012
      ? "The service is being restarted. Try again in a moment."
      : "The connection to the service was lost.";
    if (!finished) problem ??= new Problem({ status: 0, detail: lost });
    if (problem) began.reject(problem);
    onEnd(finished ? null : problem);
  };
  return {
    ready,
    audio(pcm) {
      if (socket.readyState !== WebSocket.OPEN) return;
      if (socket.bufferedAmount > MOST_WAITING) {
        problem = new Problem({ status: 0, detail: "The network is too slow for live audio." });
        socket.close();
      } else socket.send(pcm);
    },
    say(type) {
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type }));
    },
    close() { socket.close(); },
  };
}

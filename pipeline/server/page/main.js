// The views of the page, selected by the URL fragment, and the notice at the top.

import { Problem, token } from "./api.js";
import { byId } from "./charts/dom.js";
import { enrollView } from "./enroll.js";
import { evaluationView } from "./evaluation.js";
import { identifyView } from "./identify.js";
import { speakersView } from "./speakers.js";
import { verifyView } from "./verify.js";

const views = { verify: verifyView(), identify: identifyView(), enroll: enrollView(), speakers: speakersView(), evaluation: evaluationView() };
const notice = byId("notice");
let current = null;

function tell(text, kind = "bad") {
  if (notice.textContent === text) return;
  notice.className = kind;
  notice.textContent = text;
}

async function refresh() {
  try {
    await views[current].show(tell);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const needsToken = error.status === 401 || error.status === 403;
    byId("token-form").hidden = !needsToken;
    if (error.status !== 401 || token.get()) tell(error.message);
    if (needsToken) byId("token").focus();
  }
}

async function go(focus) {
  const asked = location.hash.slice(1);
  const next = Object.hasOwn(views, asked) ? asked : "verify";
  if (current && current !== next) views[current].leave?.();
  current = next;
  tell("");
  for (const name of Object.keys(views)) {
    byId(name).hidden = name !== current;
    const link = document.querySelector(`nav a[href="#${name}"]`);
    if (name === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = byId(`${current}-title`);
  document.title = `${title.textContent} · Voiceclaim`;
  if (focus) title.focus();
  await refresh();
}

byId("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = byId("token");
  token.set(field.value.trim());
  field.value = "";
  byId("token-form").hidden = true;
  tell("");
  await refresh();
});
window.addEventListener("hashchange", () => go(true));
window.addEventListener("pagehide", () => views[current].leave?.());
go(false);

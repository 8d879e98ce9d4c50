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

/** Shows a text or a Problem; for one that another token may solve, the field for it too. */
function tell(said, kind = "bad") {
  if (said.status === 401 || said.status === 403) {
    byId("token-form").hidden = false;
    byId("token").focus();
  }
  const text = said.status === 401 && !token.get() ? "" : said.message ?? said;
  if (notice.textContent === text) return;
  notice.className = kind;
  notice.textContent = text;
}

async function refresh() {
  byId("token-form").hidden = true;
  tell("");
  try {
    await views[current].show(tell);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    tell(error);
  }
}

async function go(focus) {
  const asked = location.hash.slice(1);
  const next = Object.hasOwn(views, asked) ? asked : "verify";
  if (current && current !== next) views[current].leave?.();
  current = next;
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
  byId(`${current}-title`).focus();
  await refresh();
});
window.addEventListener("hashchange", () => go(true));
window.addEventListener("pagehide", () => views[current].leave?.());
go(false);

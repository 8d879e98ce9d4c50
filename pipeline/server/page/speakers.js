// The enrolled speakers, and their removal.

import { ask } from "./api.js";
import { byId, element, seconds } from "./charts/dom.js";

export function speakersView() {
  const rows = byId("speaker-rows");
  const status = byId("speakers-status");
  let tell = () => {};

  async function confirmed(name) {
    const dialog = byId("confirm");
    byId("confirm-words").textContent = `Remove ${name}? Enrolling them again needs new recordings.`;
    dialog.returnValue = "no";
    dialog.showModal();
    await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
    return dialog.returnValue === "yes";
  }

  async function remove(name, button) {
    if (!(await confirmed(name))) return;
    button.disabled = true;
    status.textContent = `Removing ${name} …`;
    try {
      await ask(`/speakers/${encodeURIComponent(name)}`, { method: "DELETE" });
      await list();
      status.textContent = `${name} was removed.`;
      byId("speakers-title").focus();
    } catch (error) {
      button.disabled = false;
      status.textContent = "";
      tell(error);
    }
  }

  function row({ name, seconds: speech, utterances }) {
    const button = element("button", { type: "button", class: "plain small", "aria-label": `Remove ${name}` }, "Remove");
    button.addEventListener("click", () => remove(name, button));
    return element(
      "tr", {},
      element("th", { scope: "row" }, name),
      element("td", { class: "number" }, seconds(speech)),
      element("td", { class: "number" }, String(utterances)),
      element("td", {}, button),
    );
  }

  async function list() {
    const { speakers } = await ask("/speakers");
    rows.replaceChildren(...speakers.map(row));
    byId("speakers-empty").hidden = speakers.length > 0;
  }

  return {
    async show(say) {
      tell = say;
      status.textContent = "";
      await list();
    },
  };
}

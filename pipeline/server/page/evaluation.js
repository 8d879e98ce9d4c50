// The last evaluation: the shared charts, and the error rates of all systems.

import { ask } from "./api.js";
import { breakable, byId, element, percent } from "./charts/dom.js";
import { ratesPanel } from "./charts/rates.js";

export function evaluationView() {
  const place = byId("evaluation-panel");
  const panel = ratesPanel(place);

  function row(system) {
    const made = element(
      "tr", {},
      element("th", { scope: "row" }, ...breakable(system.name)),
      element("td", { class: "number" }, percent(system.equal_error_rate)),
      element("td", { class: "number" }, String(system.targets)),
      element("td", { class: "number" }, String(system.nontargets)),
    );
    made.dataset.name = system.name;
    return made;
  }

  place.addEventListener("chosen", ({ detail }) => {
    for (const each of byId("system-rows").rows) each.setAttribute("aria-selected", each.dataset.name === detail);
  });

  return {
    async show() {
      const status = byId("evaluation-status");
      const result = byId("evaluation-result");
      status.textContent = "";
      let last;
      try {
        last = await ask("/evaluation");
      } catch (error) {
        if (error.status !== 404) throw error;
        result.hidden = byId("evaluation-stale").hidden = true;
        status.textContent = "No evaluation. Run voiceclaim evaluate, then serve with --evaluation DIR.";
        return;
      }
      byId("evaluation-stale").hidden = !last.stale;
      result.hidden = last.systems.length === 0;
      if (!last.systems.length) {
        status.textContent = "The evaluation has no system with both target and nontarget trials.";
        return;
      }
      byId("system-rows").replaceChildren(...last.systems.map(row));
      panel.show(last);
    },
  };
}

// The last evaluation: both error rates at the chosen threshold, in two charts and as text.

import { ask } from "./api.js";
import { chart, ticks } from "./chart.js";
import { byId, element, percent } from "./dom.js";

const SHOWN = [0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4];
const LEAST = 0.0005;

/** The normal deviate of a share, by bisection. */
function probit(share) {
  const clamped = Math.min(1 - LEAST, Math.max(LEAST, share));
  let low = -6;
  let high = 6;
  for (let n = 0; n < 40; n += 1) {
    const middle = (low + high) / 2;
    if (normal(middle) < clamped) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

// Abramowitz and Stegun 7.1.26: to 1.5e-7, less than a pixel.
function normal(z) {
  const x = Math.abs(z) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * x);
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const tail = (series * Math.exp(-x * x)) / 2;
  return z < 0 ? tail : 1 - tail;
}

export function evaluationView() {
  const select = byId("system");
  const slider = byId("threshold");
  let systems = [];
  let picture = null;

  const chosen = () => systems.find(({ name }) => name === select.value);

  function draw() {
    const system = chosen();
    if (!system || byId("evaluation").hidden) return;
    const step = Number(slider.value);
    drawDet(system, step);
    drawRates(system, step);
    const accept = percent(system.false_accept[step]);
    const reject = percent(system.false_reject[step]);
    const words = `At a threshold of ${system.thresholds[step].toPrecision(4)}: ${accept} false accepts, ${reject} false rejects`;
    byId("rates").textContent = words;
    slider.setAttribute("aria-valuetext", words);
  }

  function drawDet(system, step) {
    const axis = SHOWN.map((share) => [probit(share), String(+(100 * share).toPrecision(2))]);
    const ends = { from: probit(LEAST), to: probit(0.5), ticks: axis };
    const plot = chart(byId("det"), { ...ends, title: "false accepts, %" }, ends);
    const half = (share) => probit(Math.min(0.5, share));
    const at = (n) => [half(system.false_accept[n]), half(system.false_reject[n])];
    plot.line([[ends.from, ends.from], [ends.to, ends.to]], "grid");
    const shown = (n) => system.false_accept[n] <= 0.5 && system.false_reject[n] <= 0.5;
    plot.line(system.thresholds.map((_, n) => n).filter(shown).map(at));
    plot.dot(at(step));
  }

  function drawRates(system, step) {
    const from = system.thresholds[0];
    const to = Math.max(system.thresholds.at(-1), from + 1e-9);
    const x = { from, to, ticks: ticks(from, to, 4), title: "threshold" };
    const y = { from: 0, to: 1, ticks: [0, 0.25, 0.5, 0.75, 1].map((v) => [v, `${100 * v} %`]) };
    picture = chart(byId("rates-chart"), x, y);
    picture.line(system.thresholds.map((threshold, n) => [threshold, system.false_accept[n]]));
    picture.line(system.thresholds.map((threshold, n) => [threshold, system.false_reject[n]]), "second");
    picture.line([[system.thresholds[step], 0], [system.thresholds[step], 1]], "limit");
  }

  function moveTo(threshold) {
    const { thresholds } = chosen();
    const index = thresholds.findIndex((value) => value >= threshold);
    slider.value = index < 0 ? thresholds.length - 1 : index;
    draw();
  }

  function choose() {
    const system = chosen();
    slider.max = system.thresholds.length - 1;
    byId("to-store").hidden = system.store_threshold === null;
    for (const row of byId("system-rows").rows) row.setAttribute("aria-selected", row.dataset.name === system.name);
    moveTo(system.store_threshold ?? system.equal_error_threshold);
  }

  function row(system) {
    const made = element(
      "tr", {},
      element("th", { scope: "row" }, system.name),
      element("td", { class: "number" }, percent(system.equal_error_rate)),
      element("td", { class: "number" }, String(system.targets)),
      element("td", { class: "number" }, String(system.nontargets)),
    );
    made.dataset.name = system.name;
    return made;
  }

  select.addEventListener("change", choose);
  slider.addEventListener("input", draw);
  byId("to-eer").addEventListener("click", () => moveTo(chosen().equal_error_threshold));
  byId("to-store").addEventListener("click", () => moveTo(chosen().store_threshold));
  const point = (event) => { if (event.buttons && picture) moveTo(picture.valueAt(event.clientX)); };
  byId("rates-chart").addEventListener("pointerdown", point);
  byId("rates-chart").addEventListener("pointermove", point);
  window.addEventListener("resize", draw);

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
        result.hidden = true;
        status.textContent = "No evaluation. Run voiceclaim evaluate, then serve with --evaluation DIR.";
        return;
      }
      systems = last.systems;
      result.hidden = systems.length === 0;
      if (!systems.length) {
        status.textContent = "The evaluation has no system with both target and nontarget trials.";
        return;
      }
      select.replaceChildren(...systems.map(({ name }) => element("option", { value: name }, name)));
      select.value = systems.some(({ name }) => name === last.default_system) ? last.default_system : systems[0].name;
      byId("system-rows").replaceChildren(...systems.map(row));
      choose();
    },
  };
}

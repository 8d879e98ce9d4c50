// Error rates of an evaluation: DET curves, both rates against the threshold, and the rates at a threshold of choice.
// report.html and the service's page share this file.

import { chart, ticks } from "./chart.js";
import { element, percent, shape } from "./dom.js";

const SHOWN = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4];
const LEAST = 0.0002;
const MOST = 0.5;

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

/** A rate as a DET axis shows it: half an error takes the place of none. */
const floored = (share, trials) => probit(Math.min(MOST, Math.max(share, 0.5 / trials)));

/** The line of the system `n` in a legend. */
function sample(n) {
  const made = shape("svg", { class: `key s${n}`, "aria-hidden": "true" });
  made.append(shape("line", { x2: "100%", y1: 2, y2: 2 }));
  return made;
}

/** Puts the controls and both charts into `place`; `show` gives them an evaluation, `draw` draws it again. */
export function ratesPanel(place) {
  const select = element("select", { id: "system" });
  const slider = element("input", { id: "threshold", type: "range", min: 0, max: 1, step: 1, "aria-describedby": "rates" });
  const words = element("p", { id: "rates", role: "status", "aria-live": "polite" });
  const toEer = element("button", { id: "to-eer", type: "button", class: "plain" }, "Equal error rate");
  const toStore = element("button", { id: "to-store", type: "button", class: "plain" }, "Threshold of the store");
  const every = element("input", { id: "every", type: "checkbox" });
  const others = element("p", { class: "choice" }, every, element("label", { for: "every" }, "Show all systems"));
  const picture = (id, caption) => shape("svg", { id, class: "chart square", role: "img", "aria-labelledby": `${caption} rates` });
  const det = picture("det", "det-caption");
  const rates = picture("rates-chart", "rates-caption");
  const key = element("ul", { class: "legend", id: "det-key" });
  let evaluation = { systems: [] };
  let plotted = null;

  place.replaceChildren(
    element("div", { class: "card" },
      element("label", { for: "system" }, "Scoring system"), select,
      element("label", { for: "threshold" }, "Threshold"), slider, words,
      element("div", { class: "row" }, toEer, toStore)),
    element("div", { class: "pair" },
      element("figure", { class: "card" },
        element("figcaption", { id: "det-caption" }, "Detection error trade-off (DET): lower left is better"), det, key, others),
      element("figure", { class: "card" },
        element("figcaption", { id: "rates-caption" }, "Both error rates against the threshold"), rates,
        element("ul", { class: "legend" },
          element("li", {}, element("span", { class: "key accept" }), "false accepts"),
          element("li", {}, element("span", { class: "key reject" }), "false rejects")))),
  );

  const chosen = () => evaluation.systems.find(({ name }) => name === select.value);
  const coloured = () => evaluation.systems.filter((system) => system.featured || system === chosen());

  function draw() {
    const system = chosen();
    if (!system || !det.getBoundingClientRect().width) return;
    const step = Number(slider.value);
    drawDet(system, step);
    drawRates(system, step);
    const at = system.thresholds[step];
    const accept = percent(system.false_accept[step]);
    const reject = percent(system.false_reject[step]);
    const same = at === system.equal_error_threshold
      ? `; equal error rate ${percent(system.equal_error_rate)}, interpolated` : "";
    const text = `At a threshold of ${at.toPrecision(4)}: ${accept} false accepts, ${reject} false rejects${same}`;
    words.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  }

  function drawDet(system, step) {
    const drawn = every.checked ? evaluation.systems : coloured();
    const axis = (title, floor) => ({
      from: probit(Math.max(LEAST, floor)), to: probit(MOST), title,
      ticks: SHOWN.filter((share) => share > floor).map((share) => [probit(share), String(+(100 * share).toPrecision(2))]),
    });
    const least = (count) => Math.min(...drawn.map((each) => 0.5 / each[count]));
    const x = axis("false accepts, %", least("nontargets"));
    const y = axis("false rejects, %", least("targets"));
    const plot = chart(det, x, y);
    const from = Math.max(x.from, y.from);
    plot.line([[from, from], [x.to, y.to]], "grid");
    const at = (each, n) => [floored(each.false_accept[n], each.nontargets), floored(each.false_reject[n], each.targets)];
    const inside = (each, n) => each.false_accept[n] <= MOST && each.false_reject[n] <= MOST;
    const line = (each, kind) => plot.line(
      each.thresholds.map((_, n) => n).filter((n) => inside(each, n)).map((n) => at(each, n)), kind);
    if (system.band) drawBand(plot, system);
    const colours = coloured();
    drawn.filter((each) => !colours.includes(each)).forEach((each) => line(each, "curve other"));
    colours.forEach((each, n) => { if (each !== system) line(each, `curve s${n}`); });
    line(system, `curve s${colours.indexOf(system)} chosen`);
    colours.forEach((each, n) => {
      const rate = each.equal_error_rate;
      plot.dot([floored(rate, each.nontargets), floored(rate, each.targets)], `eer s${n}`, 4);
    });
    if (inside(system, step)) plot.dot(at(system, step));
    key.replaceChildren(...colours.map((each, n) => element("li", {},
      sample(n), `${each.name}: EER ${percent(each.equal_error_rate)}`)));
    if (system.band) key.append(element("li", {}, element("span", { class: "key band" }), "95 % interval"));
  }

  function drawBand(plot, { band, targets, nontargets }) {
    const shown = band.filter(([accept]) => accept <= MOST);
    const side = (n) => shown.map((row) => [floored(row[0], nontargets), floored(row[n], targets)]);
    plot.area([...side(1), ...side(2).reverse()], "band");
  }

  function drawRates(system, step) {
    const from = system.thresholds[0];
    const to = Math.max(system.thresholds.at(-1), from + 1e-9);
    const x = { from, to, ticks: ticks(from, to, 4), title: "threshold" };
    const y = { from: 0, to: 1, ticks: [0, 0.25, 0.5, 0.75, 1].map((v) => [v, `${100 * v}`]), title: "error rate, %" };
    plotted = chart(rates, x, y);
    plotted.line(system.thresholds.map((threshold, n) => [threshold, system.false_accept[n]]));
    plotted.line(system.thresholds.map((threshold, n) => [threshold, system.false_reject[n]]), "second");
    plotted.line([[system.thresholds[step], 0], [system.thresholds[step], 1]], "limit");
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
    toStore.hidden = system.store_threshold === null;
    place.dispatchEvent(new CustomEvent("chosen", { detail: system.name }));
    moveTo(system.store_threshold ?? system.equal_error_threshold);
  }

  select.addEventListener("change", choose);
  slider.addEventListener("input", draw);
  every.addEventListener("change", draw);
  toEer.addEventListener("click", () => moveTo(chosen().equal_error_threshold));
  toStore.addEventListener("click", () => moveTo(chosen().store_threshold));
  const point = (event) => { if (event.buttons && plotted) moveTo(plotted.valueAt(event.clientX)); };
  rates.addEventListener("pointerdown", point);
  rates.addEventListener("pointermove", point);
  window.addEventListener("resize", draw);

  return {
    draw,
    /** Shows `given`, which has a system or more; its default system is chosen. */
    show(given) {
      evaluation = given;
      const { systems, default_system: first } = evaluation;
      others.hidden = systems.every(({ featured }) => featured);
      select.replaceChildren(...systems.map(({ name }) => element("option", { value: name }, name)));
      select.value = systems.some(({ name }) => name === first) ? first : systems[0].name;
      choose();
    },
  };
}

// Line charts as SVG: axes with ticks, curves, bands, marks.

import { shape } from "./dom.js";

const MARGIN = { left: 46, right: 12, top: 10, bottom: 34 };
const CHARACTER = 8; // pixels
const TITLED = 16; // more room on the left for a title of the y axis

/** A chart on `svg`. `x` and `y` are {from, to, ticks: [[value, label]], title}; values are in their own units. */
export function chart(svg, x, y) {
  const { width, height } = svg.getBoundingClientRect();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const left = MARGIN.left + (y.title ? TITLED : 0);
  const right = width - MARGIN.right;
  const bottom = height - MARGIN.bottom;
  const along = (axis, value, start, end) => start + ((value - axis.from) / (axis.to - axis.from)) * (end - start);
  const atX = (value) => along(x, value, left, right);
  const atY = (value) => along(y, value, bottom, MARGIN.top);
  const put = (...made) => svg.append(shape(...made));
  let free = 0; // labels that would overlap are left out
  for (const [value, label] of x.ticks) {
    put("line", { class: "grid", x1: atX(value), x2: atX(value), y1: MARGIN.top, y2: bottom });
    const half = (label.length * CHARACTER) / 2;
    if (atX(value) - half < free) continue;
    free = atX(value) + half;
    put("text", { x: atX(value), y: bottom + 15, "text-anchor": "middle" }, label);
  }
  for (const [value, label] of y.ticks) {
    put("line", { class: "grid", x1: left, x2: right, y1: atY(value), y2: atY(value) });
    put("text", { x: left - 6, y: atY(value) + 4, "text-anchor": "end" }, label);
  }
  put("text", { x: (left + right) / 2, y: height - 3, "text-anchor": "middle" }, x.title);
  const middle = (MARGIN.top + bottom) / 2;
  if (y.title) put("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, y.title);
  const at = ([a, b]) => `${atX(a).toFixed(1)},${atY(b).toFixed(1)}`;
  return {
    line(points, kind = "curve") {
      if (points.length) put("polyline", { class: kind, points: points.map(at).join(" ") });
    },
    area(points, kind) {
      if (points.length) put("polygon", { class: kind, points: points.map(at).join(" ") });
    },
    dot([a, b], kind = "dot", r = 5) {
      put("circle", { class: kind, cx: atX(a), cy: atY(b), r });
    },
    words([a, b], text, anchor = "start") {
      put("text", { x: atX(a), y: atY(b), "text-anchor": anchor }, text);
    },
    valueAt: (clientX) => {
      const share = (clientX - svg.getBoundingClientRect().left - left) / (right - left);
      return x.from + Math.max(0, Math.min(1, share)) * (x.to - x.from);
    },
  };
}

/** About `count` round numbers from `from` to `to`. */
export function ticks(from, to, count = 5) {
  const rough = (to - from) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((size) => size >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  const list = [];
  for (let n = Math.ceil(from / step); n * step <= to + step / 1e6; n += 1) {
    list.push([n * step, (n * step).toFixed(digits)]);
  }
  return list;
}

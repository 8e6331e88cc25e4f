// Curves: one SVG a chart. Scales, ticks and numbers are shared with the bars.
"use strict";

const svgNode = (name, attributes = {}, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};

const node = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const shown = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(3).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(5)));
};

// For ticks: 38.05M.
const brief = (value) => {
  const suffix = [[1e9, "G"], [1e6, "M"], [1e4, "k"]].find(([size]) => Math.abs(value) >= size);
  const [size, letter] = suffix || [1, ""];
  return letter === "k" ? `${Number((value / 1e3).toPrecision(4))}k` : letter ? `${Number((value / size).toPrecision(4))}${letter}` : shown(value);
};

const shownBytes = (value) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 999.5 && unit < 4; ++unit) value /= 1000;
  return `${Number(value.toPrecision(4))} ${units[unit]}`;
};

// Round values between two bounds, about `count` of them.
const ticks = (low, high, count) => {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const values = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); ++i) values.push(Number((i * step).toPrecision(12)));
  return values;
};

const logTicks = (low, high) => {
  const values = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
    for (const m of [1, 2, 5]) if (m * 10 ** power >= low && m * 10 ** power <= high) values.push(m * 10 ** power);
  return values.length < 2 ? ticks(low, high, 3) : values.length > 8 ? values.filter((v) => /^1/.test(v.toExponential())) : values;
};

const scaled = (low, high, from, to, log) => {
  const at = log ? Math.log10 : (v) => v;
  const span = at(high) - at(low) || 1;
  return (value) => from + ((at(value) - at(low)) / span) * (to - from);
};

// Exponential moving average, without its bias towards the first value.
const smoothed = (values, weight) => {
  let sum = 0, norm = 0;
  return values.map((v) => {
    if (v === null) return null;
    sum = weight * sum + (1 - weight) * v;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
};

// The point of sorted `xs` nearest to x.
const nearest = (xs, x) => {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
};

let clips = 0;  // names of what charts are clipped by

// One chart. `series`: {name, color, dash, x, y}; what all charts share comes with draw(view): {from, to, log, smooth, hover}.
class LineChart {
  constructor(host, title, series, actions) {
    this.series = series;
    this.actions = actions;
    this.clip = `clip${++clips}`;
    this.tick = title.endsWith("_bytes") ? shownBytes : brief;
    this.value = title.endsWith("_bytes") ? shownBytes : shown;
    this.reading = node("span");
    this.svg = svgNode("svg", { role: "img", "aria-label": title, height: 210 });
    this.card = node("div", { class: "card", "data-curve": title }, node("h3", {}, title, this.reading), this.svg);
    host.append(this.card);
    this.listen();
  }

  // The x under the pointer.
  xAt(event) {
    const box = this.svg.getBoundingClientRect();
    const place = (event.clientX - box.left - this.left) / (this.right - this.left);
    return this.from + Math.min(1, Math.max(0, place)) * (this.to - this.from);
  }

  listen() {
    const svg = this.svg;
    svg.addEventListener("pointerdown", (event) => {
      this.dragged = this.xAt(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      this.actions.hover(this.xAt(event), this, event, this.dragged);
    });
    svg.addEventListener("pointerup", (event) => {
      const begin = this.dragged, end = this.xAt(event);
      this.dragged = undefined;
      if (begin !== undefined && Math.abs(end - begin) > (this.to - this.from) * 0.01)
        this.actions.zoom(Math.min(begin, end), Math.max(begin, end));
    });
    svg.addEventListener("pointerleave", () => {
      if (this.dragged === undefined) this.actions.leave();
    });
    svg.addEventListener("pointercancel", () => {
      this.dragged = undefined;
      this.actions.leave();
    });
    svg.addEventListener("dblclick", () => this.actions.whole());
  }

  bounds(view, lines) {
    let low = Infinity, high = -Infinity;
    for (const { x, y } of lines)
      x.forEach((at, i) => {
        if (at < view.from || at > view.to || y[i] === null || (view.log && y[i] <= 0)) return;
        low = Math.min(low, y[i]);
        high = Math.max(high, y[i]);
      });
    if (low > high) return [view.log ? 1 : 0, view.log ? 10 : 1];
    if (low === high) return view.log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
    const margin = (high - low) * 0.04;
    return view.log ? [low, high] : [low - margin, high + margin];
  }

  draw(view) {
    const width = Math.max(180, this.svg.clientWidth || 380), height = 210;
    const lines = this.series.filter((s) => !view.hidden.has(s.run))
      .map((s) => ({ ...s, raw: s.y, y: view.smooth > 0 ? smoothed(s.y, view.smooth) : s.y }));
    const [low, high] = this.bounds(view, lines);
    Object.assign(this, { from: view.from, to: view.to, left: 58, right: width - 12, lines });
    this.xOf = scaled(view.from, view.to, this.left, this.right, false);
    const yOf = (this.yOf = scaled(low, high, height - 22, 6, view.log));
    const parts = [];
    for (const v of view.log ? logTicks(low, high) : ticks(low, high, 4)) {
      parts.push(svgNode("line", { class: "axis", x1: this.left, x2: this.right, y1: yOf(v), y2: yOf(v) }),
                 svgNode("text", { x: this.left - 5, y: yOf(v) + 4, "text-anchor": "end" }, this.tick(v)));
    }
    for (const v of ticks(view.from, view.to, width / 90)) {
      const anchor = this.xOf(v) > this.right - 14 ? "end" : "middle";
      parts.push(svgNode("text", { x: Math.min(this.xOf(v), this.right + 10), y: height - 6, "text-anchor": anchor }, brief(v)));
    }
    const clip = svgNode("clipPath", { id: this.clip });
    clip.append(svgNode("rect", { x: this.left - 4, y: 0, width: this.right - this.left + 8, height: height - 18 }));
    parts.push(clip);
    for (const line of lines) {
      if (view.smooth > 0) parts.push(this.path(line, line.raw, "raw", view));
      parts.push(this.path(line, line.y, "curve", view));
    }
    this.layer = svgNode("g");
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...parts, this.layer);
  }

  path(line, ys, kind, view) {
    let d = "", open = false, points = 0;
    line.x.forEach((x, i) => {
      const y = ys[i];
      if (y === null || (view.log && y <= 0)) {
        open = false;
        return;
      }
      ++points;
      d += `${open ? "L" : "M"}${this.xOf(x).toFixed(1)} ${this.yOf(y).toFixed(1)}`;
      open = true;
    });
    if (points === 1) d += "h0.01";
    const dot = points === 1 ? "stroke-linecap:round;stroke-width:5" : "";
    return svgNode("path", { class: kind, d, "clip-path": `url(#${this.clip})`, style: `stroke:${line.color};stroke-dasharray:${line.dash};${dot}` });
  }

  // What each visible run has nearest to x: [{name, color, x, y}].
  read(x) {
    return this.lines.filter((l) => l.x.length > 0).map((l) => {
      const i = nearest(l.x, x);
      return { name: l.name, color: l.color, x: l.x[i], y: l.y[i], raw: l.raw[i] };
    });
  }

  // The cross of all charts, and what is being selected.
  point(x, dragged) {
    this.layer.replaceChildren();
    this.reading.textContent = "";
    if (x === null || x < this.from || x > this.to) return;
    if (dragged !== undefined) {
      const [a, b] = [this.xOf(Math.min(x, dragged)), this.xOf(Math.max(x, dragged))];
      this.layer.append(svgNode("rect", { class: "brush", x: a, width: b - a, y: 6, height: 182 }));
    }
    this.layer.append(svgNode("line", { class: "cross", x1: this.xOf(x), x2: this.xOf(x), y1: 6, y2: 188 }));
    const values = this.read(x);
    for (const v of values)
      if (v.y !== null && Number.isFinite(this.yOf(v.y)))
        this.layer.append(svgNode("circle", { cx: this.xOf(v.x), cy: this.yOf(v.y), r: 3, style: `fill:${v.color}` }));
    this.reading.textContent = values.slice(0, 2).map((v) => this.value(v.y)).join("  ");
  }
}

// A sweep: heat map, every point over all axes, and the importance of each axis.

// Maps values to 0 (best value of the sweep) to 1 (worst); on a logarithmic scale if the values span a large range.
const grade = (values, lower) => {
  const low = Math.min(...values), high = Math.max(...values), log = low > 0 && high / low > 3;
  const place = scaled(low, high, lower ? 0 : 1, lower ? 1 : 0, log);
  return { low, high, log, of: (v) => (high > low ? place(v) : 0) };
};

// Shows means over the axes that are not shown.
class HeatMap extends Figure {
  constructor(host, sweep) {
    super(host, "sweep heat map", `${sweep.metric}, mean of the points of a cell`);
    this.sweep = sweep;
    [this.down, this.across] = sweep.axes.map((a) => a.name).filter((n) => n !== "seed");  // two at least
  }

  cells() {
    const { axes, points } = this.sweep, at = (name) => axes.findIndex((a) => a.name === name);
    const column = at(this.across), row = this.down === this.across ? -1 : at(this.down), cells = [];
    const columns = axes[column].values, rows = row < 0 ? [""] : axes[row].values;
    rows.forEach((down, r) => columns.forEach((across, c) => {
      const inside = points.filter((p) => p.place[column] === across && (row < 0 || p.place[row] === down));
      const values = inside.map((p) => p.value).filter((v) => v !== null);
      const mean = values.length > 0 ? values.reduce((a, b) => a + b, 0) / values.length : null;
      cells.push({ r, c, down, across, mean, count: values.length, points: inside.length,
                   outcome: [...new Set(inside.filter((p) => p.value === null).map((p) => p.outcome))].join(", ") });
    }));
    return { cells, columns, rows };
  }

  draw() {
    const { cells, columns, rows } = this.cells(), known = cells.filter((c) => c.mean !== null);
    const scale = grade(known.length > 0 ? known.map((c) => c.mean) : [0], this.sweep.lower);
    const left = Math.min(120, Math.max(...rows.map((v) => widthOf(spelled(v))))) + 34, width = Math.max(this.width, left + columns.length * 64 + 14);
    const box = { left, right: width - 14, top: 28, bottom: 28 + rows.length * 34 };
    const size = (box.right - box.left) / columns.length, parts = this.titles(box, this.across, this.down, width);
    rows.forEach((v, r) => parts.push(svgNode("text", { x: left - 6, y: box.top + r * 34 + 21, "text-anchor": "end" }, fitted(spelled(v), 120))));
    columns.forEach((v, c) => parts.push(svgNode("text", { x: left + (c + 0.5) * size, y: box.bottom + 15, "text-anchor": "middle" }, fitted(spelled(v), size - 4))));
    const best = known.reduce((a, b) => (!a || (this.sweep.lower ? b.mean < a.mean : b.mean > a.mean) ? b : a), null);
    for (const cell of cells) parts.push(...this.cell(cell, box, size, scale, cell === best));
    this.place(width, box.bottom + 74, [...parts, ...this.scaleParts(scale, box)]);
    this.svg.style.width = width > this.width ? `${width}px` : "";
    const others = this.sweep.axes.map((a) => a.name).filter((n) => n !== this.across && n !== this.down);
    const single = this.sweep.points.filter((p) => p.value !== null).sort((a, b) => (this.sweep.lower ? a.value - b.value : b.value - a.value))[0];
    const point = single ? ` The best single point is ${shown(single.value)} at ${this.sweep.axes.map((a, i) => `${a.name}=${spelled(single.place[i])}`).join(" ")}.` : "";
    this.say(`${others.length > 0 ? `Each cell is the mean over ${others.join(", ")}; the frame marks the best mean.` : "The frame marks the best cell."}${point}`);
  }

  cell(cell, box, size, scale, best) {
    const x = box.left + cell.c * size, y = box.top + cell.r * 34, parts = [];
    const rect = svgNode("rect", { x: x + 1, y: y + 1, width: size - 2, height: 32, rx: 4, class: cell.mean === null ? "border" : "f0",
                                   "fill-opacity": cell.mean === null ? 0 : (0.6 - 0.55 * scale.of(cell.mean)).toFixed(3) });
    this.pointOut(rect, () => [[this.across, spelled(cell.across)], ...(cell.down ? [[this.down, spelled(cell.down)]] : []), [this.sweep.metric, shown(cell.mean)],
                  ["points with a value", `${cell.count} of ${cell.points}`], ...(cell.outcome ? [["others", cell.outcome]] : [])]);
    parts.push(rect);
    if (best) parts.push(svgNode("rect", { x: x + 2, y: y + 2, width: size - 4, height: 30, rx: 4, class: "chosen" }));
    const text = cell.mean === null ? cell.outcome : shown(cell.mean) + (cell.count < cell.points ? ` (${cell.count}/${cell.points})` : "");
    parts.push(svgNode("text", { class: "value", x: x + size / 2, y: y + 21, "text-anchor": "middle", "data-cell": `${cell.down}|${cell.across}`,
                                 ...(best ? { "data-best": "1", style: "font-weight:700" } : {}) }, fitted(text, size - 6)));
    return parts;
  }

  // Draws the colour scale and its values.
  scaleParts(scale, box) {
    const parts = [], y = box.bottom + 44, from = 8, step = Math.min(28, (box.right - box.left) / 14);
    const place = scaled(0, 1, ...(this.sweep.lower ? [scale.low, scale.high] : [scale.high, scale.low]), false);
    for (let i = 0; i < 5; ++i) parts.push(svgNode("rect", { x: from + i * step, y, width: step - 2, height: 10, class: "f0", "fill-opacity": (0.6 - 0.55 * (i / 4)).toFixed(3) }));
    parts.push(svgNode("text", { x: from, y: y + 23 }, `${shown(place(0))} (best)`),
               svgNode("text", { x: from + 5 * step + 6, y: y + 9 }, `${shown(place(1))} (worst)${scale.log ? ", log scale" : ""}`));
    return parts;
  }

  csv() {
    const { cells } = this.cells();
    return [csvLine([this.down || "row", this.across, `mean ${this.sweep.metric}`, "points with a value", "points"]),
            ...cells.map((c) => csvLine([c.down, c.across, c.mean ?? "", c.count, c.points]))].join("\n") + "\n";
  }
}

// Draws one line per point over all axes and the metric.
class ParallelAxes extends Figure {
  constructor(host, sweep) {
    super(host, "sweep points", "Every point of the sweep");
    this.sweep = sweep;
  }

  draw() {
    const { sweep, width } = this, height = 290, axes = sweep.axes;
    const values = sweep.points.map((p) => p.value).filter((v) => v !== null);
    const scale = grade(values.length > 0 ? values : [0, 1], sweep.lower), { low, high, log } = scale;
    const label = (v) => fitted(spelled(v), 90), first = Math.max(...axes[0].values.map((v) => widthOf(label(v))), widthOf(fitted(axes[0].name, 110)) / 2);
    const metricTicks = values.length === 0 ? [] : log ? logTicks(low, high, 6) : ticks(low, high, 5);
    const right = width - 14 - Math.max(...metricTicks.map((v) => widthOf(brief(v))), 20), left = first + 16;
    const xOf = (i) => left + (i * (right - left)) / axes.length;
    const [top, bottom] = [46, height - 46];
    const yOfMetric = scaled(low, high === low ? low + 1 : high, ...(sweep.lower ? [top, bottom] : [bottom, top]), log);
    const yOf = (axis, value) => top + ((axis.values.indexOf(value) + 0.5) * (bottom - top)) / axis.values.length;
    const parts = [svgNode("text", { class: "title", x: 6, y: 15 }, this.title)], over = [];
    [...axes.map((a) => a.name), sweep.metric].forEach((name, i) => {
      const anchor = i === axes.length ? "end" : "middle";
      parts.push(svgNode("line", { class: "axis", x1: xOf(i), x2: xOf(i), y1: top - 4, y2: bottom + 4 }),
                 svgNode("text", { class: "value", x: anchor === "end" ? width - 6 : xOf(i), y: 34, "text-anchor": anchor }, fitted(name, (right - left) / axes.length)));
    });
    axes.forEach((axis, i) => {
      const every = Math.ceil(axis.values.length / ((bottom - top) / 13));
      axis.values.forEach((v, k) => k % every === 0 && over.push(svgNode("text", { class: "label", x: xOf(i) - 5, y: yOf(axis, v) + 4, "text-anchor": "end" }, label(v))));
    });
    for (const v of metricTicks) over.push(svgNode("text", { x: right + 6, y: yOfMetric(v) + 4 }, brief(v)));
    for (const point of sweep.points) if (point.value !== null) parts.push(this.line(point, xOf, yOf, yOfMetric, scale));
    over.push(svgNode("text", { class: "xtitle", x: width / 2, y: height - 12, "text-anchor": "middle" },
                      fitted(`axes of the sweep, values as in the recipe; right: ${sweep.metric}${log ? ", log scale" : ""}, the best on top`, width - 12)));
    this.place(width, height, [...parts, ...over]);
    const without = sweep.points.length - values.length;
    this.say(without > 0 ? `${without} of ${sweep.points.length} points have no value and no line.` : "");
  }

  line(point, xOf, yOf, yOfMetric, scale) {
    const { axes, metric } = this.sweep;
    const d = axes.map((axis, i) => `${i ? "L" : "M"}${xOf(i).toFixed(1)} ${yOf(axis, point.place[i]).toFixed(1)}`).join("") + `L${xOf(axes.length).toFixed(1)} ${yOfMetric(point.value).toFixed(1)}`;
    const best = scale.of(point.value) === 0;
    const path = svgNode("path", { d, class: `curve ${best ? "s1 best" : "s0"}`, "stroke-opacity": (best ? 1 : 0.7 - 0.5 * scale.of(point.value)).toFixed(2) });
    this.pointOut(path, () => [...axes.map((a, i) => [a.name, spelled(point.place[i])]), [metric, shown(point.value)]], (on) => (path.style.strokeWidth = on ? "4" : ""));
    return path;
  }

  csv() {
    const { axes, points, metric } = this.sweep;
    return [csvLine([...axes.map((a) => a.name), "outcome", metric]), ...points.map((p) => csvLine([...p.place, p.outcome, p.value ?? ""]))].join("\n") + "\n";
  }
}

// A sweep over one axis: the mean of the metric for each of its values.
const valuesOfAxis = (host, sweep, name) => {
  const at = sweep.axes.findIndex((a) => a.name === name);
  const rows = sweep.axes[at].values.map((value) => {
    const found = sweep.points.filter((p) => p.place[at] === value && p.value !== null).map((p) => p.value);
    return { label: spelled(value), parts: [{ name: sweep.metric, value: found.length > 0 ? found.reduce((a, b) => a + b, 0) / found.length : null, style: 0 }] };
  });
  new BarChart(host, "sweep values", `${sweep.metric} by ${name}`, `${sweep.metric} (mean of the points of a value)`, rows.filter((r) => r.parts[0].value !== null), shown);
};

const importanceChart = (host, sweep) => {
  if (sweep.importance.length === 0) return;
  const percent = (v) => `${Number((100 * v).toPrecision(3))} %`;
  const chart = new BarChart(host, "sweep importance", "Importance of each axis", "share of the metric's variance (percent)",
                             sweep.importance.map((i) => ({ label: i.axis, parts: [{ name: "share", value: i.share, style: 0 }], mark: i.chance })), percent, "by chance");
  chart.say("Method: one-way analysis of variance (η², the correlation ratio): the variance between the means of an axis' values, of the variance of all points with a value. " +
            "The dark tick is the share that as many values would have by chance alone; at or below it an axis has no visible effect. Effects that two axes have together only are not in any bar.");
};

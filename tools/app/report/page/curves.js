// Curves over steps, tokens, epochs or hours: one chart per quantity, all with the same horizontal range.

const mostInLegend = 40;  // lines

// A chart. `keys`: {key: [{run, split, steps, values}]}, with several keys if one quantity has several units. draw()
// receives the view that all charts share; `actions`: {hover, leave, zoom, whole}.
class LineChart extends Figure {
  constructor(host, name, keys, actions) {
    super(host, name, "");
    this.keys = keys;
    const splits = new Set(Object.values(keys).flat().map((s) => s.split));
    this.split = splits.size === 1 ? [...splits][0] : "";  // "": several splits in one chart
    this.actions = actions;
    this.listen();
  }

  series(view) {
    const key = view.unit in this.keys ? view.unit : Object.keys(this.keys)[0];
    this.key = key;
    const text = described(this.split, key);
    if (this.split === "") text.title += `, ${runLabels[0]}`;
    Object.assign(this, { title: text.title, axisTitle: text.axis, format: formats(key) });
    this.svg.setAttribute("aria-label", this.title);
    return this.keys[key];
  }

  // Returns x at the pointer.
  xAt(event) {
    const box = this.svg.getBoundingClientRect();
    const place = Math.min(1, Math.max(0, (event.clientX - box.left - this.left) / (this.right - this.left)));
    if (!this.logX) return this.from + place * (this.to - this.from);
    return this.from * (this.to / this.from) ** place;
  }

  listen() {
    const svg = this.svg;
    svg.addEventListener("pointerdown", (event) => {
      this.dragged = this.xAt(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => this.actions.hover(this.xAt(event), this, event, this.dragged));
    svg.addEventListener("pointerup", (event) => {
      const begin = this.dragged, end = this.xAt(event);
      this.dragged = undefined;
      if (begin !== undefined && Math.abs(this.xOf(end) - this.xOf(begin)) > (this.right - this.left) * 0.01)
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

  // Moves the cross of all charts to another step of this one.
  move(by) {
    const xs = [...new Set(this.shownLines.flatMap((l) => l.x))].filter((x) => x >= this.from && x <= this.to).sort((a, b) => a - b);
    if (xs.length === 0) return;
    this.target = Math.min(xs.length - 1, Math.max(0, this.target + by));
    const box = this.svg.getBoundingClientRect();
    this.actions.hover(xs[this.target], this, { clientX: box.left + this.xOf(xs[this.target]), clientY: box.top + this.box.top });
  }

  leave() {
    this.target = -1;
    this.actions.leave();
  }

  // Returns the lines of the chart: one per run, or one with a band per group of seeds.
  lines(view, clockAt) {
    const seen = this.series(view).filter((s) => view.shows(s.run));
    const lineOf = (members, label) => {
      const style = this.split === "" ? ["valid", "train"].indexOf(members[0].split) : styleOf(members[0].run, view);
      return { label: this.split === "" ? splitTitles[members[0].split] : label, split: members[0].split, style, dash: dashOf(style), runs: members.map((m) => m.run), best: members.some((m) => isBest(m.run)) && data.runs.length > 1,
               diverged: members.some((m) => diverged(m.run)) };
    };
    if (!view.seeds)
      return seen.map((s) => ({ ...lineOf([s], runLabels[s.run]), steps: s.steps, x: s.steps.map((step) => clockAt(s.run, step)), y: s.values }));
    return data.comparison.groups.map((_, g) => seen.filter((s) => groupOf[s.run] === g)).filter((members) => members.length > 0).map((members) => {
      const g = groupOf[members[0].run];
      if (members.length === 1)
        return { ...lineOf(members, groupLabels[g]), steps: members[0].steps, x: members[0].steps.map((step) => clockAt(members[0].run, step)), y: members[0].values };
      const steps = [...new Set(members.flatMap((m) => m.steps))].sort((a, b) => a - b);
      const at = steps.map((step) => members.map((m) => between(m.steps, m.values, step)));
      const fold = (what) => at.map((values) => (values.includes(null) ? null : what(values)));
      const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
      return { ...lineOf(members, groupLabels[g]), steps, seeds: members.length,
               x: steps.map((step) => mean(members.map((m) => clockAt(m.run, step)))), y: fold(mean), low: fold((v) => Math.min(...v)), high: fold((v) => Math.max(...v)) };
    });
  }

  // Returns the least and the greatest value within the range. Runs that diverged count only if all shown runs
  // diverged.
  extent(view, lines) {
    let low = Infinity, high = -Infinity, positive = true;
    const sane = lines.filter((l) => !l.diverged);
    for (const { x, y, low: lows, high: highs } of sane.length > 0 ? sane : lines)
      x.forEach((at, i) => {
        if (at < view.from || at > view.to || y[i] === null) return;
        low = Math.min(low, y[i], lows?.[i] ?? y[i]);
        high = Math.max(high, y[i], highs?.[i] ?? y[i]);
        if (y[i] <= 0) positive = false;
      });
    if (this.floor !== null && low <= high) low = Math.min(low, this.floor);
    return { low, high, positive };
  }

  bounds(view, lines) {
    const { low, high, positive } = this.extent(view, lines);
    if (low > high) return { low: 0, high: 1, log: false };
    const wide = high / low > (this.key === "ppl" ? 3 : ["nll_nat", "nll_bit", "grad_norm"].includes(this.key) ? 20 : Infinity);
    const log = positive && low > 0 && (view.scale === "log" || (view.scale === "auto" && wide));
    if (log) return low === high ? { low: low / 2, high: high * 2, log } : { low: low / 1.05, high: high * 1.05, log };
    if (low === high) return { low: low - (Math.abs(low) || 1) * 0.1, high: high + (Math.abs(high) || 1) * 0.1, log };
    const margin = (high - low) * 0.04;
    return { low: low - margin, high: high + margin, log };
  }

  draw(view, clockAt) {
    const width = this.width, lines = this.lines(view, clockAt).map((l) => ({ ...l, raw: l.y, y: view.smooth > 0 ? smoothed(l.y, view.smooth) : l.y }));
    this.floor = this.floorOf(lines);
    const { low, high, log } = this.bounds(view, lines);
    const yTicks = log ? logTicks(low, high, 6) : ticks(low, high, 4);
    const left = Math.ceil(30 + Math.max(...yTicks.map((v) => widthOf(this.format.tick(v)))));
    const rows = this.legendRows(this.legendOf(lines), width - left - 10);
    const box = { left, right: width - 14, top: 26, bottom: 206 };
    Object.assign(this, { from: view.from, to: view.to, logX: view.logX, left, right: box.right, box, shownLines: lines, log });
    this.xOf = scaled(view.from, view.to, box.left, box.right, view.logX);
    this.yOf = scaled(low, high, box.bottom, box.top, log);
    const clip = svgNode("clipPath", { id: this.clip });
    clip.append(svgNode("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top }));
    const parts = [clip, ...this.grid(view, box, yTicks), ...this.titles(box, view.axisTitle, log ? `${this.axisTitle}, log scale` : this.axisTitle, width)];
    const inside = svgNode("g", { "clip-path": `url(#${this.clip})` });
    if (this.floor !== null) inside.append(svgNode("line", { class: "floor", x1: box.left, x2: box.right, y1: this.yOf(this.floor), y2: this.yOf(this.floor) }));
    for (const line of lines) inside.append(...this.marks(line, view));
    this.layer = svgNode("g", { class: "overlay" });
    parts.push(inside, ...this.legendParts(rows, box.left, box.bottom + 50), this.layer);
    this.place(width, box.bottom + (rows.length > 0 ? 42 + 16 * rows.length : 38), parts);
    const cut = lines.some((l) => l.diverged && l.y.some((v) => v !== null && (v < low || v > high)));
    this.say(cut ? "The range is that of the runs that did not diverge." : "");
  }

  // Returns the true perplexity of the text's source, the expected minimum of any model, in the chart's unit.
  floorOf(lines) {
    const valid = lines.filter((l) => l.split === "valid"), floors = new Set(valid.map((l) => data.runs[l.runs[0]].start?.data?.valid_true_perplexity));
    const [floor] = floors;
    if (floors.size !== 1 || !floor || !(this.key in lossUnits)) return null;
    return { ppl: floor, nll_nat: Math.log(floor), nll_bit: Math.log2(floor) }[this.key];
  }

  // Returns the last record if it covers few steps and its value is a mean over them: such a mean varies more by
  // chance.
  shortOf(line) {
    const short = data.runs[line.runs[0]].short_window, isMean = this.key in lossUnits || /_per_s$|^step_s$|^comm_|^padding$|^step_spread$/.test(this.key);
    return short && isMean && line.split === "train" && line.steps[line.steps.length - 1] === short.step ? short : null;
  }

  legendOf(lines) {
    const counts = [...new Set(lines.filter((l) => l.low).map((l) => l.seeds))];
    const note = counts.length > 0 ? [{ label: `line: mean of ${counts.join(" or ")} seeds; band: lowest to highest`, kind: "note" }] : [];
    if (this.floor !== null) note.push({ label: `no model can expect less on validation: ${this.format.value(this.floor)}`, kind: "floor" });
    const named = lines.slice(0, mostInLegend);
    if (named.length < lines.length) note.push({ label: `and ${lines.length - named.length} more: see the table of runs`, kind: "note" });
    return [...named.map((l) => ({ ...l, kind: "line", label: `${l.best ? "★ " : ""}${l.label}${l.diverged ? " (diverged)" : ""}` })), ...note];
  }

  grid(view, box, yTicks) {
    const parts = [];
    for (const v of yTicks)
      parts.push(svgNode("line", { class: "axis", x1: box.left, x2: box.right, y1: this.yOf(v), y2: this.yOf(v) }),
                 svgNode("text", { x: box.left - 5, y: this.yOf(v) + 4, "text-anchor": "end" }, this.format.tick(v)));
    for (const v of view.logX ? logTicks(view.from, view.to, (box.right - box.left) / 70) : ticks(view.from, view.to, (box.right - box.left) / 80)) {
      const x = this.xOf(v), half = widthOf(brief(v)) / 2;
      if (x < box.left - 1 || x > box.right + 1) continue;
      parts.push(svgNode("line", { class: "axis", x1: x, x2: x, y1: box.bottom, y2: box.bottom + 4 }),
                 svgNode("text", { x: Math.min(x, box.right + 12 - half), y: box.bottom + 16, "text-anchor": "middle" }, brief(v)));
    }
    return parts;
  }

  marks(line, view) {
    const parts = [], classes = `curve s${line.style % kColours}${line.best ? " best" : ""}`;
    if (line.low) parts.push(this.band(line));
    if (view.smooth > 0) parts.push(this.path(line, line.raw, `raw s${line.style % kColours}`));
    const end = line.steps.length - (this.shortOf(line) ? 1 : 0);
    parts.push(this.path(line, line.y, classes, 0, end));
    if (end < line.steps.length) parts.push(this.path(line, line.y, `faint s${line.style % kColours}`, Math.max(0, end - 1)));
    if (line.diverged && this.key in lossUnits) parts.push(...this.cross(line));
    return parts;
  }

  drawable(y) {
    return y !== null && (!this.log || y > 0);
  }

  path(line, ys, classes, begin = 0, end = ys.length) {
    let d = "", open = false, points = 0;
    for (let i = begin; i < end; ++i) {
      if (!this.drawable(ys[i])) {
        open = false;
        continue;
      }
      ++points;
      d += `${open ? "L" : "M"}${this.xOf(line.x[i]).toFixed(1)} ${this.yOf(ys[i]).toFixed(1)}`;
      open = true;
    }
    if (points === 1) d += "h0.01";
    const path = svgNode("path", { class: classes, d, "stroke-dasharray": line.dash || "none" });
    if (points === 1) path.setAttribute("style", "stroke-linecap:round;stroke-width:6");
    return path;
  }

  // Draws the area between the lowest and the highest seed; gaps have no area.
  band(line) {
    let d = "", i = 0;
    while (i < line.x.length) {
      let j = i;
      while (j < line.x.length && this.drawable(line.low[j])) ++j;
      if (j > i) {
        const at = (values) => (k) => `${this.xOf(line.x[k]).toFixed(1)} ${this.yOf(values[k]).toFixed(1)}`;
        const forth = Array.from({ length: j - i }, (_, k) => i + k);
        d += `M${forth.map(at(line.high)).join("L")}L${forth.reverse().map(at(line.low)).join("L")}Z`;
      }
      i = Math.max(j, i + 1);
    }
    return svgNode("path", { class: `band f${line.style % kColours}`, d });
  }

  // Marks the last finite value of a run that diverged, within the frame.
  cross(line) {
    let i = line.y.length - 1;
    while (i >= 0 && !this.drawable(line.y[i])) --i;
    if (i < 0) return [];
    const x = Math.min(this.box.right - 6, Math.max(this.box.left + 6, this.xOf(line.x[i]))), y = Math.min(this.box.bottom - 6, Math.max(this.box.top + 6, this.yOf(line.y[i])));
    return [svgNode("path", { class: `curve s${line.style % kColours}`, d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10` })];
  }

  // Returns the value of each line nearest to x: [{name, style, x, y}].
  read(x) {
    return this.shownLines.filter((l) => l.x.length > 0).map((l) => {
      const i = nearest(l.x, x), short = this.shortOf(l);
      const few = short && l.steps[i] === short.step ? ` (mean of ${short.steps} steps)` : "";
      return { name: l.label + few, style: l.style, x: l.x[i], y: l.y[i] };
    });
  }

  // Draws the crosshair of all charts, and the range that is being selected.
  point(x, dragged) {
    this.layer.replaceChildren();
    this.reading.textContent = "";
    if (x === null || x < this.from || x > this.to) return;
    const { top, bottom } = this.box;
    if (dragged !== undefined) {
      const [a, b] = [this.xOf(Math.min(x, dragged)), this.xOf(Math.max(x, dragged))];
      this.layer.append(svgNode("rect", { class: "brush", x: a, width: b - a, y: top, height: bottom - top }));
    }
    this.layer.append(svgNode("line", { class: "cross", x1: this.xOf(x), x2: this.xOf(x), y1: top, y2: bottom }));
    const values = this.read(x);
    for (const v of values) {
      const y = this.drawable(v.y) ? this.yOf(v.y) : NaN;
      if (y >= top && y <= bottom) this.layer.append(svgNode("circle", { cx: this.xOf(v.x), cy: y, r: 3.5, class: `f${v.style % kColours}` }));
    }
    if (values.length <= 2) this.reading.textContent = values.map((v) => this.format.value(v.y)).join("  ");
  }

  // Returns every value in the page of the runs that are shown.
  csv() {
    const lines = [csvLine(["run", "split", "step", this.key])];
    for (const s of this.keys[this.key])
      if (view.shows(s.run)) s.steps.forEach((step, i) => lines.push(csvLine([data.runs[s.run].directory, s.split, step, s.values[i] ?? "NaN"])));
    return lines.join("\n") + "\n";
  }
}

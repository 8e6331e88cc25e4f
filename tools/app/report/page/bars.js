// Horizontal bars. A bar may consist of parts that add up.

class BarChart extends Figure {
  // `rows`: {label, parts: [{name, value, style}], mark}. A mark is a tick at another value; `markName` is its name in
  // CSV files.
  constructor(host, name, title, xTitle, rows, format, markName = "") {
    super(host, name, title);
    Object.assign(this, { xTitle, rows, format, markName });
  }

  total(row) {
    return row.parts.reduce((sum, p) => sum + p.value, 0);
  }

  draw() {
    const width = this.width, thin = this.rows.length > 32, row = thin ? 6 : 22;
    const most = Math.max(...this.rows.map((r) => Math.max(this.total(r), r.mark ?? 0)), Number.MIN_VALUE);
    const labels = thin ? 0 : Math.min(width * 0.42, Math.max(...this.rows.map((r) => widthOf(r.label))));
    const values = thin ? 10 : Math.max(...this.rows.map((r) => widthOf(this.format(this.total(r))))) + 8;
    const box = { left: labels + 14, right: width - values - 8, top: 26, bottom: 26 + row * this.rows.length + 4 };
    const xOf = scaled(0, most, box.left, box.right, false), parts = this.titles(box, this.xTitle, "", width);
    for (const v of ticks(0, most, Math.max(2, (box.right - box.left) / 90)))
      parts.push(svgNode("line", { class: "axis", x1: xOf(v), x2: xOf(v), y1: box.top, y2: box.bottom }),
                 svgNode("text", { x: xOf(v), y: box.bottom + 14, "text-anchor": "middle" }, this.format(v)));
    this.rows.forEach((r, i) => parts.push(...this.bar(r, box.top + i * row, row, xOf, thin, labels)));
    const named = [...new Map(this.rows.flatMap((r) => r.parts).map((p) => [p.name, { label: p.name, style: p.style, kind: "box" }])).values()];
    const rows = this.legendRows(this.rows.some((r) => r.parts.length > 1) ? named : [], width - 20);
    parts.push(...this.legendParts(rows, 8, box.bottom + 50));
    this.place(width, box.bottom + (rows.length > 0 ? 42 + 16 * rows.length : 38), parts);
  }

  bar(r, y, height, xOf, thin, labels) {
    const parts = [], thick = height - (thin ? 1 : 7);
    if (!thin) parts.push(svgNode("text", { class: "value", x: labels + 8, y: y + 14, "text-anchor": "end" }, fitted(r.label, labels)));
    let sum = 0;
    for (const p of r.parts) {
      if (p.value <= 0) continue;
      const rect = svgNode("rect", { x: xOf(sum), y: y + 2, width: Math.max(0.5, xOf(sum + p.value) - xOf(sum)), height: thick, class: `f${p.style % kColours}`,
                                     "data-value": p.value });
      this.pointOut(rect, () => [[`${r.label}${r.parts.length > 1 ? `, ${p.name}` : ""}`, this.format(p.value)], ...(r.parts.length > 1 ? [["together", this.format(this.total(r))]] : [])]);
      parts.push(rect);
      sum += p.value;
    }
    if (r.mark !== undefined) parts.push(svgNode("line", { class: "chosen", x1: xOf(r.mark), x2: xOf(r.mark), y1: y + 1, y2: y + 3 + thick }));
    if (!thin) parts.push(svgNode("text", { class: "value", x: xOf(Math.max(sum, r.mark ?? 0)) + 5, y: y + 14 }, this.format(sum)));
    return parts;
  }

  csv() {
    const marks = this.markName ? [this.markName] : [];
    const lines = [csvLine(["name", "part", "value", ...marks])];
    for (const r of this.rows) for (const p of r.parts) lines.push(csvLine([r.label, p.name, p.value, ...(marks.length > 0 ? [r.mark] : [])]));
    return lines.join("\n") + "\n";
  }
}

// ---- memory
const peakOf = (run) => Math.max(...run.memory.ranks.map((r) => r.total));
const memoryTitle = "peak memory (bytes, decimal units)";

// The classes reach their peaks at different times. So each class has its own bar, and the total is a separate number
// of the run.
const memoryOfRun = (host, run, label) => {
  const { ranks, classes } = run.memory;
  if (ranks.length > 1)
    new BarChart(host, `memory ranks ${run.name}`, `Peak memory of each rank, ${label}`, memoryTitle,
                 ranks.map((r) => ({ label: `rank ${r.rank}`, parts: [{ name: "all classes together", value: r.total, style: 0 }] })), shownBytes);
  const most = (k) => Math.max(...ranks.map((r) => r.bytes[k]));
  const rows = classes.map((name, k) => ({ label: name, parts: [{ name, value: most(k), style: 5 }] })).filter((r) => r.parts[0].value > 0);
  const chart = new BarChart(host, `memory classes ${run.name}`, `Peak memory by class, ${label}`, memoryTitle,
                             [{ label: "all together", parts: [{ name: "all together", value: peakOf(run), style: 0 }] },
                              ...rows.sort((a, b) => b.parts[0].value - a.parts[0].value)], shownBytes);
  chart.say(`${ranks.length > 1 ? "The highest of any rank. " : ""}The bars add up to more than the total, because the peaks differ in time.`);
};

// ---- traffic
const sentOf = (run) => (run.traffic ?? []).reduce((sum, t) => sum + t.sent, 0);
// The part of these bytes for ranks on other nodes; null if the run has one node.
const sentBetweenNodesOf = (run) => {
  const lines = (run.traffic ?? []).filter((t) => t.sent_between_nodes !== undefined);
  return lines.length > 0 ? lines.reduce((sum, t) => sum + t.sent_between_nodes, 0) : null;
};
const trafficTitle = "sent by a rank (bytes per step, mean of ranks)";

const trafficOfRun = (host, run, label) => {
  const lines = run.traffic.filter((t) => t.sent > 0);
  const collectives = [...new Set(lines.map((t) => t.collective))], groups = [...new Set(lines.map((t) => t.group))];
  new BarChart(host, `traffic ${run.name}`, `Bytes sent, ${label}`, trafficTitle, groups.map((group) => ({
    label: group,
    parts: collectives.map((c, k) => ({ name: c, style: k, value: lines.filter((t) => t.group === group && t.collective === c).reduce((sum, t) => sum + t.sent, 0) })),
  })), shownBytes);
};

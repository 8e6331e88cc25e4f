// Stacked bars, a heat map and parallel axes.

const colorOf = (i) => `var(--c${i % 8})`;

const legend = (names) =>
  node("div", { class: "legend" }, ...names.map((name, i) => {
    const swatch = node("span", { class: "swatch" });
    swatch.style.background = colorOf(i);
    return node("span", {}, swatch, name);
  }));

// `bars`: {name, values, note}; a value for each of `classes`.
const stackedBars = (host, title, classes, bars, tip) => {
  const total = (bar) => bar.values.reduce((a, b) => a + b, 0);
  const most = Math.max(...bars.map(total), 1);
  const thin = bars.length > 24;
  const row = thin ? 5 : 22, left = thin ? 8 : 96, width = 420;
  const svg = svgNode("svg", { role: "img", "aria-label": title, viewBox: `0 0 ${width} ${bars.length * row + 18}` });
  const xOf = scaled(0, most, left, width - 70, false);
  bars.forEach((bar, i) => {
    const y = i * row;
    if (!thin) svg.append(svgNode("text", { x: left - 5, y: y + 14, "text-anchor": "end" }, bar.name));
    let sum = 0;
    bar.values.forEach((value, k) => {
      if (value <= 0) return;
      const rect = svgNode("rect", { x: xOf(sum), y: y + 1, width: Math.max(0.5, xOf(sum + value) - xOf(sum)), height: row - (thin ? 1 : 6),
                                     style: `fill:${colorOf(k)}` });
      rect.addEventListener("pointermove", (event) => tip(event, [[`${bar.name}, ${classes[k]}`, shownBytes(value)], ["in all", shownBytes(total(bar))]]));
      rect.addEventListener("pointerleave", () => tip(null));
      svg.append(rect);
      sum += value;
    });
    if (!thin) svg.append(svgNode("text", { x: xOf(sum) + 4, y: y + 14 }, shownBytes(sum)));
  });
  for (const v of ticks(0, most, 3))
    svg.append(svgNode("text", { x: xOf(v), y: bars.length * row + 13, "text-anchor": "middle" }, shownBytes(v)));
  const heading = node("h3", {}, title);
  if (thin) heading.append(node("span", {}, `${bars.length} ranks, most ${shownBytes(most)}`));
  host.append(node("div", { class: "card" }, heading, svg, legend(classes)));
};

// Between two colours of the theme, 0 the best.
const heatColor = (share) => `color-mix(in srgb, var(--c5) ${Math.round(60 * (1 - share))}%, var(--panel))`;

// Means over the axes that are not shown. Marks the best cell.
const heatMap = (host, sweep, across, down) => {
  const column = sweep.axes.findIndex((a) => a.name === across), row = sweep.axes.findIndex((a) => a.name === down);
  const cells = new Map();
  for (const point of sweep.points) {
    const key = `${row < 0 ? "" : point.place[row]}\u0000${point.place[column]}`;
    const cell = cells.get(key) || { values: [], outcomes: [] };
    if (point.value !== null) cell.values.push(point.value); else cell.outcomes.push(point.outcome);
    cells.set(key, cell);
  }
  const mean = (c) => c.values.reduce((a, b) => a + b, 0) / c.values.length;
  const means = [...cells.values()].filter((c) => c.values.length > 0).map(mean);
  const low = Math.min(...means), high = Math.max(...means), best = sweep.lower ? low : high;
  const table = node("table");
  table.append(node("tr", {}, node("th", {}, row < 0 ? "" : `${down} \\ ${across}`), ...sweep.axes[column].values.map((v) => node("th", {}, v))));
  for (const v of row < 0 ? [""] : sweep.axes[row].values) {
    const line = node("tr", {}, node("th", {}, row < 0 ? across : v));
    for (const c of sweep.axes[column].values) {
      const cell = cells.get(`${v}\u0000${c}`), td = node("td");
      if (cell && cell.values.length > 0) {
        const value = mean(cell), share = high > low ? Math.abs(value - best) / (high - low) : 0;
        td.textContent = shown(value);
        td.style.background = heatColor(share);
        td.title = `${cell.values.length} of ${cell.values.length + cell.outcomes.length} points`;
        if (value === best) td.className = "best";
      } else {
        td.textContent = cell ? [...new Set(cell.outcomes)].join(", ") : "";
      }
      line.append(td);
    }
    table.append(line);
  }
  host.replaceChildren(table);
};

// A line a point over all axes and the metric; `picked(i)` when the pointer is on one.
const parallelAxes = (host, sweep, tip) => {
  const width = Math.max(300, host.clientWidth || 600), height = 260;
  const svg = svgNode("svg", { role: "img", "aria-label": "every point of the sweep", viewBox: `0 0 ${width} ${height}`, height });
  const values = sweep.points.map((p) => p.value).filter((v) => v !== null);
  const low = Math.min(...values), high = Math.max(...values);
  const xOf = (i) => 50 + (i * (width - 120)) / Math.max(1, sweep.axes.length);
  const yOfMetric = scaled(low, high, sweep.lower ? 30 : height - 24, sweep.lower ? height - 24 : 30, false);
  const yOf = (axis, value) => 30 + ((axis.values.indexOf(value) + 0.5) * (height - 54)) / axis.values.length;
  const labels = [];  // above the lines
  sweep.axes.forEach((axis, i) => {
    svg.append(svgNode("line", { class: "axis", x1: xOf(i), x2: xOf(i), y1: 26, y2: height - 20 }),
               svgNode("text", { x: xOf(i), y: 14, "text-anchor": "middle" }, axis.name));
    for (const v of axis.values)
      labels.push(svgNode("text", { class: "label", x: xOf(i) - 5, y: yOf(axis, v) + 4, "text-anchor": "end" }, v));
  });
  const last = sweep.axes.length;
  svg.append(svgNode("line", { class: "axis", x1: xOf(last), x2: xOf(last), y1: 26, y2: height - 20 }),
             svgNode("text", { x: xOf(last), y: 14, "text-anchor": "middle" }, sweep.metric));
  for (const v of values.length > 0 ? ticks(low, high, 5) : [])
    svg.append(svgNode("text", { x: xOf(last) + 6, y: yOfMetric(v) + 4 }, shown(v)));
  for (const point of sweep.points) {
    if (point.value === null) continue;
    const d = sweep.axes.map((axis, i) => `${i ? "L" : "M"}${xOf(i)} ${yOf(axis, point.place[i])}`).join("") + `L${xOf(last)} ${yOfMetric(point.value)}`;
    const share = high > low ? Math.abs(point.value - (sweep.lower ? low : high)) / (high - low) : 0;
    const path = svgNode("path", { d, class: "curve", style: `stroke:color-mix(in srgb, var(--c0) ${Math.round(100 - 75 * share)}%, var(--line))` });
    path.addEventListener("pointermove", (event) => {
      path.style.strokeWidth = "3.5";
      tip(event, [...sweep.axes.map((a, i) => [a.name, point.place[i]]), [sweep.metric, shown(point.value)]]);
    });
    path.addEventListener("pointerleave", () => {
      path.style.strokeWidth = "";
      tip(null);
    });
    svg.append(path);
  }
  svg.append(...labels);
  host.replaceChildren(svg);
};

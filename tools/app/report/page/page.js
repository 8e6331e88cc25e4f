// The page: what is shown, the controls, and the state that is kept in the link (#from=..&to=..&at=..&theme=dark).

const axisTitles = { step: "step (updates)", tokens: `${tokenUnit}s seen`, epoch: "epochs (passes over the data)", hours: "time in training steps" };
const view = {
  axis: "step", from: 0, to: 1, zoom: null, scale: "auto", logX: false, smooth: 0, at: null, unit: "ppl", seeds: hasSeeds,
  hidden: new Set(), filtered: new Set(), shows: (run) => !view.hidden.has(run) && !view.filtered.has(run),
};
let charts = [];

// ---- the label at the mouse pointer
const tip = (event, rows) => {
  const box = byId("tip");
  box.hidden = !event;
  if (!event) return;
  box.replaceChildren(...rows.map(([name, value, style]) => {
    const label = node("span", {}, name);
    if (style !== undefined) label.prepend(node("span", { class: "swatch", style: `background:var(--c${style % kColours})` }));
    return node("div", {}, label, node("span", {}, value));
  }));
  const left = event.clientX + 14 + box.offsetWidth > innerWidth ? event.clientX - 14 - box.offsetWidth : event.clientX + 14;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 4))}px`;
};

// ---- the link
const digits = (value) => String(Number(value.toPrecision(6)));
const keepInLink = () => {
  const parts = new URLSearchParams();
  if (view.zoom) parts.set("from", digits(view.zoom[0])), parts.set("to", digits(view.zoom[1]));
  if (view.axis !== "step") parts.set("axis", view.axis);
  if (view.smooth > 0) parts.set("smooth", view.smooth);
  if (view.scale !== "auto") parts.set("log", view.scale === "log" ? "1" : "0");
  if (view.logX) parts.set("logx", "1");
  if (view.unit !== "ppl") parts.set("unit", view.unit);
  if (hasSeeds && !view.seeds) parts.set("seeds", "0");
  const theme = document.documentElement.dataset.chosen;
  if (theme) parts.set("theme", theme);
  history.replaceState(null, "", `#${parts}`);
};

const readLink = () => {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (key) => (parts.has(key) && Number.isFinite(Number(parts.get(key))) ? Number(parts.get(key)) : null);
  if (Object.hasOwn(axisTitles, parts.get("axis") ?? "")) view.axis = parts.get("axis");
  if (number("from") !== null && number("to") > number("from")) view.zoom = [number("from"), number("to")];
  view.smooth = Math.max(0, Math.min(0.98, number("smooth") || 0));
  view.scale = { 1: "log", 0: "linear" }[parts.get("log")] ?? "auto";
  view.logX = parts.get("logx") === "1";
  if (Object.hasOwn(lossUnits, parts.get("unit") ?? "")) view.unit = parts.get("unit");
  if (parts.get("seeds") === "0") view.seeds = false;
  view.at = number("at");
  if (["light", "dark"].includes(parts.get("theme"))) document.documentElement.dataset.chosen = parts.get("theme");
};

// ---- light and dark
const applyTheme = () => {
  const root = document.documentElement;
  const theme = root.dataset.chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
};

// ---- curves
// Hours are shown in a unit that fits the longest run.
const longest = Math.max(0, ...data.runs.map((r) => hoursOf(r) ?? 0));
const [timeFactor, timeUnit] = longest < 0.05 ? [3600, "s"] : longest < 2 ? [60, "min"] : [1, "h"];

// Converts a step to the chosen axis, with linear interpolation between the clock's points.
const onAxis = (run, step) => {
  const clock = run.clock, values = clock[view.axis], factor = view.axis === "hours" ? timeFactor : 1;
  if (view.axis === "step" || values.length === 0) return step;
  let i = nearest(clock.step, step);
  if (clock.step[i] === step) return factor * values[i];
  if (clock.step[i] > step) --i;
  const [s0, v0] = i < 0 ? [0, 0] : [clock.step[i], values[i]];
  if (i + 1 >= clock.step.length) return factor * (s0 > 0 ? (v0 * step) / s0 : v0);
  return factor * (v0 + ((values[i + 1] - v0) * (step - s0)) / (clock.step[i + 1] - s0));
};
const clockAt = (run, step) => onAxis(data.runs[run], step);

const pointing = {
  hover(x, chart, event, dragged) {
    for (const c of charts) if (c.layer) c.point(x, c === chart ? dragged : undefined);
    const values = chart.read(x);
    tip(event, [[view.axisTitle, shown(values.length > 0 ? values[0].x : x)], ...values.slice(0, 14).map((v) => [v.name, chart.format.value(v.y), v.style])]);
  },
  leave() {
    for (const c of charts) if (c.layer) c.point(null);
    tip(null);
  },
  zoom(from, to) {
    view.zoom = [from, to];
    update();
  },
  whole() {
    view.zoom = null;
    update();
  },
};

const buildCurves = () => {
  const names = new Map();
  data.runs.forEach((run, i) => {
    for (const curve of run.curves ?? []) {  // if there are many runs, only the best have curves
      const name = curve.key in lossUnits ? `${curve.split} loss` : `${curve.split} ${curve.key}`;
      if (!names.has(name)) names.set(name, {});
      (names.get(name)[curve.key] ??= []).push({ run: i, split: curve.split, steps: curve.x, values: curve.y });
    }
  });
  if (data.runs.length === 1 && !sampledLoss && names.has("train loss") && names.has("valid loss")) {
    const both = {};
    for (const key of Object.keys(lossUnits))
      if (names.get("valid loss")[key] && names.get("train loss")[key]) both[key] = [...names.get("valid loss")[key], ...names.get("train loss")[key]];
    if (Object.keys(both).length > 0) for (const name of ["train loss", "valid loss"]) names.delete(name);
    if (Object.keys(both).length > 0) names.set("loss", both);
  }
  // A curve needs two values. Those that have been recorded once are named with their value.
  const pointsOf = (name) => Math.max(...Object.values(names.get(name)).flat().map((s) => s.values.filter((v) => v !== null).length));
  const once = [...names.keys()].filter((name) => pointsOf(name) < 2);
  const valueOf = (name) => {
    const [key, series] = Object.entries(names.get(name)).find(([k]) => k === view.unit) ?? Object.entries(names.get(name))[0];
    const value = series.map((s) => s.values.find((v) => v !== null)).find((v) => v !== undefined);
    return `${described(name.split(" ")[0], key).title} ${formats(key).value(value ?? null)}`;
  };
  byId("once").textContent = once.length > 0 ? `Recorded once, so without a curve: ${once.map(data.runs.length === 1 ? valueOf : (name) => name).join(", ")}.` : "";
  for (const name of once) names.delete(name);
  const order = [...names.keys()].sort((a, b) => importance(a) - importance(b) || a.localeCompare(b));
  const zero = (name) => Object.values(names.get(name)).every((series) => series.every((s) => s.values.every((v) => v === 0)));
  const folded = order.filter(zero);
  charts = order.map((name) => new LineChart(byId(folded.includes(name) ? "zero-curves" : "curves"), name, names.get(name), pointing));
  const short = data.runs.map((r) => r.short_window).find((w) => w);
  byId("short-window").textContent = short ? ` The last record of training covers ${short.steps} steps, the others ${short.usual}, so that means over its steps vary more: they end with a thin line.` : "";
  byId("zero").hidden = folded.length === 0;
  byId("zero-names").textContent = `Zero throughout: ${folded.map((n) => n.replace(/^train /, "")).join(", ")}`;
  byId("zero").addEventListener("toggle", () => update());
  byId("unit-label").hidden = !order.some((name) => /(^| )loss$/.test(name));
};

// Sets the range of all charts on the horizontal axis.
const setRange = () => {
  let low = Infinity, high = -Infinity;
  for (const chart of charts)
    for (const series of Object.values(chart.keys))
      for (const s of series) if (view.shows(s.run)) for (const step of [s.steps[0], s.steps[s.steps.length - 1]]) low = Math.min(low, clockAt(s.run, step)), high = Math.max(high, clockAt(s.run, step));
  if (low >= high) [low, high] = Number.isFinite(low) ? [low - 0.5, low + 0.5] : [0, 1];
  [view.from, view.to] = view.zoom || [low, high];
  if (view.logX && view.from <= 0) view.from = Math.min(view.to / 10, Math.max(low, view.to / 1e6));
};

const update = () => {
  view.axisTitle = view.axis === "hours" ? `${axisTitles.hours} (${timeUnit})` : axisTitles[view.axis];
  setRange();
  byId("whole").disabled = !view.zoom;
  for (const swatch of document.querySelectorAll("[data-run]")) {
    const style = styleOf(Number(swatch.dataset.run), view), dash = dashOf(style);
    const line = svgNode("line", { x1: 0, x2: 22, y1: 6, y2: 6, class: `curve s${style % kColours}`, "stroke-dasharray": dash || "none" }), picture = svgNode("svg", { width: 22, height: 12 });
    picture.append(line);
    swatch.replaceChildren(picture);
  }
  for (const figure of figures) {
    if (figure instanceof LineChart) {
      figure.draw(view, clockAt);
      figure.point(view.at);
    } else {
      figure.draw();
    }
  }
  keepInLink();
};

// ---- memory and traffic: first a comparison of all runs, then each run
const buildBars = () => {
  const several = data.runs.length > 1;
  const section = (id, has, overview, each) => {
    const runs = data.runs.map((run, i) => [run, i]).filter(([run]) => has(run));
    byId(`${id}-section`).hidden = runs.length === 0;
    if (runs.length === 0) return;
    if (several) overview(byId(id), runs);
    const few = runs.length <= 3;
    const grid = few ? byId(id) : node("div", { class: "grid" });
    if (!few) {
      const box = node("details", {}, node("summary", {}, `Each of ${runs.length} runs`), grid);
      let built = false;
      box.addEventListener("toggle", () => {
        if (!built) for (const [run, i] of runs) each(grid, run, runLabels[i]);
        built = true;
        update();
      });
      byId(`${id}-section`).append(box);
    } else {
      for (const [run, i] of runs) each(grid, run, runLabels[i]);
    }
  };
  section("memory", (r) => r.memory?.ranks.length > 0, (host, runs) =>
    new BarChart(host, "memory runs", "Peak memory, the highest of any rank", memoryTitle,
                 runs.map(([run, i]) => ({ label: runLabels[i], parts: [{ name: "all classes together", value: peakOf(run), style: 0 }] })), shownBytes), memoryOfRun);
  section("traffic", (r) => sentOf(r) > 0, (host, runs) =>
    new BarChart(host, "traffic runs", "Bytes sent", trafficTitle,
                 runs.map(([run, i]) => ({ label: runLabels[i], parts: [{ name: "all groups", value: sentOf(run), style: 0 }] })), shownBytes), trafficOfRun);
};

const buildSweep = () => {
  const sweep = data.sweep, varies = sweep && sweep.axes.length > 0;
  byId("sweep-section").hidden = !varies;
  if (!varies) return;
  const names = sweep.axes.map((a) => a.name), own = names.filter((name) => name !== "seed");
  const map = own.length > 1 ? new HeatMap(byId("heat"), sweep) : null;
  if (!map) valuesOfAxis(byId("points"), sweep, own[0] ?? "seed");
  new ParallelAxes(byId("points"), sweep);
  importanceChart(byId("points"), sweep);
  const select = (chosen, change) => {
    const box = node("select", {}, ...names.map((n) => node("option", {}, n)));
    box.value = chosen;
    box.addEventListener("change", () => (change(box.value), map.draw()));
    return box;
  };
  if (!map) return;
  byId("heat-controls").append(node("label", {}, "down ", select(map.down, (v) => (map.down = v))), node("label", {}, "across ", select(map.across, (v) => (map.across = v))));
};

// ---- building the page
readLink();
document.head.append(node("style", {}, figureStyle((name) => `var(${name})`).join("\n")));
applyTheme();
byId("title").textContent = data.title;
const first = data.runs.find((r) => r.start)?.start;
byId("subtitle").textContent = `${data.runs.length === 1 ? "1 run" : `${data.runs.length} runs`} · lmx ${first?.lmx?.version ?? ""} · ${first?.time ?? ""}`;
byId("left-out").textContent = data.left_out;
byId("left-out").hidden = !data.left_out;
for (const [key, title] of Object.entries(axisTitles)) byId("axis").append(node("option", { value: key }, title));
for (const [key, unit] of Object.entries(lossUnits)) byId("unit").append(node("option", { value: key }, unit.name));
byId("axis").value = view.axis;
byId("unit").value = view.unit;
byId("smooth").value = view.smooth;
byId("scale").value = view.scale;
byId("logx").checked = view.logX;
byId("seeds").checked = view.seeds;
byId("seeds-label").hidden = !hasSeeds;
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  applyTheme();
  keepInLink();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
const chosen = (id, event, change) => byId(id).addEventListener(event, (e) => (change(e.target), update()));
chosen("axis", "change", (box) => ((view.axis = box.value), (view.zoom = null)));
chosen("unit", "change", (box) => (view.unit = box.value));
chosen("scale", "change", (box) => (view.scale = box.value));
chosen("logx", "change", (box) => (view.logX = box.checked));
chosen("seeds", "change", (box) => (view.seeds = box.checked));
chosen("smooth", "input", (box) => (view.smooth = Number(box.value)));
byId("whole").addEventListener("click", () => ((view.zoom = null), update()));
byId("find").addEventListener("input", (event) => {
  const word = event.target.value.toLowerCase();
  for (const chart of charts) chart.card.hidden = !`${chart.name} ${chart.title}`.toLowerCase().includes(word);
});
buildHeadline();
buildSweep();
buildCurves();
byId("curves-section").hidden = charts.length === 0 && byId("once").textContent === "";
buildBars();
buildRuns();
buildSamples();
buildConfig();
buildProvenance();
update();
let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(update, 100);
});

// The page: what is shown, how it is chosen, and the state that a link keeps (#from=..&to=..&at=..&theme=dark).

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const dashes = ["none", "6 3", "2 3", "8 3 2 3"];
const view = { axis: "step", from: 0, to: 1, zoom: null, log: false, smooth: 0, at: null, hidden: new Set() };
const axisTitles = { step: "step", tokens: "tokens", epoch: "epoch", hours: "hours of training" };
let charts = [];

const runColor = (i) => colorOf(i);
const runDash = (i) => dashes[Math.floor(i / 8) % dashes.length];

// ---- the mouse's label
const tip = (event, rows) => {
  const box = byId("tip");
  box.hidden = !event;
  if (!event) return;
  box.replaceChildren(...rows.map(([name, value, color]) => {
    const label = node("span", {}, name);
    if (color) {
      const swatch = node("span", { class: "swatch" });
      swatch.style.background = color;
      label.prepend(swatch);
    }
    return node("div", {}, label, node("span", {}, value));
  }));
  const left = event.clientX + 14 + box.offsetWidth > innerWidth ? event.clientX - 14 - box.offsetWidth : event.clientX + 14;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 4)}px`;
};

// ---- the link
const keepInLink = () => {
  const parts = new URLSearchParams();
  if (view.zoom) parts.set("from", shown(view.zoom[0])), parts.set("to", shown(view.zoom[1]));
  if (view.axis !== "step") parts.set("axis", view.axis);
  if (view.smooth > 0) parts.set("smooth", view.smooth);
  if (view.log) parts.set("log", "1");
  const theme = document.documentElement.dataset.chosen;
  if (theme) parts.set("theme", theme);
  history.replaceState(null, "", `#${parts}`);
};

const readLink = () => {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (key) => (parts.has(key) && Number.isFinite(Number(parts.get(key))) ? Number(parts.get(key)) : null);
  if (parts.get("axis") in axisTitles) view.axis = parts.get("axis");
  if (number("from") !== null && number("to") > number("from")) view.zoom = [number("from"), number("to")];
  view.smooth = Math.min(0.98, number("smooth") || 0);
  view.log = parts.get("log") === "1";
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
// A step on the chosen axis: between the clock's points in proportion.
const onAxis = (run, step) => {
  const clock = run.clock, values = clock[view.axis];
  if (view.axis === "step" || values.length === 0) return step;
  let i = nearest(clock.step, step);
  if (clock.step[i] === step) return values[i];
  if (clock.step[i] > step) --i;
  const [s0, v0] = i < 0 ? [0, 0] : [clock.step[i], values[i]];
  if (i + 1 >= clock.step.length) return s0 > 0 ? (v0 * step) / s0 : v0;
  return v0 + ((values[i + 1] - v0) * (step - s0)) / (clock.step[i + 1] - s0);
};

// Those that people look for first.
const importance = (key) => {
  const first = ["valid ppl", "valid nll_nat", "train ppl", "train nll_nat", "train lr", "train grad_norm"];
  return first.includes(key) ? first.indexOf(key) : first.length;
};

const buildCurves = () => {
  const names = new Map();
  data.runs.forEach((run, i) => {
    for (const curve of run.curves ?? []) {  // of many runs only the best have them
      const name = `${curve.split} ${curve.key}`;
      if (!names.has(name)) names.set(name, []);
      names.get(name).push({ name: run.name, run: i, color: runColor(i), dash: runDash(i), steps: curve.x, x: curve.x, y: curve.y });
    }
  });
  const order = [...names.keys()].sort((a, b) => importance(a) - importance(b) || a.localeCompare(b));
  charts = order.map((name) => new LineChart(byId("curves"), name, names.get(name), {
    hover(x, chart, event, dragged) {
      for (const c of charts) c.point(x, c === chart ? dragged : undefined);
      const values = chart.read(x);
      tip(event, [[axisTitles[view.axis], shown(values.length ? values[0].x : x)],
                  ...values.slice(0, 14).map((v) => [v.name, chart.value(v.y), v.color])]);
    },
    leave() {
      for (const c of charts) c.point(null);
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
  }));
};

const update = () => {
  let low = Infinity, high = -Infinity;
  for (const chart of charts)
    for (const s of chart.series) {
      s.x = s.steps.map((step) => onAxis(data.runs[s.run], step));
      if (!view.hidden.has(s.run)) for (const x of s.x) low = Math.min(low, x), high = Math.max(high, x);
    }
  if (low >= high) [low, high] = Number.isFinite(low) ? [low - 0.5, low + 0.5] : [0, 1];
  [view.from, view.to] = view.zoom || [low, high];
  byId("whole").disabled = !view.zoom;
  for (const chart of charts) {
    chart.draw(view);
    chart.point(view.at);
  }
  keepInLink();
};

// ---- tables
const buildRuns = () => {
  const metrics = [];
  for (const run of data.runs) for (const [name] of run.results) if (!metrics.includes(name)) metrics.push(name);
  const several = data.runs.length > 1;
  const table = byId("runs");
  table.append(node("tr", {}, node("th", {}, "run"), ...["ranks", "step", ...metrics].map((m) => node("th", { class: "number" }, m))));
  data.runs.forEach((run, i) => {
    const box = node("input", { type: "checkbox", checked: "", "aria-label": `show ${run.name}` });
    box.addEventListener("change", () => {
      if (box.checked) view.hidden.delete(i); else view.hidden.add(i);
      update();
    });
    const swatch = node("span", { class: "swatch" });
    swatch.style.background = runColor(i);
    const name = node("td", {}, ...(several ? [box, " "] : []), swatch, run.name);
    const value = (m) => {
      const found = run.results.find(([n]) => n === m);
      return node("td", { class: "number", "data-metric": m }, found ? found[1] : "–");
    };
    table.append(node("tr", { "data-run": run.name }, name, node("td", { class: "number" }, String(run.ranks)),
                      node("td", { class: "number" }, String(run.step)), ...metrics.map(value)));
  });
};

const buildConfig = () => {
  const table = byId("config"), several = data.runs.length > 1;
  byId("differ-label").hidden = !several;
  const rows = data.config.map(({ key, values }) => {
    const differs = values.length > 1;
    const cells = differs ? values.map((v) => node("td", {}, v)) : [node("td", several ? { colspan: data.runs.length } : {}, values[0])];
    const row = node("tr", differs ? { class: "differs" } : {}, node("th", {}, key), ...cells);
    return { row, differs, text: `${key} ${values.join(" ")}`.toLowerCase() };
  });
  if (several) table.append(node("tr", {}, node("th", {}, "key"), ...data.runs.map((r) => node("th", {}, r.name))));
  table.append(...rows.map((r) => r.row));
  const choose = () => {
    const word = byId("config-find").value.toLowerCase();
    for (const r of rows) r.row.hidden = (byId("differ").checked && !r.differs) || !r.text.includes(word);
  };
  byId("config-find").addEventListener("input", choose);
  byId("differ").addEventListener("change", choose);
};

const buildProvenance = () => {
  for (const run of data.runs.filter((r) => r.start)) {
    const text = node("pre", {}, JSON.stringify(run.start, null, 1));
    const head = node("summary", {}, `${run.directory}: ${run.starts} ${run.starts === 1 ? "start" : "starts"}`);
    const box = node("details", data.runs.length === 1 ? { open: "" } : {}, head, text);
    byId("provenance").append(box);
  }
};

const buildBars = () => {
  const some = (id, what) => (byId(`${id}-section`).hidden = !data.runs.some(what));
  some("memory", (r) => r.memory?.ranks.length > 0);
  some("traffic", (r) => r.traffic?.some((t) => t.sent > 0));
  for (const run of data.runs.filter((r) => r.memory)) {
    if (run.memory.ranks.length > 0)
      stackedBars(byId("memory"), run.name, run.memory.classes,
                  run.memory.ranks.map((r) => ({ name: `rank ${r.rank}`, values: r.bytes })), tip);
    const lines = run.traffic.filter((t) => t.sent > 0);
    if (lines.length === 0) continue;
    const collectives = [...new Set(lines.map((t) => t.collective))], groups = [...new Set(lines.map((t) => t.group))];
    stackedBars(byId("traffic"), run.name, collectives, groups.map((group) => ({
      name: group,
      values: collectives.map((c) => lines.filter((t) => t.group === group && t.collective === c).reduce((sum, t) => sum + t.sent, 0)),
    })), tip);
  }
};

const buildSweep = () => {
  const sweep = data.sweep;
  const varies = sweep && sweep.axes.length > 0;
  byId("sweep-section").hidden = !varies;
  if (!varies) return;
  const names = sweep.axes.map((a) => a.name);
  const select = (chosen) => {
    const box = node("select", {}, ...names.map((n) => node("option", {}, n)));
    box.value = chosen;
    return box;
  };
  const across = select(names[names.length > 1 ? 1 : 0]), down = select(names[0]);
  const draw = () => heatMap(byId("heat"), sweep, across.value, names.length > 1 && down.value !== across.value ? down.value : "");
  across.addEventListener("change", draw);
  down.addEventListener("change", draw);
  byId("heat-controls").append(`${sweep.metric}, mean of points; `, node("label", {}, "across ", across));
  if (names.length > 1) byId("heat-controls").append(node("label", {}, "down ", down));
  draw();
};

// ---- all of it
readLink();
applyTheme();
byId("title").textContent = data.title;
const first = data.runs.find((r) => r.start)?.start;
byId("subtitle").textContent = `${data.runs.length === 1 ? "1 run" : `${data.runs.length} runs`} · lmx ${first?.lmx?.version ?? ""} · ${first?.time ?? ""}`;
byId("left-out").textContent = data.left_out;
byId("left-out").hidden = !data.left_out;
for (const [key, title] of Object.entries(axisTitles)) byId("axis").append(node("option", { value: key }, title));
byId("axis").value = view.axis;
byId("smooth").value = view.smooth;
byId("log").checked = view.log;
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  applyTheme();
  keepInLink();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
byId("axis").addEventListener("change", (event) => ((view.axis = event.target.value), (view.zoom = null), update()));
byId("smooth").addEventListener("input", (event) => ((view.smooth = Number(event.target.value)), update()));
byId("log").addEventListener("change", (event) => ((view.log = event.target.checked), update()));
byId("whole").addEventListener("click", () => ((view.zoom = null), update()));
byId("find").addEventListener("input", (event) => {
  for (const chart of charts) chart.card.hidden = !chart.card.dataset.curve.toLowerCase().includes(event.target.value.toLowerCase());
});
buildRuns();
buildSweep();
buildCurves();
byId("curves-section").hidden = charts.length === 0;
buildBars();
buildConfig();
buildProvenance();
update();
let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    if (data.sweep?.axes.length) parallelAxes(byId("parallel"), data.sweep, tip);
    update();
  }, 100);
});
if (data.sweep?.axes.length) parallelAxes(byId("parallel"), data.sweep, tip);

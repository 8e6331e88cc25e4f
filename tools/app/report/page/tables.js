// The headline, the table of runs, configurations and provenance.

const resultOf = (run, name) => run.results.find(([n]) => n === name);
const numberOf = (run, name) => (resultOf(run, name) ? Number(resultOf(run, name)[1]) : null);
const hoursOf = (run) => (run.clock && run.clock.hours.length > 0 ? run.clock.hours[run.clock.hours.length - 1] : null);
const speedOf = (run) => run.results.find(([n]) => /s_per_s$/.test(n));

// Returns the seconds from the start to the end of a run that was started once. Both times are rounded to seconds.
const wallOf = (run) => {
  const parsed = (text) => Date.parse(String(text).replace(/([+-]\d\d)(\d\d)$/, "$1:$2"));
  if (run.starts !== 1 || !run.ended || !run.start?.time) return null;
  const seconds = (parsed(run.ended) - parsed(run.start.time)) / 1000;
  return seconds >= 10 ? seconds : null;
};

// ---- the headline
const metricTitle = (name) => name.replace(/^best valid ppl$/, `best validation perplexity (per ${tokenUnit})`).replace(/^valid ppl$/, `validation perplexity (per ${tokenUnit})`);

const buildHeadline = () => {
  const c = data.comparison, best = data.runs[c.best_run], group = c.groups[c.best_group];
  const several = data.runs.length > 1;
  if (!best) {
    const failed = data.runs.find((_, i) => diverged(i));
    byId("headline-value").textContent = failed && !several ? "diverged" : "–";
    byId("headline-value").className = failed ? "bad" : "";
    byId("headline-name").textContent = failed && !several ? failed.reason : `no result: ${failed ? "every run diverged or" : "no run"} has ${failed ? "not " : ""}been validated`;
    if (!several) buildTiles(data.runs[0], several);
    return;
  }
  const seeds = group.runs.filter((r) => c.values[r] !== null).length, own = shown(c.values[c.best_run]);
  byId("headline-value").textContent = seeds > 1 ? `${shown(group.mean)} ± ${shown(Number(group.half_interval.toPrecision(2)))}` : own;
  byId("headline-name").textContent = `${metricTitle(c.metric)}, ${c.lower ? "lower" : "higher"} is better`;
  const notes = [];
  if (seeds > 1) notes.push(`mean of ${seeds} seeds of ${groupLabels[c.best_group]} with its 95 % interval; the best seed has ${own}`);
  else if (several) notes.push(`★ ${runLabels[c.best_run]}, the best of ${data.runs.length} runs`);
  const last = resultOf(best, "valid ppl");
  if (c.metric === "best valid ppl") notes.push(`at step ${shown(c.step)}${last && Number(last[2]) > c.step ? `; ${shown(Number(last[1]))} at the end, step ${shown(Number(last[2]))}` : ", the last"}`);
  const own_text = best.start?.data?.valid_true_perplexity;
  if (own_text && /valid ppl$/.test(c.metric)) notes.push(`no model can expect less than ${shown(own_text)}, the perplexity of the text's source on this split`);
  byId("headline-note").textContent = notes.join(" · ");
  buildTiles(best, several);
};

// Shows the costs of the best run: time, memory, bytes.
const buildTiles = (run, several) => {
  const tiles = [...(several ? [["best run", runLabels[data.comparison.best_run]]] : []), ["state", run.state], ["steps", shown(run.step)]];
  const hours = hoursOf(run), wall = wallOf(run), speed = speedOf(run);
  if (hours !== null) tiles.push(["time in training steps", shownSeconds(hours * 3600) + (wall ? `, ${Math.min(100, Math.round((100 * hours * 3600) / wall))} % of the run` : "")]);
  if (speed) tiles.push(["speed", `${shown(Number(speed[1]))} ${speed[0].replace("_per_s", "")} per second`]);
  if (run.comm && run.comm.busy_s > 0) tiles.push(["communication hidden", `${Math.round(100 * (1 - run.comm.exposed_s / run.comm.busy_s))} %`]);
  if (run.memory?.ranks.length > 0) tiles.push([run.ranks > 1 ? "peak memory of a rank" : "peak memory", shownBytes(peakOf(run))]);
  if (sentOf(run) > 0) tiles.push(["sent by a rank and step", shownBytes(sentOf(run))]);
  if (sentBetweenNodesOf(run) !== null) tiles.push(["of these, to other nodes", shownBytes(sentBetweenNodesOf(run))]);
  if (run.start?.parameters) tiles.push(["parameters", shown(run.start.parameters)]);
  for (const [name, value] of tiles) byId("tiles").append(node("div", {}, node("dt", {}, name), node("dd", { "data-tile": name }, value)));
};

// ---- the runs
// Returns columns {name, title, of(run, i), text(value, i), number, best, more}; rows are sorted by the value of `of`.
const runColumns = () => {
  const columns = [{ name: "state", of: (r) => r.state }, { name: "step", number: true, of: (r) => r.step }];
  if (data.sweep) columns.push({ name: data.comparison.metric, number: true, best: true, of: (_, i) => data.comparison.values[i] });
  const results = [];
  for (const run of data.runs) for (const [name] of run.results) if (!results.includes(name)) results.push(name);
  const main = ["best valid ppl", "valid ppl", "train nll_nat", "step_s"];
  for (const name of results) {
    if (data.sweep && name === data.comparison.metric) continue;
    const shownAlways = main.includes(name) || /BLEU$|_per_s$/.test(name);
    columns.push({ name, number: true, more: !shownAlways, best: name === data.comparison.metric, of: (r) => numberOf(r, name) });
  }
  const rows = [...(seedRow ? [seedRow] : []), ...differing.slice(0, 24)];
  for (const [n, row] of rows.entries())
    columns.push({ name: lastWord(row.key), title: row.key, more: n >= 6, of: (_, i) => (row.values[i] !== "" && Number.isFinite(Number(row.values[i])) ? Number(row.values[i]) : row.values[i]), text: (_, i) => spelled(row.values[i]) || "–" });
  columns.push({ name: "ranks", number: true, of: (r) => r.ranks }, { name: "training", number: true, title: "time in training steps", of: hoursOf, text: (v) => shownSeconds(v === null ? null : v * 3600) });
  if (data.runs.some((r) => r.memory?.ranks.length > 0)) columns.push({ name: "peak memory", number: true, of: (r) => (r.memory?.ranks.length > 0 ? peakOf(r) : null), text: shownBytes });
  if (data.runs.some((r) => sentOf(r) > 0)) columns.push({ name: "sent/step", title: "bytes sent by a rank in a step, mean of ranks", number: true, of: (r) => sentOf(r), text: shownBytes });
  if (data.runs.some((r) => sentBetweenNodesOf(r) !== null)) columns.push({ name: "to other nodes/step", title: "bytes sent by a rank to other nodes in a step, mean of ranks", number: true, of: sentBetweenNodesOf, text: (v) => (v === null ? "–" : shownBytes(v)) });
  const strategies = [...new Set(data.runs.flatMap((r) => Object.keys(r.strategy ?? {})))];
  for (const key of strategies) columns.push({ name: key, number: true, more: true, title: "last value of the sync strategy", of: (r) => r.strategy?.[key] ?? null });
  return columns;
};

// Returns the words that the search finds a row by: its texts, and "key=value" of differing keys.
const wordsOf = (run, i) => [runLabels[i], run.directory, run.state, ...[...differing, ...(seedRow ? [seedRow] : [])].flatMap((row) => [`${row.key}=${row.values[i]}`, `${lastWord(row.key)}=${row.values[i]}`])].join("\n").toLowerCase();

const buildRuns = () => {
  const columns = runColumns(), several = data.runs.length > 1, head = node("tr");
  const all = node("input", { type: "checkbox", checked: "", "aria-label": "show all runs" });
  const rows = data.runs.map((run, i) => ({ i, row: runRow(run, i, columns, several), words: wordsOf(run, i), values: [runLabels[i], ...columns.map((c) => c.of(run, i))] }));
  const heads = [{ name: "run" }, ...columns].map((column, k) => sortable(head, column, k, rows, several && k === 0 ? all : null));
  byId("runs").append(node("thead", {}, head), node("tbody", {}, ...rows.map((r) => r.row)));
  all.addEventListener("change", () => {
    for (const { i, row } of rows.filter((r) => !r.row.hidden)) {
      row.querySelector("input").checked = all.checked;
      if (all.checked) view.hidden.delete(i); else view.hidden.add(i);
    }
    update();
  });
  byId("runs-controls").hidden = !several;
  byId("more-label").hidden = !columns.some((c) => c.more);
  byId("more").addEventListener("change", (event) => byId("runs").classList.toggle("all", event.target.checked));
  byId("runs-find").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter((w) => w);
    view.filtered.clear();
    for (const r of rows) {
      r.row.hidden = !words.every((w) => r.words.includes(w));
      if (r.row.hidden) view.filtered.add(r.i);
    }
    byId("runs-count").textContent = words.length > 0 ? `${rows.length - view.filtered.size} of ${rows.length} runs` : "";
    update();
  });
  if (!several) byId("more").checked = byId("runs").classList.toggle("all", true);
  const best = columns.findIndex((c) => c.best);
  if (several && best >= 0) heads[best + 1].sort(data.comparison.lower ? 1 : -1);
};

const runRow = (run, i, columns, several) => {
  const box = node("input", { type: "checkbox", checked: "", "aria-label": `show ${run.name}` });
  box.addEventListener("change", () => {
    if (box.checked) view.hidden.delete(i); else view.hidden.add(i);
    update();
  });
  const name = node("td", { class: "name", title: run.directory }, ...(several ? [box, " ", node("span", { class: "swatch", "data-run": i }), isBest(i) ? "★ " : ""] : []), runLabels[i]);
  return node("tr", { "data-row": i, ...(several && isBest(i) ? { class: "winner" } : {}) }, name, ...columns.map((c) => {
    const value = c.of(run, i);
    const cell = node("td", { "data-metric": c.name, class: `${c.number ? "number" : ""}${c.more ? " more" : ""}` }, c.text ? c.text(value, i) : c.number ? shown(value) : value);
    if (c.name === "state" && run.state === "diverged") cell.className = "bad";
    if (c.name === "state" && run.reason) cell.title = run.reason;
    return cell;
  }));
};

// A heading that sorts by its column: each click reverses the order; rows without a value are last.
const sortable = (head, column, k, rows, before) => {
  const button = node("button", { type: "button", class: "sort", title: `${column.title ?? column.name}: sort` }, column.name);
  const cell = node("th", { class: `${column.number ? "number" : ""}${column.more ? " more" : ""}` }, ...(before ? [before, " "] : []), button);
  const sort = (direction) => {
    for (const other of head.children) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    const empty = (v) => v === null || v === undefined || v === "" || Number.isNaN(v);
    const order = [...rows].sort((a, b) => {
      const [x, y] = [a.values[k], b.values[k]];
      if (empty(x) || empty(y)) return empty(x) - empty(y) || a.i - b.i;
      const compared = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
      return direction * compared || a.i - b.i;
    });
    byId("runs").querySelector("tbody").append(...order.map((r) => r.row));
  };
  button.addEventListener("click", () => sort(cell.getAttribute("aria-sort") === "ascending" ? -1 : 1));
  head.append(cell);
  return { sort };
};

// ---- configuration, samples, provenance
const buildConfig = () => {
  const table = byId("config"), several = data.runs.length > 1;
  if (several) table.append(node("tr", {}, node("th", {}, "key"), ...runLabels.map((label) => node("th", {}, label))));
  const rows = data.config.map(({ key, values }) => {
    const differs = values.length > 1;
    const cells = differs ? values.map((v) => node("td", {}, v)) : [node("td", several ? { colspan: data.runs.length } : {}, values[0])];
    const row = node("tr", differs ? { class: "differs" } : {}, node("th", {}, key), ...cells);
    table.append(row);
    return { row, differs, text: `${key} ${values.join(" ")}`.toLowerCase() };
  });
  byId("differ-label").hidden = !several;
  byId("differ").checked = several;
  const choose = () => {
    const word = byId("config-find").value.toLowerCase();
    for (const r of rows) r.row.hidden = (byId("differ").checked && !r.differs) || !r.text.includes(word);
  };
  byId("config-find").addEventListener("input", choose);
  byId("differ").addEventListener("change", choose);
  choose();
};

const buildSamples = () => {
  const with_text = data.runs.map((run, i) => [run, i]).filter(([run]) => run.samples);
  byId("samples-section").hidden = with_text.length === 0;
  for (const [run, i] of with_text)
    byId("samples").append(node("details", with_text.length === 1 ? { open: "" } : {}, node("summary", {}, runLabels[i]), node("pre", {}, run.samples)));
};

const buildProvenance = () => {
  for (const run of data.runs.filter((r) => r.start)) {
    const text = node("pre", {}, JSON.stringify(run.start, null, 1));
    const head = node("summary", {}, `${run.directory}: ${run.starts} ${run.starts === 1 ? "start" : "starts"}`);
    byId("provenance").append(node("details", data.runs.length === 1 ? { open: "" } : {}, head, text));
  }
};

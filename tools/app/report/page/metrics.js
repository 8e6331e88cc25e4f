// Titles, axes with units and formats of the numbers in the records; names and colours of runs.

// The unit of tokens, such as "word" from words_per_s, which every train record contains.
const tokenUnit = (() => {
  for (const run of data.runs)
    for (const curve of run.curves ?? []) if (/^[a-z]+s_per_s$/.test(curve.key)) return curve.key.replace(/s_per_s$/, "");
  return "token";
})();

const splitTitles = { train: "Training", valid: "Validation", test: "Test" };
// One quantity in three units; the page draws it once.
const lossUnits = {
  ppl: { name: "perplexity", axis: `perplexity (per ${tokenUnit})` },
  nll_nat: { name: "nats", axis: `loss (nats per ${tokenUnit})` },
  nll_bit: { name: "bits", axis: `loss (bits per ${tokenUnit})` },
};
// Whether a run's training loss covers a sample of the words: it is lower than that of a validation, which covers all.
const sampledLoss = data.config.some((row) => row.key === "loss.samples" && row.values.some((v) => Number(v) > 0));
const known = {
  lr: ["Learning rate", "learning rate (no unit)"],
  grad_norm: ["Gradient norm before clipping", "L2 norm (no unit)"],
  skipped: ["Updates left out", "updates (count since the last record)"],
  comm_sent_bytes: ["Sent by rank 0", "sent (bytes per step)"],
  comm_received_bytes: ["Received by rank 0", "received (bytes per step)"],
  comm_sent_between_nodes_bytes: ["Sent by rank 0 to other nodes", "sent (bytes per step)"],
  comm_received_between_nodes_bytes: ["Received by rank 0 from other nodes", "received (bytes per step)"],
  comm_s: ["Communication of rank 0", "time (seconds per step)"],
  comm_exposed_s: ["Communication not hidden behind computation", "time (seconds per step)"],
  step_s: ["Time of a step", "time (seconds per step)"],
  train_s: ["Time in training steps", "time (seconds)"],
  padding: ["Padding", "padding (share of all tokens)"],
  step_spread: ["Slowest rank above the mean", "time (share of the mean)"],
  loss_scale: ["Loss scale", "loss scale (factor)"],
  overflows: ["Updates left out by overflows", "updates (count since the last record)"],
  bpb: ["bits per byte", "loss (bits per byte of text)"],
  bpc: ["bits per character", "loss (bits per character)"],
  BLEU: ["BLEU", "BLEU (0 to 100)"],
  multi_bleu: ["multi-bleu", "BLEU (0 to 100)"],
  multi_bleu_split: ["multi-bleu, compounds split", "BLEU (0 to 100)"],
  averaged: ["Checkpoints in the mean", "checkpoints (count)"],
};
const suffixes = [[/_bytes$/, "bytes"], [/_s$/, "seconds"], [/_nat$/, "nats"], [/_bit$/, "bits"], [/_share$/, "share"]];

// Returns {title, axis} of a quantity; split "" is training and validation together. The split `train` is not named,
// because most numbers of its records exist only there.
const described = (split, key) => {
  if (key in lossUnits) {
    const what = key === "ppl" ? "perplexity" : "loss";
    if (split === "train" && sampledLoss) return { title: `Training ${what} over sampled words, not comparable with validation`, axis: lossUnits[key].axis };
    return { title: split === "" ? `Training and validation ${what}` : `${splitTitles[split] ?? split} ${what}`, axis: lossUnits[key].axis };
  }
  if (/^[a-z]+s_per_s$/.test(key)) return { title: "Speed", axis: `speed (${key.replace("_per_s", "")} per second)` };
  if (known[key]) {
    const [title, axis] = known[key];
    return { title: split === "train" || key === "train_s" ? title : `${splitTitles[split] ?? split}: ${title}`, axis };
  }
  const unit = suffixes.find(([pattern]) => pattern.test(key));
  return { title: split === "train" ? key : `${split} ${key}`, axis: `${key} (${unit ? unit[1] : "unit as recorded"})` };
};

const formats = (key) => {
  if (key.endsWith("_bytes")) return { tick: shownBytes, value: shownBytes };
  return { tick: brief, value: shown };
};

// Orders the quantities: those that people usually want to see come first.
const importance = (name) => {
  const first = ["loss", "valid loss", "train loss", "test BLEU", "valid BLEU", "valid bpc", "train lr", "train grad_norm"];
  if (first.includes(name)) return first.indexOf(name);
  return /_per_s$/.test(name) ? first.length : /comm_sent/.test(name) ? first.length + 1 : first.length + 2;
};

// ---- labels and colours of runs
const groupOf = data.runs.map(() => 0);
data.comparison.groups.forEach((g, i) => g.runs.forEach((r) => (groupOf[r] = i)));
const hasSeeds = data.comparison.groups.some((g) => g.runs.length > 1);

// Keys that differ between runs, except the seed and the run's folder. Keys that change results come before keys that
// change records.
const differing = data.config.filter((row) => row.values.length > 1 && row.key !== "seed" && !row.key.startsWith("run."))
  .sort((a, b) => /^(train|checkpoint|stop)\b/.test(a.key) - /^(train|checkpoint|stop)\b/.test(b.key));
const seedRow = data.config.find((row) => row.key === "seed" && row.values.length > 1);
// Returns the shortest end of a key that no other differing key has: "lr", "optimizer.name".
const lastWord = (key) => {
  const words = key.split(".");
  for (let n = /^(name|kind|ranks)$/.test(words[words.length - 1]) ? 2 : 1; n < words.length; ++n) {
    const end = words.slice(-n).join(".");
    if (!differing.some((row) => row.key !== key && `.${row.key}`.endsWith(`.${end}`))) return end;
  }
  return key;
};
const settings = (run, rows) => rows.map((row) => `${lastWord(row.key)}=${spelled(row.values[run]) || "none"}`).join(" ");

// The label of a run is its folder's name. A date is not informative, so it is replaced by the run's settings if few
// differ.
const runLabels = (() => {
  const names = data.runs.map((r) => r.name);
  const folder = (n) => n.slice(0, n.lastIndexOf("/") + 1);
  const common = names.length > 1 && names.every((n) => folder(n) === folder(names[0])) ? folder(names[0]) : "";
  const short = names.map((n) => n.slice(common.length));
  const rows = seedRow ? [...differing, seedRow] : differing;
  const dated = short.length > 1 && short.every((n) => /\d{4}-\d\d-\d\d/.test(n)) && rows.length > 0 && rows.length < 4;
  return dated ? short.map((_, i) => settings(i, rows)) : short;
})();

// The label of a group of seeds is its settings if few differ, otherwise the common beginning of its names.
const groupLabels = data.comparison.groups.map((g) => {
  const names = g.runs.map((r) => runLabels[r]);
  if (names.length === 1) return names[0];
  if (differing.length > 0 && differing.length < 4) return settings(g.runs[0], differing);
  let common = names[0];
  while (!names.every((n) => n.startsWith(common))) common = common.slice(0, -1);
  return common.replace(/[-_.=\s]*(seed|s)?[-_.=\s]*\d*$/, "") || `as ${names[0]}`;
});

const kColours = 7;
const dashes = ["", "7 3", "2 3", "9 3 2 3"];
const dashOf = (i) => dashes[Math.floor(i / kColours) % dashes.length];
// Index of a run's colour: seeds of one configuration share a colour while they are drawn as one line.
const styleOf = (run, view) => (view.seeds ? groupOf[run] : run);
const isBest = (run) => run === data.comparison.best_run;
const diverged = (run) => data.runs[run].state === "diverged";

// lmx experiment: cells, verdicts, errors in the file, and experiments that are killed.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/files.h"
#include "experiment/results.h"
#include "process/terminal_process.h"

namespace lmx_test {
namespace {

// Two strategies x two numbers of ranks x two seeds on synthetic text. The bytes sent by allgather_dense are known
// exactly.
constexpr const char* kExperiment = R"yaml(title: Bytes of two strategies
paper: Nobody 2018
place: Table 1
scales:
  desk: {recipe: ../tiny.yaml, overrides: [train.steps=30], variables: {V: 60, D: 12}}
axes:
  method:
    dense: [sync.tables.strategy=allgather_dense]
    unique: []
  G: [2, 4]
  seed: [1, 2]
average: [seed]
variables: {batch: 4 * G}
overrides: ["comm.ranks=${G}", "batch.global=${batch}", "seed=${seed}", batch.micro=2, train.log_every=5]
measures:
  ppl: {key: ppl, digits: 9}
  sent:
    split: rank
    key: comm/tables/*/sent_bytes
    ranks: mean
    take: per_step
    class: exact
    formula: {method: {dense: (G - 1) * 4 * V * (D + 8)}}
    paper: {dense-2: 4800, dense-4: 7}
    comparable: always
  rows: {split: train, key: rows/softmax.weight, take: mean, only: {method: unique}}
checks:
  - {claim: grows, class: exact, value: "slope(sent[dense], G)", expect: 4 * V * (D + 8)}
  - {claim: never, class: formula, value: "sent[dense, 4]", expect: 1}
  - {claim: order, ascending: ["sent[unique, G=2]", "sent[dense, G=2]"]}
  - {claim: fast, class: hardware, value: "sent[dense, 4] / sent[unique, 4]"}
figure:
  title: Bytes
  layers:
    - {x: G, y: sent, by: method}
    - {kind: line, label: formula, x: [2, 4], y: 4 * V * (D + 8) * (x - 1)}
)yaml";

class Experiment : public RunTest {
 protected:
  Experiment() {
    fs::create_directory(folder_ / "experiments");
    write("tiny.yaml", std::string(kTinyRecipe) + "comm: {name: virtual, ranks: 2}\n" +
                           "sync:\n  tables: {params: 'embedding|softmax.weight', strategy: unique}\n" +
                           "  rest: {params: '.*', strategy: allreduce}\n");
    write("experiments/bytes.yaml", kExperiment);
  }

  Words words(const std::string& out, const Words& more = {}) const {
    Words all{build_path("/bin/lmx"), "experiment", "run", path("experiments/bytes.yaml")};
    if (!out.empty()) all.insert(all.end(), {"--out", path(out)});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome experiment(const std::string& out, const Words& more = {}) const {
    return run_process(words(out, more), environment());
  }
  Json results(const std::string& out) const { return Json::parse(read_file(folder_ / out / "results.json")); }

  // Replaces one passage of the experiment; the result must be an error.
  void refused(const std::string& from, const std::string& to, const Words& parts) {
    std::string text = kExperiment;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write("experiments/bytes.yaml", text.replace(at, from.size(), to));
    const Outcome o = experiment("none", {"--dry-run"});
    EXPECT_THAT(o, Refuses(NamesMatcher(parts))) << to;
    EXPECT_THAT(o.err, ContainsRegex("^error: " + path("experiments/bytes.yaml") + ":[0-9]+:[0-9]+: ")) << to;
    EXPECT_FALSE(fs::exists(path("none")));
  }
};

TEST_F(Experiment, AFolderOfSomethingElseIsRefused) {
  write("full/notes.txt", "mine");
  EXPECT_THAT(experiment("full"), Refuses("--out " + path("full"), "it holds notes.txt"));
  ASSERT_THAT(run("run", {"train.steps=2"}), Succeeds());
  EXPECT_THAT(experiment("run"), Refuses("--out " + path("run"), "is not empty"));
  ASSERT_THAT(lmx({"sweep", path("tiny.yaml"), "seed=1,2", "train.steps=2", "--out", path("sweep")}), Succeeds());
  EXPECT_THAT(experiment("sweep"), Refuses("contains a sweep"));
}

TEST_F(Experiment, MeasuresAndJudges) {
  const Outcome o = experiment("out");
  ASSERT_THAT(o, Succeeds());
  const Json r = results("out");
  EXPECT_EQ(r["cells"].size(), 8u);
  EXPECT_EQ(verdict(r, "grows")["verdict"], "reproduced");
  EXPECT_EQ(verdict(r, "never")["verdict"], "refuted");
  EXPECT_EQ(verdict(r, "order")["verdict"], "reproduced");
  EXPECT_EQ(verdict(r, "fast")["verdict"], "not comparable");
  EXPECT_EQ(verdict(r, "sent is what its formula says")["verdict"], "by construction");
  EXPECT_EQ(verdict(r, "sent: the paper's numbers")["verdict"], "refuted");  // differs by 7 bytes with four ranks
  EXPECT_EQ(cell(r, "dense-4-1")["measured"]["sent"].get<double>(), 3 * 4 * 60 * 20);
  EXPECT_FALSE(cell(r, "dense-4-1")["measured"].contains("rows"));

  // The table's mean and spread are those of the cells, and a cell's number is that of its run.
  const double a = cell(r, "unique-2-1")["measured"]["ppl"], b = cell(r, "unique-2-2")["measured"]["ppl"];
  EXPECT_NE(a, b);
  for (const Json& row : r["rows"]) {
    if (row["labels"] != Json{"unique", "2"}) continue;
    EXPECT_EQ(row["place"], (Json{{"method", "unique"}, {"G", "2"}}));
    EXPECT_DOUBLE_EQ(row["measures"]["ppl"]["mean"].get<double>(), (a + b) / 2);
    EXPECT_NEAR(row["measures"]["ppl"]["spread"].get<double>(), std::fabs(a - b) / std::sqrt(2.0), 1e-12);
  }
  const std::string records = read_file(folder_ / "out/cells/unique-2-1/metrics.jsonl");
  const Json last = Json::parse(records.substr(records.rfind('\n', records.size() - 2) + 1));
  EXPECT_EQ(last["split"], "valid");
  EXPECT_EQ(last["ppl"].get<double>(), a);

  EXPECT_THAT(read_file(folder_ / "out/table.md"), Names("| dense | 4 |", " ± ", "**refuted**", "14,400"));
  // The terminal has the same words in columns.
  EXPECT_THAT(o.out,
              AllOf(Names("\ndense   4  ", " ± ", "refuted", "14,400"), Not(HasSubstr("|")), Not(HasSubstr("**"))));
  EXPECT_THAT(read_file(folder_ / "out/figure.svg"), AllOf(Names("</svg>", "unique"), Not(HasSubstr("nan"))));
  EXPECT_FALSE(fs::exists(path("out/cells/dense-4-1/checkpoints")));
}

TEST_F(Experiment, WhatIsDoneDoesNotRunAgain) {
  ASSERT_THAT(experiment("out", {"--only", "dense-2-*"}), Succeeds());
  Json r = results("out");
  EXPECT_EQ(cell(r, "dense-2-1")["state"], "done");
  EXPECT_EQ(cell(r, "dense-4-1")["state"], "not run");
  EXPECT_EQ(verdict(r, "grows")["verdict"], "not measured");  // no verdict from half of its cells
  EXPECT_THAT(verdict(r, "grows")["reason"], Names("dense-4-1"));
  write("out/cells/dense-2-1/.checkpoints/step-60/state.json", "");  // killed while it deleted them
  const Outcome rest = experiment("out", {"--jobs", "2"});
  ASSERT_THAT(rest, Warns(Names("cell 6/6"), Not(HasSubstr("dense-2-1"))));
  EXPECT_FALSE(fs::exists(path("out/cells/dense-2-1/.checkpoints")));
  const Outcome again = experiment("out");
  EXPECT_EQ(again.out, rest.out);
  EXPECT_THAT(again.err, Not(HasSubstr("cell 1/")));
}

// Killed before the first record, in the first cell, between cells, in a later one, and near the end.
TEST_F(Experiment, KilledAtAnyMomentEndsInTheSameTable) {
  const Outcome whole = experiment("whole");
  ASSERT_THAT(whole, Succeeds());
  const auto journal = [&] {
    const std::string text = read_file(folder_ / "killed/journal.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto begun = [&](const char* cell) {
    return [this, cell] { return !read_file(folder_ / "killed/cells" / cell / "metrics.jsonl").empty(); };
  };
  const std::vector<std::function<bool()>> moments{[&] { return fs::exists(path("killed/cells/dense-2-1.yaml")); },
                                                   begun("dense-2-1"), [&] { return journal() >= 2; },
                                                   begun("unique-2-1"), [&] { return journal() >= 5; }};
  for (const auto& moment : moments) {
    const pid_t child = start(words("killed"));
    ASSERT_TRUE(wait_until(child, moment));
    kill(child, SIGKILL);
    EXPECT_EQ(wait_for(child), 128 + SIGKILL);
    EXPECT_FALSE(fs::exists(path("killed/results.json")));
  }
  const Outcome o = experiment("killed");
  ASSERT_THAT(o, Warns(Names("unique-4-2"), Not(HasSubstr("dense"))));
  EXPECT_EQ(o.out, whole.out);
  EXPECT_EQ(results("killed")["cells"], results("whole")["cells"]);
}

TEST_F(Experiment, SignalsEndItAndItsCells) {
  const Words longer{"train.steps=4000", "train.eval_every=4000", "checkpoint.every=4000"};
  const pid_t child = start(words("out", longer));
  ASSERT_TRUE(wait_for_records(child, "out/cells/dense-2-1"));
  kill(child, SIGTERM);
  EXPECT_EQ(wait_for(child), 143);
  EXPECT_THAT(read_file(folder_ / "out/cells/dense-2-1/status.json"), HasSubstr("interrupted"));
  EXPECT_FALSE(fs::exists(path("out/results.json")));
}

TEST_F(Experiment, AFailedCellLeavesTheOthers) {
  fs::create_directories(folder_ / "out/cells");
  for (const char* id : {"unique-2-1", "unique-2-2", "unique-4-1", "unique-4-2"})
    write(std::string("out/cells/") + id, "where the run's folder should be");
  const Outcome o = experiment("out");
  EXPECT_THAT(o, Fails("4 cells", "unique-2-1: failed: exit code"));
  const Json r = results("out");
  EXPECT_EQ(cell(r, "unique-2-1")["state"], "failed");
  EXPECT_EQ(cell(r, "dense-4-2")["state"], "done");
  EXPECT_EQ(verdict(r, "grows")["verdict"], "reproduced");
  EXPECT_EQ(verdict(r, "order")["verdict"], "not measured");
  EXPECT_THAT(o.out, HasSubstr("failed"));
}

// As in the papers' tables, a diverged cell is a result, and checks can ask for it.
TEST_F(Experiment, ADivergedCellIsAResult) {
  std::string text = kExperiment;
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
  };
  replace("unique: []", "unique: [train.max_loss=1]");
  replace("  ppl: {key: ppl, digits: 9}",
          "  ppl: {key: ppl, digits: 9, comparable: always, paper: {unique-2: diverged, dense-4: "
          "diverged}}\n  diverged: {split: outcome, key: diverged}");
  replace("checks:\n",
          "checks:\n  - {claim: all of unique, value: \"diverged[unique, G=2] + diverged[unique, G=4]\", at_least: 2}\n"
          "  - {claim: none of dense, value: \"most(diverged[dense])\", at_most: 0}\n"
          "  - {claim: at the other scale, scale: [paper], value: \"ppl[no, such]\", at_most: 0}\n");
  replace("axes:\n", "  paper: {recipe: ../tiny.yaml}\naxes:\n");
  write("experiments/bytes.yaml", text);
  Outcome o = experiment("out");
  ASSERT_THAT(o, Warns("unique-2-1: diverged", "train.max_loss"));
  const Json r = results("out");
  EXPECT_EQ(cell(r, "unique-2-1")["state"], "diverged");
  EXPECT_EQ(cell(r, "dense-4-2")["state"], "done");
  EXPECT_EQ(verdict(r, "all of unique")["verdict"], "reproduced");
  EXPECT_EQ(verdict(r, "none of dense")["verdict"], "reproduced");
  EXPECT_EQ(verdict(r, "grows")["verdict"], "reproduced");
  const Json order = verdict(r, "order");
  EXPECT_EQ(order["verdict"], "not measured");
  EXPECT_THAT(order["reason"].get<std::string>(), testing::EndsWith("cell unique-2-1 diverged"));
  const Json paper = verdict(r, "ppl: the paper's numbers");  // dense-4 did not diverge
  EXPECT_EQ(paper["verdict"], "refuted");
  EXPECT_EQ(paper["reason"], "2 cells, 1 of them diverged here or in the paper, not in both");
  for (const Json& v : r["verdicts"]) EXPECT_NE(v["claim"], "at the other scale");
  EXPECT_THAT(o.out, ContainsRegex("\nunique +2 +diverged +diverged +1 "));
  // The cell has ended: it does not run again, and its table stays.
  const Outcome again = experiment("out");
  EXPECT_THAT(again, Succeeds());
  EXPECT_EQ(again.out, o.out);
  EXPECT_THAT(again.err, Not(HasSubstr("unique-2-1: diverged")));
}

// As that of a sweep: a table that is drawn again over itself.
TEST_F(Experiment, ATableLivesOnATerminalAlone) {
  const auto drawn_twice =
      AllOf(HasSubstr("0 of 8 cells have ended; 2 running"), HasSubstr("/50000"), HasSubstr("\033[4F\033[J"));
  const TerminalOutcome o = run_on_terminal(
      {"experiment", "run", path("experiments/bytes.yaml"), "--out", path("out"), "train.steps=50000", "--jobs", "2"},
      environment(), 80, [&](const std::string& text) { return testing::Value(text, drawn_twice); });
  EXPECT_EQ(o.code, 143);
  EXPECT_THAT(o.text, AllOf(drawn_twice, HasSubstr("CELL"), Not(HasSubstr("cell 1/8"))));
}

// A run of an experiment that was killed may hold its folder for a moment; its cell waits.
TEST_F(Experiment, ACellWaitsForAnEarlierProcess) {
  if (on_path("flock").empty()) GTEST_SKIP() << "there is no flock (Debian: util-linux)";
  fs::create_directories(folder_ / "out/cells/dense-2-1");
  const std::string lock = path("out/cells/dense-2-1/.lock");
  const pid_t holder = start({"/bin/sh", "-c", "exec flock '" + lock + "' sleep 5"});
  ASSERT_TRUE(wait_until(holder, [&] { return lmx::FileLock::is_held(lock); }));
  const Outcome o = experiment("out", {"--only", "dense-2-1"});
  wait_for(holder);
  EXPECT_THAT(o, Succeeds());
}

TEST_F(Experiment, AnotherRecipeInTheSameFolder) {
  ASSERT_THAT(experiment("out", {"--only", "dense-2-1"}), Succeeds());
  EXPECT_THAT(experiment("out", {"train.steps=31"}), Refuses("another recipe", "dense-2-1", "--out"));
}

TEST_F(Experiment, CellsOfOneRecipeReadOneText) {
  std::string recipe = kTinyRecipe;
  const size_t data = recipe.find("data: {");
  recipe.replace(data, recipe.find('\n', data) - data,
                 "data: {name: text, files: ['" + path("words.txt") + "'], valid_fraction: 0.2, vocab_size: 14}");
  write("tiny.yaml", recipe);
  write("experiments/bytes.yaml",
        "title: t\nscales: {desk: {recipe: ../tiny.yaml, overrides: [train.steps=4, loss.samples=5]}}\naxes: {seed: "
        "[1, 2]}\n"
        "overrides: [\"seed=${seed}\"]\nmeasures: {ppl: {key: ppl}}\n");
  const auto text = [&](const std::string& word) {
    std::string lines;
    for (int i = 0; i < 200; ++i) lines += word + " one two three " + word + std::to_string(i % 9) + "\n";
    write("words.txt", lines);
  };
  text("red");
  ASSERT_THAT(experiment("out", {"--only", "1"}), Succeeds());
  text("blue");
  EXPECT_THAT(experiment("out"),
              Fails("2: its data differs from that of cell 1", path("out/cells/2"), "journal.jsonl"));
  text("red");
  fs::remove_all(folder_ / "out/cells/2");
  EXPECT_THAT(experiment("out"), Succeeds());
}

// The recipe of a cell that an earlier build has run lacks the keys that are newer. The cell used what is the default
// now.
TEST_F(Experiment, ARecordedRecipeLacksNewerKeys) {
  ASSERT_THAT(experiment("out", {"--only", "dense-2-1"}), Succeeds());
  const std::string recorded = read_file(path("out/cells/dense-2-1.yaml")), key = "deterministic: true\n";
  std::string older = recorded;
  ASSERT_NE(older.find(key), std::string::npos);
  write("out/cells/dense-2-1.yaml", older.erase(older.find(key), key.size()));
  const Outcome again = experiment("out", {"--only", "dense-2-1"});
  EXPECT_THAT(again, Succeeds());
  EXPECT_THAT(again.err, Not(HasSubstr("dense-2-1: done"))) << "the cell has run before";
  const auto refused_with = [&](const std::string& overriding) {
    EXPECT_THAT(experiment("out", {overriding}), Refuses("another recipe", "dense-2-1"));
  };
  refused_with("deterministic=false");
  refused_with("clip=7");
  write("out/cells/dense-2-1.yaml", recorded + "gone: 1\n");
  refused_with("seed=1");
  write("out/cells/dense-2-1.yaml", "model: {");
  refused_with("seed=1");
}

TEST_F(Experiment, OneProcessAtATime) {
  const pid_t child = start(words("out", {"train.steps=1000000"}));
  ASSERT_TRUE(wait_until(child, [&] { return fs::exists(path("out/cells/dense-2-1.yaml")); }));
  const Outcome o = experiment("out");
  kill(child, SIGKILL);
  wait_for(child);
  EXPECT_THAT(o, Refuses("another process"));
}

// Cells with the same recipe share one run; cells that do not run get the value of their formula; a formula may use
// other cells.
TEST_F(Experiment, SharedRunsAndFormulas) {
  write("experiments/bytes.yaml", R"yaml(title: t
scales: {desk: {recipe: ../tiny.yaml, overrides: [train.steps=10, batch.micro=0]}}
axes: {name: [a, b], G: [2, 4]}
cells:
  - {G: 2}
  - {name: a, G: 4, run: false}
overrides: ["comm.ranks=${G}"]
evaluate: [test]
measures:
  ppl: {key: ppl, formula: "ppl[a, 2] * G / 2", within: 10}
  test: {key: ppl, split: test}
  twice: {value: 2 * ppl}
checks:
  - {claim: same, class: exact, value: "ppl[a, 2]", expect: "ppl[b, 2]"}
  - {claim: formula, class: exact, value: "ppl[a, 4] / ppl[b, 2]", expect: 2}
  - {claim: of the cell, class: exact, value: "twice[b, 2]", expect: "2 * ppl[b, 2]"}
  - {claim: test, class: exact, value: "abs(test[a, 2] / ppl[a, 2] - 1)", at_least: 1e-6, at_most: 0.5}
  - {claim: calculates, class: exact, value: "2 + 3 * 4 ^ 2 / 8 - -1 + min(4, 2 ^ 3 ^ 0) + sqrt(16) + log2(8) + round(14.4)", expect: 32}
)yaml");
  const Outcome o = experiment("out");
  ASSERT_THAT(o, Succeeds());
  const Json r = results("out");
  for (const char* claim : {"same", "formula", "of the cell", "test", "calculates"})
    EXPECT_EQ(verdict(r, claim)["verdict"], "reproduced") << verdict(r, claim);
  EXPECT_EQ(cell(r, "b-2")["same_as"], "a-2");
  EXPECT_EQ(cell(r, "a-4")["state"], "formula");
  EXPECT_FALSE(fs::exists(path("out/cells/b-2")));
  EXPECT_THAT(o.err, Names("cell 1/1 a-2"));
}

// The median of three records is the one that is neither the least nor the largest.
TEST_F(Experiment, CombinesTheRecordsOfARun) {
  write("experiments/bytes.yaml", R"yaml(title: t
scales: {desk: {recipe: ../tiny.yaml, overrides: [train.steps=9, train.log_every=3]}}
axes: {G: [2]}
overrides: ["comm.ranks=${G}"]
measures:
  low: {split: train, key: grad_norm, take: min}
  middle: {split: train, key: grad_norm, take: median}
  high: {split: train, key: grad_norm, take: max}
  all: {split: train, key: grad_norm, take: sum}
  mean: {split: train, key: grad_norm, take: mean}
checks:
  - {claim: median, class: exact, value: "abs((low[2] + middle[2] + high[2]) / all[2] - 1)", at_most: 1e-9}
  - {claim: mean, class: exact, value: "abs(3 * mean[2] / all[2] - 1)", at_most: 1e-9}
)yaml");
  ASSERT_THAT(experiment("out"), Succeeds());
  const Json r = results("out"), measured = cell(r, "2")["measured"];
  EXPECT_LT(measured["low"], measured["middle"]);
  EXPECT_LT(measured["middle"], measured["high"]);
  for (const char* claim : {"median", "mean"}) EXPECT_EQ(verdict(r, claim)["verdict"], "reproduced") << r;
}

// A model's evaluation may be no JSON number; the journal keeps it nevertheless.
TEST_F(Experiment, InfiniteEvaluations) {
  write("experiments/bytes.yaml", R"yaml(title: t
scales: {desk: {recipe: ../tiny.yaml, overrides: [train.steps=10, batch.micro=0]}}
axes: {G: [2]}
overrides: ["comm.ranks=${G}"]
evaluate: [test]
measures:
  nll: {key: nll_nat, split: test}
  ppl: {key: ppl, split: test}
)yaml");
  ASSERT_THAT(experiment("out"), Succeeds());
  std::string journal = read_file(folder_ / "out/journal.jsonl");
  journal = replaced(journal, "\"nll_nat\":[^,}]*", "\"nll_nat\":\"NaN\"");
  write("out/journal.jsonl", replaced(journal, "\"ppl\":[^,}]*", "\"ppl\":\"Infinity\""));
  ASSERT_THAT(experiment("out"), Succeeds());
  EXPECT_EQ(cell(results("out"), "2")["measured"]["nll"], "NaN");
  EXPECT_EQ(cell(results("out"), "2")["measured"]["ppl"], "Infinity");
  EXPECT_THAT(read_file(folder_ / "out/table.md"), HasSubstr("| - | - |"));
}

TEST_F(Experiment, CountsTypes) {
  write("experiments/bytes.yaml", R"yaml(title: t
scales: {desk: {recipe: ../tiny.yaml, overrides: [data.train_tokens=20000]}}
axes: {G: [2]}
cells: [{G: 2, run: false}]
types: {max_tokens: 5120, sequence_length: 6}
measures:
  exponent: {split: fit, key: exponent, paper: {types: 0.5}, comparable: always, class: shape, within: 9}
  u: {split: types, key: types, where: {tokens: 1280}}
checks: [{claim: few, value: "u[types]", at_least: 40, at_most: 60}]
)yaml");
  const Outcome o = experiment("out");
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(verdict(results("out"), "few")["verdict"], "reproduced");
  EXPECT_EQ(verdict(results("out"), "exponent: the paper")["verdict"], "reproduced");
  EXPECT_THAT(o.out, HasSubstr("of the text"));
}

TEST_F(Experiment, DryRunsAndMissingData) {
  EXPECT_THAT(experiment("out", {"--dry-run"}),
              Prints("dense-4-2", "sync.tables.strategy=allgather_dense", "data: available"));
  EXPECT_FALSE(fs::exists(path("out")));
  const std::string text = "data: {name: text, corpus: fbis, vocab_size: 60}\n";
  std::string recipe = read_file(folder_ / "tiny.yaml");
  recipe.replace(recipe.find("data: {"), recipe.find('\n', recipe.find("data: {")) - recipe.find("data: {") + 1, text);
  write("tiny.yaml", recipe);
  EXPECT_THAT(experiment("out", {"--dry-run"}), Prints("data: not ready", "'fbis'"));
  EXPECT_THAT(experiment("out"), Refuses("not ready", "'fbis'"));
  EXPECT_FALSE(fs::exists(path("out")));
}

TEST_F(Experiment, MistakesInTheFile) {
  const std::string file = path("experiments/bytes.yaml");
  refused("axes:", "axess:", {file + ":", "axess", "'axes'?"});
  refused("    unique: []", "    unique: [model.cels=3]",
          {file + ":9:14: cell unique-2-1: ", "model.cels", "'cells'?"});
  refused("  ppl: {key", "  ppl: {kee", {file + ":16:9:", "measures.ppl.kee", "'key'?"});
  refused("ppl: {key: ppl", "ppl: {key: pppl", {file + ":16:8: measures.ppl: ", "split valid", "'pppl'", "'ppl'?"});
  refused("ppl: {key: ppl", "ppl: {split: test, key: ppl",
          {"measures.ppl: ", "split test", "'ppl'", "evaluate: [test]"});
  refused("rows: {split: train,", "rows: {split: train, where: {epok: 1},", {"measures.rows: ", "'epok'", "'epoch'?"});
  refused("ppl: {key: ppl", "ppl: {split: valid", {file + ":16:8: measures.ppl: ", "`key`"});
  refused("take: per_step", "take: per_stp", {file + ":21:11: measures.sent.take", "'per_step'?"});
  refused("{batch: 4 * G}", "{batch: 4 * H}", {file + ":13:24: variables.batch: ", "'H'"});
  refused("{batch: 4 * G}", "{batch: 4 * (G}", {file + ":13:", "')'"});
  refused("{batch: 4 * G}", "{batch: 4 * method}", {"axis method", "'dense'"});
  refused("average: [seed]", "average: [sed]", {file + ":12:10: average: ", "'sed'", "'seed'?"});
  refused("average: [seed]", "cells: [{G: 3}]", {file + ":12:13: cells: axis G", "'3'", "2, 4"});
  refused("average: [seed]", "cells: [{g: 2}]", {file + ":12:13: cells: ", "'g'", "method, G, seed"});
  refused("average: [seed]", "cells: [{G: 2}, {method: dense}]", {"cell dense-2-1", "twice"});
  refused("slope(sent[dense], G)", "slope(send[dense], G)", {file + ":28:", "checks.0.value: ", "'send'", "'sent'?"});
  refused("slope(sent[dense], G)", "slop(sent[dense], G)", {"'slop'", "'slope'?"});
  refused("slope(sent[dense], G)", "sent[dense]", {"axis G", "2, 4"});
  refused("slope(sent[dense], G)", "sent[dens, 4]", {"'dens'", "'dense'?"});
  refused("slope(sent[dense], G)", "sent[2]", {"'2'", "G=2", "seed=2"});
  refused("expect: 1}", "}", {file + ":29:5: checks.1: ", "value", "expect"});
  refused("{dense-2: 4800", "{dense-3: 4800", {"measures.sent.paper: ", "'dense-3'", "'dense-2'?"});
  refused("y: sent,", "y: sant,", {"figure.layers.0.y: ", "'sant'"});
  refused("desk: {recipe: ../tiny.yaml", "desk: {recipe: ../tinny.yaml",
          {file + ":5:9: cell dense-2-1: ", "tinny.yaml"});
  refused("ranks: mean", "ranks: mean\n    deal: 2", {file + ":18:5: measures.sent: ", "`deal`", "`split: rank`"});
  refused("{batch: 4 * G}", "{batch: {G: {4: 16}}}", {"variables.batch: ", "cell dense-2-1"});
  refused("{batch: 4 * G}", "{batch: {G: {2: 8, 5: 16}}}", {"axis G", "'5'"});
  refused("average: [seed]", "mean_of_last: 2", {file + ":12:15: mean_of_last: ", "`evaluate`"});
  refused("{recipe: ../tiny.yaml", "{recipe: '../${method}.yaml'", {file + ":5:9: cell dense-2-1: ", "dense.yaml"});
  refused("  desk:", "  2desk:", {file + ":5:", "scales.2desk: ", "begin with a letter"});
  refused("claim: grows,", "claim: grows, scale: [dask],", {file + ":28:", "checks.0.scale: ", "'dask'", "'desk'?"});
  refused("claim: grows,", "claim: grows, scale: both,", {file + ":28:", "checks.0.scale: ", "'both'", "desk"});
}

TEST_F(Experiment, UnknownNames) {
  const auto refuse = [&](const Words& words, const Words& parts) {
    const Outcome o = lmx(joined({"experiment"}, words));
    EXPECT_EQ(o.code, 2) << o.out;
    for (const std::string& part : parts) EXPECT_THAT(o.err, Names(part));
  };
  refuse({"run", path("experiments/byte.yaml")}, {path("experiments/byte.yaml")});
  refuse({"run", "no_such_thing"}, {"'no_such_thing'", "experiment list"});
  refuse({"run", path("experiments/bytes.yaml"), "--scale", "dusk"}, {"'dusk'", "'desk'?"});
  refuse({"run", path("experiments/bytes.yaml"), "--only", "dense-2-7"}, {"'dense-2-7'", "'dense-2-1'?"});
  refuse({"rum"}, {"'run'?"});
}

TEST_F(Experiment, AVariableMayHaveAFormulaForEachCell) {
  std::string text = kExperiment;
  text.replace(text.find("4 * G"), 5, "{G: {2: 8, 4: 3 * G + 8}}");
  write("experiments/bytes.yaml", text);
  ASSERT_THAT(experiment("none", {"--dry-run"}),
              Prints("comm.ranks=2 batch.global=8 ", "comm.ranks=4 batch.global=20 "));
}

}  // namespace
}  // namespace lmx_test

// The verdicts of `lmx experiment`, for cells whose numbers this test writes.
#include "app/print/words.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

// number() writes the test perplexities to the journal.
constexpr const char* kVerdicts = R"yaml(title: t
scales: {desk: {recipe: ../tiny.yaml, overrides: [train.steps=2, train.log_every=1, train.eval_every=2, batch.micro=0]}}
axes:
  name: {a: [model.embedding=8], b: [model.embedding=9], c: [model.embedding=10]}
  seed: [1, 2, 3]
average: [seed]
overrides: ["seed=${seed}"]
evaluate: [test]
measures:
  ppl: {key: ppl, split: test, paper: {a: 21.2, c: 31}, comparable: always}
  tokens: {key: tokens, split: test, class: exact}
checks:
  - {claim: apart, ascending: ["ppl[a]", "ppl[c]"]}
  - {claim: turned, ascending: ["ppl[c]", "ppl[a]"]}
  - {claim: close, ascending: ["ppl[a]", "ppl[b]"]}
  - {claim: ratio, class: quality, value: "ppl[b] / ppl[a]", at_most: 1.01}
  - {claim: far ratio, class: quality, value: "ppl[c] / ppl[a]", at_most: 1.01}
  - {claim: near, class: quality, value: "ppl[a]", expect: 21, within: 0.9}
  - {claim: two errors, class: quality, value: "ppl[a]", at_most: 22.155}
  - {claim: nearly, class: quality, value: "ppl[a]", expect: 21, within: 0.05}
  - {claim: alone, value: "ppl[a, 1] / ppl[c, 1]", at_most: 1}
  - {claim: without chance, value: "tokens[a, 1] / tokens[c, 1]", at_most: 1}
  - {claim: made so, class: exact, value: "tokens[a]", expect: "tokens[c]", by_construction: one text}
  - {claim: made wrong, class: exact, value: "tokens[a]", expect: 0, by_construction: one text}
  - {claim: turns, ascending: ["ppl[a]", "ppl[c]"], depends_on: the gates, note: both were tried}
  - {claim: empty grid, value: "most(ppl)", at_most: 99, incomparable: nothing is above 99, unless: "max(0, most(ppl) - 99)"}
  - {claim: full grid, value: "most(ppl[c])", at_most: 99, incomparable: nothing is above 9, unless: "max(0, most(ppl) - 9)"}
figure:
  layers:
    - {kind: line, label: c, x: [1, 2], y: "x * ppl[c]"}
    - {kind: bars, x: name, y: ppl}
)yaml";

class Verdicts : public RunTest {
 protected:
  Verdicts() {
    std::filesystem::create_directory(folder_ / "experiments");
    write("tiny.yaml", kTinyRecipe);
    write("experiments/made.yaml", kVerdicts);
  }
  Outcome experiment(const Words& more = {}) const {
    return lmx(joined({"experiment", "run", path("experiments/made.yaml"), "--out", path("out")}, more));
  }
  // Writes a cell's test perplexity.
  void number(const std::string& cell, double ppl) {
    std::istringstream lines(read_file(folder_ / "out/journal.jsonl"));
    std::string text;
    bool found = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("\"" + cell + "\"") != std::string::npos) {
        const size_t at = line.find("\"ppl\":");
        ASSERT_NE(at, std::string::npos) << line;
        line.replace(at, line.find_first_of(",}", at) - at, "\"ppl\":" + std::to_string(ppl));
        found = true;
      }
      text += line + "\n";
    }
    ASSERT_TRUE(found) << cell;
    write("out/journal.jsonl", text);
  }
  Json verdict(const std::string& claim) const {
    const Json results = Json::parse(read_file(folder_ / "out/results.json"));
    for (const Json& v : results["verdicts"])
      if (v["claim"] == claim) return v;
    ADD_FAILURE() << "no claim " << claim;
    return {{"verdict", ""}, {"reason", ""}};
  }
};

TEST_F(Verdicts, NeedSignificanceAndSeveralRuns) {
  ASSERT_THAT(experiment(), Succeeds());
  for (const auto& [name, least] : {std::pair{"a", 20.0}, std::pair{"b", 20.5}, std::pair{"c", 30.0}})
    for (int seed = 1; seed <= 3; ++seed) number(std::string(name) + "-" + std::to_string(seed), least + seed - 1);
  const Outcome o = experiment();
  ASSERT_THAT(o, Succeeds());

  // Means 21, 21.5 and 31, each with a standard error of 1 / sqrt(3).
  EXPECT_EQ(verdict("apart")["verdict"], "reproduced");
  EXPECT_EQ(verdict("turned")["verdict"], "refuted");
  EXPECT_EQ(verdict("close")["verdict"], "undecided");
  EXPECT_EQ(verdict("ratio")["verdict"], "undecided");
  EXPECT_EQ(verdict("far ratio")["verdict"], "refuted");
  EXPECT_EQ(verdict("near")["verdict"], "reproduced");
  // 2 standard errors of 3 runs: t(2) = 2 has p = 0.18.
  EXPECT_EQ(verdict("two errors")["verdict"], "undecided");
  EXPECT_NEAR(verdict("two errors")["p"].get<double>(), 0.1835, 1e-3);
  EXPECT_THAT(verdict("two errors")["reason"],
              testing::AllOf(HasSubstr("after correction for 12 comparisons"), HasSubstr("; needs about "),
                             HasSubstr(" in place of 3, if")));
  EXPECT_EQ(verdict("nearly")["verdict"], "undecided");
  EXPECT_EQ(verdict("alone")["verdict"], "undecided");
  EXPECT_THAT(verdict("alone")["reason"], HasSubstr("one run of a-1"));
  EXPECT_EQ(verdict("without chance")["verdict"], "reproduced");
  EXPECT_EQ(verdict("made so")["verdict"], "by construction");
  EXPECT_EQ(verdict("made wrong")["verdict"], "refuted");
  EXPECT_EQ(verdict("turns")["verdict"], "depends on the gates");
  EXPECT_EQ(verdict("empty grid")["verdict"], "not comparable");
  EXPECT_EQ(verdict("full grid")["verdict"], "reproduced");
  EXPECT_EQ(verdict("ppl: the paper's numbers, cell by cell")["verdict"], "undecided");  // a: 1 % from 21.2

  // The least p of 12: t = 10 / 0.8165 with 4 degrees of freedom, for three claims. `full grid` is clearer still.
  const Json apart = verdict("apart");
  EXPECT_NEAR(apart["p"].get<double>(), 2.552e-4, 1e-6);
  EXPECT_NEAR(apart["adjusted_p"].get<double>(), 11 * 2.552e-4, 11e-6);
  EXPECT_DOUBLE_EQ(apart["values"][0].get<double>(), 21);
  EXPECT_NEAR(apart["standard_errors"][0].get<double>(), 0.57735, 1e-5);
  EXPECT_THAT(apart["measured"].get<std::string>(), HasSubstr("± 0.58"));
  // The standard errors of both parts are 0.57735; the ratio's is sqrt(1 + (21.5 / 21)^2) / 21 times that, up to the
  // second order of the jackknife.
  EXPECT_NEAR(verdict("ratio")["standard_errors"][0].get<double>(), 0.03936, 2e-4);
  EXPECT_TRUE(verdict("alone")["standard_errors"][0].is_null());
  EXPECT_THAT(o.out, HasSubstr("± 0.58"));
}

// Runs of one seed vary together: with a = 20, 21, 22 and b = 40, 42, 44 their quotient does not vary at all.
TEST_F(Verdicts, PairedRunsAreLeftOutTogether) {
  std::string text = kVerdicts;
  const size_t average = text.find("average:");
  ASSERT_NE(average, std::string::npos);
  const auto ratio = [&](const std::string& more) {
    write("experiments/made.yaml", std::string(text).insert(average, more));
    EXPECT_THAT(experiment(), Succeeds());
    for (const auto& [name, least] : {std::pair{"a", 20.0}, std::pair{"b", 40.0}, std::pair{"c", 30.0}})
      for (int seed = 0; seed < 3; ++seed)
        number(lmx::str(name, "-", seed + 1), least + (name[0] == 'b' ? 2 : 1) * seed);
    EXPECT_THAT(experiment(), Succeeds());
    return verdict("ratio")["standard_errors"][0].get<double>();
  };
  EXPECT_GT(ratio(""), 0.03);
  EXPECT_NEAR(ratio("paired: true\n"), 0, 1e-12);
}

// A line of the figure with a cell that has not run is left out; the other results are written.
TEST_F(Verdicts, SomeCellsAreEnoughForAFigure) {
  EXPECT_THAT(experiment({"--only", "a-*"}), Succeeds());
  EXPECT_THAT(read_file(folder_ / "out/figure.svg"), HasSubstr("</svg>"));
  EXPECT_EQ(verdict("apart")["verdict"], "not measured");
}

TEST_F(Verdicts, ChecksThatContradictThemselvesAreRefused) {
  for (const auto& [more, part] :
       {std::pair{"unless: 1", "unless"}, std::pair{"by_construction: x, depends_on: y", "depends_on"}}) {
    std::string text = kVerdicts;
    text.replace(text.find("depends_on: the gates"), 21, more);
    write("experiments/made.yaml", text);
    EXPECT_THAT(experiment({"--dry-run"}), Refuses("made.yaml:", part));
  }
}

// One method has a lower loss than the base after all of its steps, the others a higher one than after half of them.
// The machine is a file beside the experiment. A quarter of the steps of `mixed` is planned as that of the base, the
// rest as that of `slow`.
TEST_F(Verdicts, CompareInEqualTime) {
  write("experiments/made.yaml", R"yaml(title: t
scales: {desk: {recipe: ../tiny.yaml, overrides: [train.steps=4, train.log_every=1, train.eval_every=0, batch.micro=0]}}
axes:
  method: {all: [], half: [train.steps=2], quick: ["sync={all: {params: .*, strategy: one_bit}}"], slow: ["sync={all: {params: .*, strategy: qsgd}}"],
           mixed: ["sync={all: {params: .*, strategy: qsgd}}"]}
  seed: [1, 2]
average: [seed]
overrides: ["seed=${seed}", comm.name=virtual, "++comm.ranks=2"]
evaluate: [test]
measures: {ppl: {key: ppl, split: test}}
break_even: {axis: method, base: all, shorter: {half: 0.5}, loss: ppl, recipe: ../tiny.yaml, machine: near.yaml, ranks: 16,
             phases: {mixed: [{part: 0.25, overrides: [sync.all.strategy=allreduce]}, {part: 0.75}]}}
)yaml");
  write("experiments/near.yaml", read_file(source_path("/recipes/machine/h100_node.yaml")));
  ASSERT_THAT(experiment(), Succeeds());
  for (int seed = 1; seed <= 2; ++seed) {
    const auto set = [&](const std::string& method, double ppl) {
      number(method + "-" + std::to_string(seed), ppl + seed);
    };
    set("all", 20), set("half", 30), set("quick", 10), set("slow", 40);  // also that of mixed
  }
  ASSERT_THAT(experiment(), Succeeds());
  const Json rows = Json::parse(read_file(folder_ / "out/results.json"))["break_even"];
  ASSERT_EQ(rows.size(), 3);
  for (size_t i = 0; i < rows[1]["step_ratios"].size(); ++i)
    EXPECT_NEAR(rows[2]["step_ratios"][i][1], 0.25 + 0.75 * rows[1]["step_ratios"][i][1].get<double>(), 1e-9);
  EXPECT_EQ(rows[0]["labels"], Json{"quick"});
  EXPECT_EQ(rows[0]["seeds"], 2);
  EXPECT_EQ(rows[0]["part"]["low"], 1);
  EXPECT_THAT(rows[0]["verdict"].get<std::string>(), testing::StartsWith("pays"));
  EXPECT_EQ(rows[1]["part"]["value"], 0);
  EXPECT_EQ(rows[1]["part"]["high"], 0.5);
  EXPECT_THAT(rows[1]["verdict"].get<std::string>(), testing::Not(testing::StartsWith("pays below")));
  EXPECT_THAT(read_file(folder_ / "out/break_even.svg"), HasSubstr("quick"));
  EXPECT_THAT(read_file(folder_ / "out/table.html"), AllOf(HasSubstr("<td> quick </td>"), HasSubstr("<svg")));
  EXPECT_THAT(read_file(folder_ / "out/table.csv"),
              AllOf(testing::StartsWith("cell,method,seed,state,ppl\n"), HasSubstr("\nhalf-2,half,2,done,32\n")));
  EXPECT_THAT(read_file(folder_ / "out/table.md"), HasSubstr("same loss as all after"));
}

// A label with a comma stays one cell of table.csv.
TEST(ExperimentCsv, CellsAreQuotedIfTheyNeedIt) {
  EXPECT_EQ(lmx::app::csv_cell("half"), "half");
  EXPECT_EQ(lmx::app::csv_cell("a, \"b\""), "\"a, \"\"b\"\"\"");
}

}  // namespace
}  // namespace lmx_test

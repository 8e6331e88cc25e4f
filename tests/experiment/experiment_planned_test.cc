// Cells of `lmx experiment` whose numbers the planner computes.
#include <sys/inotify.h>
#include <unistd.h>

#include <cmath>

#include "experiment/results.h"

namespace lmx_test {
namespace {

// Two strategies on 8 and 64 ranks that no run could test here: the text is not available.
constexpr const char* kPlanned = R"yaml(title: Hours of two strategies
scales:
  paper:
    recipe: ../tiny.yaml
    plan:
      machine: ${where}
      collectives: ring
      epoch_tokens: 1e9
      types: 8.17,0.64
      overrides: [machine.links.ranks_per_node=4]
      base: {G: 8}
axes:
  sync: {own: [sync.tables.strategy=unique], dense: [sync.tables.strategy=allgather_dense]}
  G: [8, 64]
  where: [h100_node, a100_node]
cells: [{run: false}]
overrides: ["comm.ranks=${G}", "batch.global=${batch}"]
variables: {batch: 4 * G}
measures:
  hours: {plan: hours_per_epoch, unit: h, paper: {own-8-h100_node: 20, own-64-h100_node: 1, dense-64-h100_node: 1000}}
  step: {plan: step_s, digits: 6}
  efficiency: {plan: efficiency}
  activations: {plan: memory/activations}
  gain: {value: "hours[dense, 8, h100_node] / hours", only: {where: h100_node}}
checks:
  - {claim: faster, value: "hours[own, 8, h100_node] - hours[own, 64, h100_node]", at_least: 0}
  - {claim: known step, class: planned, value: "hours[own, 8, h100_node]", expect: 21.9}
  - {claim: not so, class: planned, value: "hours[own, 8, h100_node]", expect: 25}
figure:
  layers:
    - {x: G, y: hours, by: sync, only: {where: h100_node}}
    - {kind: paper, x: G, y: hours, by: sync, only: {where: h100_node}}
)yaml";

// The step of the cell own-8-h100_node.
constexpr const char* kKnown = R"yaml(
known:
  - {recipe: tiny, overrides: [sync.tables.strategy=unique, comm.ranks=8, batch.global=32], ranks: 8,
     hours_per_epoch: 20, epoch_tokens: 1e9, types: "8.17,0.64"}
sources:
  known: "this test")yaml";

class Planned : public RunTest {
 protected:
  Planned() {
    fs::create_directory(folder_ / "experiments");
    std::string recipe = kTinyRecipe;
    const size_t data = recipe.find("data: {");
    recipe.replace(data, recipe.find('\n', data) - data, "data: {name: text, corpus: fbis, vocab_size: 60}");
    write("tiny.yaml", recipe + "comm: {name: virtual, ranks: 2}\nsync:\n" +
                           "  tables: {params: 'embedding|softmax.weight', strategy: unique}\n" +
                           "  rest: {params: '.*', strategy: allreduce}\n");
    write("experiments/hours.yaml", kPlanned);
    fs::create_directory(folder_ / "machine");  // comes before the shipped one
    std::string machine = read_file(source_path("/recipes/machine/h100_node.yaml"));
    write("machine/h100_node.yaml", machine.replace(machine.find("\nsources:"), 9, kKnown));
  }
  Outcome experiment(const std::string& command, Words more = {}) const {
    return lmx(joined({"experiment", command, path("experiments/hours.yaml"), "--out", path("out")}, more));
  }
  Json shown() const {
    const Outcome o = experiment("show", {"--json"});
    EXPECT_THAT(o, Succeeds());
    return o.code == 0 ? Json::parse(o.out) : Json{{"cells", Json::array()}, {"verdicts", Json::array()}};
  }
  // Replaces one passage of the file; the command must then be refused with these words.
  void refused(const std::string& from, const std::string& to, const Words& parts) const {
    std::string text = kPlanned;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write("experiments/hours.yaml", text.replace(at, from.size(), to));
    const Outcome o = experiment("show");
    EXPECT_EQ(o.code, 2) << to << "\n" << o.out;
    EXPECT_THAT(o.err, HasSubstr("error: " + path("experiments/hours.yaml") + ":")) << to;
    EXPECT_THAT(o.err, NamesMatcher(parts)) << to;
  }
};

TEST_F(Planned, CellsAreThoseOfThePlan) {
  const Json r = shown();
  const auto row = [&](const std::string& machine, int ranks, Words more) {
    more.insert(more.begin(),
                {"plan", path("tiny.yaml"), "--machine", machine, "--collectives", "ring", "--epoch-tokens", "1e9",
                 "--types", "8.17,0.64", "machine.links.ranks_per_node=4", "--json",
                 "comm.ranks=" + std::to_string(ranks), "batch.global=" + std::to_string(4 * ranks)});
    const Outcome o = lmx(more);
    EXPECT_THAT(o, Succeeds());
    return Json::parse(o.out)[0];
  };
  const Json a100 = row("a100_node", 64, {"sync.tables.strategy=allgather_dense"});
  const Json dense = cell(r, "dense-64-a100_node");
  EXPECT_EQ(dense["state"], "planned");
  EXPECT_TRUE(dense["measured"].empty());
  EXPECT_EQ(dense["planned"]["hours"], a100["hours_per_epoch"]);
  EXPECT_EQ(dense["planned"]["step"], a100["step_s"]);
  EXPECT_EQ(dense["planned"]["activations"].get<double>(), a100["memory"]["activations"].get<double>());
  EXPECT_EQ(dense["speed"], 1.0);

  // The known step sets the speed of its cell, and of the other cells on that machine.
  const Json known = row("h100_node", 8, {}), known8 = cell(r, "own-8-h100_node");
  EXPECT_NEAR(known8["planned"]["hours"], 20, 1);  // it was measured without this cell's collectives
  EXPECT_EQ(known8["planned"]["step"], known["step_s"]);
  EXPECT_EQ(known8["speed"], known["speed"]);
  EXPECT_NE(known8["speed"], 1.0);
  EXPECT_EQ(known8["sets_speed"], true);
  EXPECT_EQ(cell(r, "dense-64-h100_node")["speed"], known["speed"]);
  EXPECT_EQ(cell(r, "dense-64-h100_node")["sets_speed"], false);

  // Efficiency: tokens a second of a rank, to the same cell with eight ranks.
  const Json own8 = cell(r, "own-8-a100_node")["planned"], own64 = cell(r, "own-64-a100_node")["planned"];
  EXPECT_EQ(own8["efficiency"], 1.0);
  EXPECT_NEAR(own64["efficiency"], own8["step"].get<double>() / own64["step"].get<double>(), 1e-12);
  EXPECT_NEAR(cell(r, "own-64-h100_node")["planned"]["gain"].get<double>(),
              cell(r, "dense-8-h100_node")["planned"]["hours"].get<double>() /
                  cell(r, "own-64-h100_node")["planned"]["hours"].get<double>(),
              1e-12);
  EXPECT_FALSE(cell(r, "own-64-a100_node")["planned"].contains("gain"));
}

TEST_F(Planned, TablesVerdictsAndFigureSaySo) {
  const Outcome o = experiment("run");  // nothing runs, so the missing text does not matter
  ASSERT_THAT(o, Succeeds());
  EXPECT_THAT(read_file(folder_ / "out/table.md"),
              Names("hours (h, planned)", " (*set*) | 20 |", "the paper marked *set*: computation"));
  EXPECT_THAT(o.out, Names("hours (h, planned)", " (set)         20  ", "the paper marked set: computation",
                           "by `lmx plan` for a100_node, h100_node, not measured"));
  EXPECT_THAT(o.out,
              testing::ContainsRegex("Of 2 numbers of the paper that depend on time, the planner is close enough to "
                                     "[0-2]; without any communication, and with the same calibration, it would be "
                                     "to [0-2]\\."));
  const Json r = Json::parse(read_file(folder_ / "out/results.json"));
  EXPECT_EQ(r, shown());
  EXPECT_EQ(verdict(r, "faster")["verdict"], "the planner agrees");
  EXPECT_EQ(verdict(r, "known step")["verdict"], "the planner agrees");  // 10 % are allowed
  EXPECT_EQ(verdict(r, "not so")["verdict"], "the planner misses");
  EXPECT_EQ(verdict(r, "known step")["planned"], true);
  const Json paper = verdict(r, "hours: the paper's numbers");
  EXPECT_EQ(paper["class"], "planned");
  EXPECT_THAT(paper["verdict"].get<std::string>(), testing::MatchesRegex("the planner misses by [0-9.]+ %"));
  EXPECT_THAT(paper["reason"].get<std::string>(), Names("2 cells", "1 more sets the planner's speed"));
  const std::string figure = read_file(folder_ / "out/figure.svg");
  EXPECT_THAT(figure, Names("own (planned)", "dense (planned)", "own, paper"));
}

// A machine beside the experiment, with so little memory that only some cells fit.
TEST_F(Planned, CellsThatDoNotFitHaveNoTimes) {
  std::string text = kPlanned;
  text.replace(text.find("{plan: memory/activations}"), 26, "{plan: memory_bytes}");
  write("experiments/hours.yaml", text);
  const auto memory = [](const Json& results, const std::string& id) {
    return cell(results, id)["planned"]["activations"].get<double>();
  };
  const Json enough = shown();
  double most = 0;
  for (const std::string id : {"own-8", "own-64", "dense-8"}) most = std::max(most, memory(enough, id + "-h100_node"));
  const double limit = (most + memory(enough, "dense-64-h100_node")) / 2;
  ASSERT_GT(limit, most);

  std::string machine = read_file(source_path("/recipes/machine/h100_node.yaml"));
  const size_t at = machine.find("memory_gb: ");
  machine.replace(at, machine.find('\n', at) - at, "memory_gb: " + std::to_string(limit / 1e9));
  write("experiments/small.yaml", machine);
  text.replace(text.find("${where}"), 8, "small.yaml");
  text.replace(text.find("[machine.links.ranks_per_node=4]"), 32, "[]");
  text.replace(text.find("dense-64-h100_node: 1000"), 24, "dense-64-h100_node: out of memory");
  write("experiments/hours.yaml", text);
  const Json r = shown();
  for (const Json& c : r["cells"]) {
    const bool out = c["id"].get<std::string>().starts_with("dense-64");
    EXPECT_EQ(c["out_of_memory"], out) << c["id"];
    EXPECT_EQ(c["planned"].contains("hours"), !out) << c["id"];
    EXPECT_EQ(c["planned"].contains("gain"), !out && c["place"]["where"] == "h100_node") << c["id"];
  }
  EXPECT_THAT(experiment("show").out, HasSubstr("  out of memory       out of memory  "));
  const Json paper = verdict(r, "hours: the paper's numbers");
  EXPECT_THAT(paper["reason"].get<std::string>(), Not(HasSubstr("ran out of memory here or in the paper")));
}

// Counts how often a file is opened while it lives.
class OpenCounter {
 public:
  explicit OpenCounter(const std::string& path) : events_(inotify_init1(IN_NONBLOCK)) {
    // With the events of closing between them, two openings in a row are not merged to one event.
    if (inotify_add_watch(events_, path.c_str(), IN_OPEN | IN_CLOSE) < 0) throw std::runtime_error("no inotify");
  }
  ~OpenCounter() { close(events_); }
  OpenCounter(const OpenCounter&) = delete;
  OpenCounter& operator=(const OpenCounter&) = delete;
  size_t take() const {
    size_t opened = 0;
    alignas(inotify_event) char buffer[1 << 16];
    for (ssize_t n; (n = read(events_, buffer, sizeof buffer)) > 0;)
      for (ssize_t at = 0; at < n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        opened += (event->mask & IN_OPEN) != 0;
        at += static_cast<ssize_t>(sizeof *event + event->len);
      }
    return opened;
  }

 private:
  int events_;
};

// A plan reads its machine, so the file counts the plans: one for each cell, also for those that set the speed or that
// others are relative to.
TEST_F(Planned, EachCellIsPlannedOnce) {
  fs::copy_file(source_path("/recipes/machine/h100_node.yaml"), folder_ / "experiments/own.yaml");
  const OpenCounter machine(path("experiments/own.yaml"));
  ASSERT_THAT(lmx({"plan", path("tiny.yaml"), "--machine", path("experiments/own.yaml")}), Succeeds());
  const size_t each = machine.take();
  ASSERT_GT(each, 0u);
  std::string text = kPlanned;
  text.replace(text.find("machine: ${where}"), 17, "machine: own.yaml");
  text.replace(text.find("[machine.links.ranks_per_node=4]"), 32, "[]");
  write("experiments/hours.yaml", text);
  EXPECT_EQ(shown()["cells"].size(), 8u);
  EXPECT_EQ(machine.take(), 8 * each);
}

// A measure with a key and a plan is measured in cells that run, and planned in the others.
TEST_F(Planned, BesideMeasuredCells) {
  write("tiny.yaml", std::string(kTinyRecipe) + "comm: {name: virtual, ranks: 2}\n");
  write("experiments/hours.yaml", R"yaml(title: t
scales: {desk: {recipe: ../tiny.yaml, overrides: [train.steps=4, train.eval_every=4, batch.micro=0]}}
plan: {machine: a100_node, epoch_tokens: 3000}
axes: {G: [2, 4]}
cells: [{G: 2}, {G: 4, run: false}]
overrides: ["comm.ranks=${G}"]
measures:
  sent: {split: rank, key: comm/*/sent_bytes, take: per_step, plan: sent_bytes, class: formula, within: 0.01}
  hours: {plan: hours_per_epoch}
  measured: {key: ppl}
checks:
  - {claim: bytes, class: exact, value: "sent[2]", at_least: 1}
  - {claim: both, class: exact, value: "sent[4]", at_least: 1}
)yaml");
  ASSERT_THAT(experiment("show"), Prints("not run", "(planned)"));
  ASSERT_THAT(experiment("run"), Succeeds());
  const Json r = shown();
  EXPECT_TRUE(cell(r, "2")["measured"].contains("sent"));
  EXPECT_FALSE(cell(r, "2")["planned"].contains("sent"));
  EXPECT_TRUE(cell(r, "2")["planned"].contains("hours"));
  EXPECT_TRUE(cell(r, "4")["planned"].contains("sent"));
  EXPECT_FALSE(cell(r, "4")["planned"].contains("measured"));
  EXPECT_EQ(verdict(r, "bytes")["planned"], false);
  EXPECT_EQ(verdict(r, "both")["planned"], true);
}

TEST_F(Planned, MistakesInTheFile) {
  refused("machine: ${where}", "machine: h1000_node", {"cell own-8-h100_node", "h1000_node"});
  refused("plan: step_s", "plan: step_ss", {"measures.step.plan", "'step_ss'", "'step_s'?"});
  refused("plan: step_s", "plan: price_per_epochs", {"'price_per_epoch'?"});
  refused("      base: {G: 8}\n", "", {"measures.efficiency.plan", "`base`"});
  refused("base: {G: 8}", "base: {G: 9}", {"axis G", "'9'"});
  refused("      epoch_tokens: 1e9\n", "", {"measures.hours.plan", "`epoch_tokens`"});
  refused("collectives: ring", "collectives: rings", {"'ring'?"});
  refused("collectives: ring", "spread: 11", {"plan.spread", "from 0 to 10"});
  refused("collectives: ring", "colectives: ring", {"'collectives'?"});
  refused("plan: step_s", "unit: s", {"measures.step", "`plan`"});
  refused("dense-64-h100_node: 1000", "dense-64-h100_node: many", {"diverged or out of memory"});
}

}  // namespace
}  // namespace lmx_test

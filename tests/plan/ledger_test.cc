// The ledger of a step on a device that counts against that of the same step of virtual ranks, over random recipes. Ids
// of words are real on both, so the bytes and the collectives must be equal.
#include "app/datasets/open.h"
#include "app/memory/counted.h"
#include "app/plan/plan.h"
#include "backend/counting/device.h"
#include "plan_command.h"
#include "recipe/comm_config.h"
#include "train/fixture.h"
#include "train/loop/counted_step.h"

namespace lmx_test {
namespace {

using namespace lmx;

constexpr int64_t kVocabulary = 300;

// A choice from a list, for one purpose of one recipe.
class Choices {
 public:
  explicit Choices(uint64_t seed) : key_(RandomKey(seed).fold("plan against ledger")) {}
  template <class T>
  T of(const char* purpose, const std::vector<T>& all) const {
    return all[key_.fold(purpose).below(0, all.size())];
  }
  std::string text(const char* purpose, const Words& all) const { return of(purpose, all); }
  int64_t number(const char* purpose, int64_t first, int64_t last) const {
    return first + static_cast<int64_t>(key_.fold(purpose).below(0, static_cast<uint64_t>(last - first + 1)));
  }

 private:
  RandomKey key_;
};

std::string model_of(const Choices& c) {
  const std::string embedding = std::to_string(c.number("embedding", 3, 13)),
                    cells = std::to_string(c.number("cells", 4, 17));
  const std::string layers = std::to_string(c.number("layers", 1, 2));
  return c.text("model", {"{name: lstm, embedding: " + embedding + ", cells: " + cells + ", layers: " + layers + "}",
                          "{name: lstm, embedding: " + embedding + ", cells: " + cells + ", projection: 3}",
                          "{name: rhn, embedding: " + embedding + ", cells: " + cells + ", depth: 2}",
                          "{name: mlstm, embedding: " + embedding + ", cells: " + cells + "}"});
}

// A rule for the input table, one for the output layer if its loss samples, and one for the rest.
std::string rules_of(const Choices& c, bool samples) {
  const std::string codec = c.text("codec", {"{kind: none}", "{kind: fp16, scale: 64}", "{kind: bf16}"});
  const std::string bucket = c.text("bucket", {"0", "0.0005", "0.002", "150"});
  const std::string gather = c.text("gather", {"unique", "raw"});
  const std::string unique = "{params: .*embedding.*, strategy: unique, gather: " + gather + ", codec: " + codec + "}";
  const std::string input =
      c.text("tables", {unique, unique, "{params: .*embedding.*, strategy: allgather, codec: " + codec + "}",
                        "{params: .*embedding.*, strategy: allgather_dense}"});
  const std::string output = "{params: ^softmax, strategy: seeded, codec: " + codec + ", gather: " + gather +
                             ", seeds: " + c.text("seeds", {"all", "one", "log2", "power_0.64"}) + "}";
  const std::string rest =
      c.text("rest", {"{params: .*, strategy: allreduce, bucket_mb: " + bucket + ", codec: " + codec + "}",
                      "{params: .*, strategy: allreduce, levels: 2, bucket_mb: " + bucket + ", codec: " + codec + "}",
                      "{params: .*, strategy: one_bit, bucket_mb: " + bucket + "}"});
  return "{input: " + input + (samples ? ", output: " + output : "") + ", rest: " + rest + "}";
}

struct Drawn {
  std::string text;
  int ranks = 1;
  bool samples = false;
};

Drawn recipe_of(uint64_t seed) {
  const Choices c(seed);
  Drawn d;
  d.samples = c.number("samples", 0, 1) == 1;
  d.ranks = static_cast<int>(c.number("ranks", 1, 6));
  std::vector<int> divisors;
  for (int n = 1; n <= d.ranks; ++n)
    if (d.ranks % n == 0) divisors.push_back(n);
  // Up to 9 sequences of 7 words for each rank, and fewer for some; a rank may have none.
  const int64_t sequences = d.ranks * c.number("sequences", 1, 9) - c.number("fewer", 0, d.ranks - 1);
  d.text = str("data: {name: synthetic, vocab_size: ", kVocabulary, ", train_tokens: ", 8 * sequences + 400,
               ", valid_tokens: 300, test_tokens: 200, branching: 24, classes: 5}\n",
               "batcher: {name: random_windows, sequence_length: 7}\n", "batch: {global: ", sequences,
               ", micro: ", c.of("micro", std::vector<int64_t>{0, std::min<int64_t>(2, sequences)}), "}\n",
               "model: ", model_of(c),
               "\nloss: ", d.samples ? "{name: sampled_softmax, samples: 20}" : "{name: full_softmax}",
               "\noptimizer: {name: sgd, lr: 0.1}\nschedule: {name: constant}\nsync: ", rules_of(c, d.samples),
               "\ncomm: {name: virtual, ranks: ", d.ranks, ", ranks_per_node: ", c.of("nodes", divisors),
               "}\ntrain: {steps: 2}\nseed: ", seed, "\nthreads: 1\n");
  return d;
}

struct Sum {
  int64_t bytes = 0, between_nodes = 0, collectives = 0;
  bool operator==(const Sum&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Sum& s) {
  return out << s.bytes << " bytes, " << s.between_nodes << " of them between nodes, in " << s.collectives;
}

using SumsByRule = std::map<std::string, Sum>;

// The exchange of the second step, by rank.
std::vector<SumsByRule> exchanged(const Recipe& recipe, Device device) {
  SessionStart start;
  start.open = [&] { return lmx::app::open_dataset(recipe.data); };
  start.device = device;
  const auto group = make_comm_group(recipe.comm, "comm", comm_env(recipe, {}));
  std::vector<SumsByRule> ranks;
  for (const std::vector<LedgerEntry>& ledger : run_steps(recipe, *group, start).ledgers) {
    SumsByRule& sums = ranks.emplace_back();
    for (const LedgerEntry& e : ledger) {
      if (e.group == "control") continue;  // texts with losses
      Sum& sum = sums[e.group];
      sum.bytes += e.sent;
      sum.between_nodes += e.sent_between_nodes;
      ++sum.collectives;
    }
  }
  return ranks;
}

TEST(PlanLedger, RandomRecipesSendWhatIsCounted) {
  load_plugins();
  int exchanging = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Drawn d = recipe_of(seed);
    SCOPED_TRACE(d.text);
    const Recipe recipe = read_recipe(parse_yaml(d.text, str("recipe ", seed)), "random");
    const auto counting = CountingDevice::make(Device::Kind::cpu);
    const std::vector<SumsByRule> made = exchanged(recipe, {});
    EXPECT_EQ(exchanged(recipe, counting->device()), made);
    exchanging += !made[0].empty();
  }
  EXPECT_GT(exchanging, 25);
}

// Each worker stores the optimizer's state of its shard. The time of an update depends on the state of all values.
TEST(PlanLedger, TheStateOfAllShardsCountsForTheUpdatesOfWorkers) {
  load_plugins();
  const Recipe recipe = read_recipe(
      parse_yaml("data: {name: synthetic, vocab_size: 300, train_tokens: 9000, valid_tokens: 300, test_tokens: 200}\n"
                 "batcher: {name: random_windows, sequence_length: 7}\nbatch: {global: 8}\n"
                 "model: {name: lstm, embedding: 8, cells: 16}\nloss: {name: full_softmax}\n"
                 "optimizer: {name: adam, lr: 0.1}\nschedule: {name: constant}\n"
                 "sync: {all: {params: '.*', strategy: param_server}}\n"
                 "comm: {name: virtual, ranks: 4}\ntrain: {steps: 2}\nthreads: 1\n",
                 "workers"),
      "workers");
  const BatchPlan plan = lmx::app::outline_of(recipe, 4, 4).batch;
  const auto on = [&](int ranks) { return lmx::app::count_rank(recipe, plan, {.ranks = ranks}); };
  EXPECT_GT(on(1).state, 0);
  for (const int ranks : {2, 4, 1'000}) {
    EXPECT_EQ(on(ranks).state, on(1).state) << ranks;
    EXPECT_LT(on(ranks).memory.of(MemClass::optimizer), on(1).memory.of(MemClass::optimizer)) << ranks;
  }
}

// A request that is planned at several speeds, and the steps of ranks that one computer computes in turn.

using namespace lmx::app::plan;

class PlannerOfARequest : public PlanCommand {
 protected:
  PlannerOfARequest() {
    load_plugins();
    write("tiny.yaml",
          std::string(kTinyRecipe) + "comm: {name: self}\nsync: {rest: {params: '.*', strategy: allreduce}}\n");
  }
  Request request(Words overrides = {}) const {
    Request r;
    r.recipe = path("tiny.yaml");
    r.machine = source_path("/recipes/machine/desk_10gbe.yaml");
    r.compose.overrides = std::move(overrides);
    r.ranks = {1, 2, 4};
    return r;
  }
};

TEST_F(PlannerOfARequest, BuildsEachCaseOnce) {
  Planner planner(request());
  const double speed = planner.speed_of({2, 0.25});
  const Plan plan = planner.plan(speed);
  EXPECT_EQ(planner.built(), 3u);
  EXPECT_NEAR(plan.rows[1].time.step_s(), 0.25, 1e-9);
  Request anchored = request();
  anchored.anchor = Anchor{2, 0.25};
  const Plan other = make_plan(anchored);
  EXPECT_EQ(other.rows[0].speed, speed);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(other.rows[i].time.step_s(), plan.rows[i].time.step_s());
  EXPECT_TRUE(planner.rows(1).curves.empty());
  EXPECT_FALSE(plan.curves.empty());
}

// Without a network the ranks in turn take their passes and exchanges one after the other, and one update.
TEST_F(PlannerOfARequest, RanksInTurnTakeTheSumOfTheirPasses) {
  const Plan plan = Planner(request()).rows(1);
  const auto& one = plan.rows[0];
  EXPECT_NEAR(one.in_turn_s, one.time.compute_s, 1e-12);
  EXPECT_GT(plan.rows[2].in_turn_s, 3 * plan.rows[2].time.compute_s);
  EXPECT_LT(plan.rows[2].in_turn_s, 4 * (plan.rows[2].time.compute_s + plan.rows[2].time.comm_s));
  Request one_core = request();
  one_core.cores = 1;
  EXPECT_GT(Planner(one_core).rows(1).rows[0].in_turn_s, one.in_turn_s);  // most of it is the start of ops
}

}  // namespace

}  // namespace lmx_test

// The bytes and the collectives of a plan against the ledger of a step of virtual ranks, over random recipes.
//
// Where the plan's numbers of rows are exact, its bytes must be, too. In these recipes they are: each rank's share has
// every word of the text, and a loss that samples takes all words as candidates.
#include <gmock/gmock.h>

#include <numeric>

#include "app/datasets/open.h"
#include "app/memory/outline.h"
#include "recipe/comm_config.h"
#include "train/fixture.h"
#include "train/loop/step.h"

namespace lmx_test {
namespace {

using namespace lmx;
using namespace lmx::train;

// 60 words and one that the text does not have, so that 1 to 6 ranks divide the rows of an input table evenly.
constexpr int64_t kVocabulary = 61, kWords = 60;

// A choice from a list, for one purpose of one recipe.
class Choices {
 public:
  explicit Choices(uint64_t seed) : key_(RandomKey(seed).fold("plan against ledger")) {}
  template <class T>
  T of(const char* purpose, const std::vector<T>& all) const {
    return all[key_.fold(purpose).below(0, all.size())];
  }
  std::string text(const char* purpose, const std::vector<std::string>& all) const { return of(purpose, all); }
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

// A rule for tables, and one for the rest. With one_bit the rows that a rank sums depend on their indices, and a table
// with all 61 rows is not divided evenly; so the output layer is dense there.
std::string rules_of(const Choices& c, bool samples) {
  const std::string elementwise = c.text("codec", {"{kind: none}", "{kind: fp16, scale: 64}", "{kind: bf16}"});
  const std::string codec = samples ? elementwise : c.text("any codec", {elementwise, "{kind: one_bit}"});
  const std::string bucket = c.text("bucket", {"0", "0.0005", "0.002", "150"});
  const std::string gather = c.text("gather", {"unique", "raw"});
  const std::string unique = "{params: .*embedding.*, strategy: unique, gather: " + gather + ", codec: " + codec + "}";
  const std::string input =
      c.text("tables", {unique, unique, "{params: .*embedding.*, strategy: allgather, codec: " + elementwise + "}",
                        "{params: .*embedding.*, strategy: allgather_dense}"});
  const std::string output = "{params: ^softmax, strategy: seeded, codec: " + codec + ", gather: " + gather +
                             ", seeds: " + c.text("seeds", {"all", "one", "log2", "power_0.64"}) + "}";
  const std::string rest = c.text(
      "rest", {"{params: .*, strategy: allreduce, bucket_mb: " + bucket + ", codec: " + elementwise + "}",
               "{params: .*, strategy: allreduce, levels: 2, bucket_mb: " + bucket + ", codec: " + elementwise + "}",
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
  // 40 to 50 sequences of 40 words for each rank, and an uneven number of them.
  const int64_t sequences = d.ranks * c.number("sequences", 40, 50) - c.number("fewer", 0, d.ranks - 1);
  d.text =
      str("data: {name: synthetic, vocab_size: ", kVocabulary, ", train_tokens: ", 41 * sequences + 40,
          ", valid_tokens: 300, test_tokens: 200, branching: 30, classes: 2}\n",
          "batcher: {name: random_windows, sequence_length: 40}\n", "batch: {global: ", sequences,
          ", micro: ", c.of("micro", std::vector<int>{0, 11}), "}\n", "model: ", model_of(c),
          "\nloss: ", d.samples ? str("{name: sampled_softmax, samples: ", kVocabulary, "}") : "{name: full_softmax}",
          "\noptimizer: {name: sgd, lr: 0.1}\nschedule: {name: constant}\nsync: ", rules_of(c, d.samples),
          "\ncomm: {name: virtual, ranks: ", d.ranks, ", ranks_per_node: ", c.of("nodes", divisors),
          "}\ntrain: {steps: 1}\nseed: ", seed, "\nthreads: 1\n");
  return d;
}

struct Sum {
  int64_t bytes = 0, between_nodes = 0, collectives = 0;
  bool operator==(const Sum&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Sum& s) {
  return out << s.bytes << " bytes, " << s.between_nodes << " of them between nodes, in " << s.collectives;
}

Sum planned(const Recipe& recipe, const Drawn& d) {
  const Outline o = outline_of(recipe, d.ranks, comm_nodes(recipe.comm, "comm", d.ranks).per_node());
  // Candidates are all words, also the one that the text does not have.
  const auto law = [&](int64_t tokens, int64_t) { return tokens % o.shares.length == 0 ? kWords : kVocabulary; };
  Sum sum;
  for (const UnitPlan& unit : exchange_of(*o.sync, o.network, o.shares, law)) {
    sum.bytes += unit.sent;
    sum.between_nodes += unit.sent_between_nodes;
    sum.collectives += unit.collectives;
  }
  return sum;
}

// The exchange of one step on rank 0.
Sum counted(const Recipe& recipe) {
  Sum sum;
  const auto group = make_comm_group(recipe.comm, "comm", comm_env(recipe, {}));
  group->run([&](Communicator& comm) {
    Session session(recipe, comm, SessionStart{.open = [&] { return open_dataset(recipe.data); }});
    RunState run(session, "", Position(), 0);
    StepRunner steps(run, StepOf::group);
    const std::vector<Batch> share = steps.draw(0);
    const StepPlan plan = steps.begin(share, 0);
    steps.forward_backward(share, plan);
    const size_t before = comm.ledger().size();
    session.sync->finish();
    if (comm.rank() != 0) return;
    for (size_t i = before; i < comm.ledger().size(); ++i) {
      const LedgerEntry& e = comm.ledger()[i];
      sum.bytes += e.sent;
      sum.between_nodes += e.sent_between_nodes;
      ++sum.collectives;
    }
  });
  return sum;
}

TEST(PlanLedger, RandomRecipesSendWhatTheirPlansState) {
  load_plugins();
  int exchanging = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Drawn d = recipe_of(seed);
    SCOPED_TRACE(d.text);
    const Recipe recipe = read_recipe(parse_yaml(d.text, str("recipe ", seed)), "random");
    const Sum plan = planned(recipe, d), ledger = counted(recipe);
    EXPECT_EQ(plan, ledger);
    exchanging += ledger.bytes > 0;
  }
  EXPECT_GT(exchanging, 40);
}

}  // namespace
}  // namespace lmx_test

// A step on a device that counts has the memory and the exchange of the same step with values.
#include <map>

#include "backend/counting/device.h"
#include "data/data_config.h"
#include "data/drawn_text.h"
#include "recipe/comm_config.h"
#include "train/loop/counted_step.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

struct Case {
  std::string name, text;
  Changes changes = {};
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

constexpr const char* kWords = R"(
data: {name: synthetic, vocab_size: 4000}
batcher: {name: random_windows, sequence_length: 20}
batch: {global: 16}
optimizer: {name: adam, lr: 0.001}
train: {steps: 2, eval_batch: 8, eval_tokens: 200}
threads: 2
)";

constexpr const char* kPairs = R"(
data: {name: parallel, corpus: none, vocab_size: 2000, source_language: en, target_language: de}
batcher: {name: token_budget, max_tokens: 400}
batch: {global: 2}
optimizer: {name: adam, lr: 0.001}
train: {steps: 2, eval_batch: 8}
threads: 2
)";

const std::vector<Case> kCases{
    {"lstm",
     str(kWords, "model: {name: lstm, embedding: 64, cells: 128}\nloss: {name: sampled_softmax, samples: 200}\n")},
    {"lstm_full",
     str(kWords, "model: {name: lstm, embedding: 64, cells: 128, projection: 32}\nloss: {name: full_softmax}\n")},
    {"mlstm", str(kWords, "model: {name: mlstm, embedding: 64, cells: 128}\nloss: {name: full_softmax}\n")},
    {"rhn",
     str(kWords, "model: {name: rhn, embedding: 64, cells: 128}\nloss: {name: sampled_softmax, samples: 200}\n")},
    {"rhn_checkpoint", str(kWords,
                           "model: {name: rhn, embedding: 64, cells: 128, layers: 2, checkpoint: true}\n"
                           "loss: {name: sampled_softmax, samples: 200}\n")},
    {"transformer", str(kWords,
                        "model: {name: transformer, encoder_layers: 0, decoder_layers: 2, d: 64, ffn: 128, "
                        "heads: 4}\nloss: {name: full_softmax}\n")},
    {"gpt", str(kWords,
                "model: {name: gpt, layers: 2, d: 64, heads: 4, kv_heads: 2, qk_norm: true, dropout: 0.1}\n"
                "loss: {name: full_softmax, bias: false}\n")},
    {"gpt_checkpoint", str(kWords,
                           "model: {name: gpt, layers: 4, d: 64, heads: 4, positions: learned, norm: layer, "
                           "activation: gelu_tanh, bias: true, checkpoint: true}\nloss: {name: full_softmax}\n")},
    {"mlstm_normalised",
     str(kWords,
         "model: {name: mlstm, embedding: 64, cells: 128, layers: 2, dropout: 0.2, weight_norm: '.*'}\n"
         "loss: {name: full_softmax}\n")},
    {"rhn_free",
     str(kWords,
         "model: {name: rhn, embedding: 64, cells: 128, layers: 2, depth: 3, dropout: 0.2, coupled: false}\n"
         "loss: {name: full_softmax}\n")},
    {"translation", str(kPairs,
                        "model: {name: transformer, encoder_layers: 2, decoder_layers: 2, d: 64, ffn: 128, "
                        "heads: 4}\nloss: {name: full_softmax}\n")},
};

Dataset data_of(const Recipe& recipe) {
  const bool pairs = kind_of(recipe.data) == Kind::parallel;
  return drawn_text(
      {.vocabulary = vocabulary_size(recipe.data), .tokens = 500'000, .valid_tokens = 2'000, .pairs = pairs});
}

StepMemory steps_on(const Recipe& recipe, const std::optional<Device>& device) {
  SessionStart start;
  start.open = [&] { return data_of(recipe); };
  start.device = device;
  const auto group = recipe.comm.kind == Node::Kind::map ? make_comm_group(recipe.comm, "comm", CommEnv{.threads = 1})
                                                         : make_self_group(static_cast<int>(recipe.threads));
  return run_steps(recipe, *group, start);
}

class CountedStep : public testing::TestWithParam<std::tuple<Case, std::string>> {
 protected:
  void SetUp() override { load_plugins(); }
};

// Partial sums inside a GPU's kernels are not counted: five for each of the 4,000 words of a bias.
double small_bytes() {
  return lmx_test::test_device() == "cpu" ? 1024 : 5 * 4000 * 4;
}

// `part`: the part of the real bytes by which the counted ones may differ.
void expect_near(const MemoryStats& counted, const MemoryStats& real, double part = 0.02) {
  for (int c = 0; c < kMemClasses; ++c) {
    const auto i = static_cast<size_t>(c);
    EXPECT_NEAR(static_cast<double>(counted.peak[i]), static_cast<double>(real.peak[i]),
                part * static_cast<double>(real.peak[i]) + small_bytes())
        << name_of(static_cast<MemClass>(c));
  }
  EXPECT_NEAR(static_cast<double>(counted.total_peak), static_cast<double>(real.total_peak),
              part * static_cast<double>(real.total_peak));
}

TEST_P(CountedStep, NeedsTheMemoryOfTheRealStep) {
  const auto& [c, precision] = GetParam();
  const Recipe recipe = read_recipe(changed(c.text, {{"precision", precision}}), c.name);
  const StepMemory real = steps_on(recipe, {});
  const auto counting = CountingDevice::make(device_named(recipe.device, "").kind);
  const StepMemory counted = steps_on(recipe, counting->device());
  expect_near(counted.training, real.training);
  expect_near(counted.evaluation, real.evaluation);
  EXPECT_GT(real.training.total_peak, 1'000'000);
}

// The parts of operands take memory, which only a GPU needs.
TEST(CountedParts, NeedTheMemoryOfTheRealStep) {
  load_plugins();
  if (lmx_test::test_device() == "cpu") GTEST_SKIP() << "the CPU has no such products";
  for (const Case& c : {kCases[1], kCases[2], kCases[5]}) {
    SCOPED_TRACE(c.name);
    const Recipe recipe = read_recipe(changed(c.text, {{"products", "bf16x3"}}), c.name);
    const StepMemory real = steps_on(recipe, {});
    const auto counting = CountingDevice::make(Device::Kind::cuda);
    const StepMemory counted = steps_on(recipe, counting->device());
    expect_near(counted.training, real.training);
    expect_near(counted.evaluation, real.evaluation);
    const Recipe exact = read_recipe(changed(c.text, {}), c.name);
    EXPECT_GT(counted.training.total_peak, steps_on(exact, counting->device()).training.total_peak);
  }
}

constexpr const char* kDecoder =
    "model: {name: transformer, encoder_layers: 0, decoder_layers: 2, d: 64, ffn: 128, heads: 4}\n"
    "loss: {name: full_softmax}\n";

TEST(CountedOptimizer, NeedsTheMemoryOfTheRealStep) {
  load_plugins();
  for (const std::string name : {"muon", "lamb", "lars", "adafactor", "lion", "schedule_free"}) {
    SCOPED_TRACE(name);
    const std::string rules =
        str("{tables: {params: embedding|softmax|bias|gain, name: adamw}, rest: {params: '.*', name: ", name, "}}");
    const Recipe recipe = read_recipe(changed(str(kWords, kDecoder), {{"optimizer", rules}}), name);
    const StepMemory real = steps_on(recipe, {});
    const auto counting = CountingDevice::make(device_named(recipe.device, "").kind);
    const StepMemory counted = steps_on(recipe, counting->device());
    expect_near(counted.training, real.training);
    expect_near(counted.evaluation, real.evaluation);
  }
}

constexpr const char* kSampled =
    "model: {name: lstm, embedding: 64, cells: 128}\nloss: {name: sampled_softmax, samples: 200}\n";

std::string rules(const std::string& input, const std::string& rest) {
  return str("sync: {input: {params: .*embedding.*, strategy: ", input,
             "}, output: {params: ^softmax, strategy: seeded, ", "seeds: log2}, rest: {params: '.*', strategy: ", rest,
             "}}\n");
}

// By strategy. The counted ranks exchange through the same communicator of threads.
const std::vector<Case> kExchanges{
    {"unique_allreduce", rules("unique", "allreduce")},
    {"unique_codec", rules("unique, gather: raw, codec: {kind: fp16}", "allreduce, codec: {kind: bf16}")},
    {"allgather", rules("allgather", "allreduce, bucket_mb: 0")},
    {"dense", rules("allgather_dense", "allreduce, bucket_mb: 0.1")},
    {"one_bit", rules("unique", "one_bit")},
    {"levels", rules("unique", "allreduce, levels: 2")},
    {"top_k", rules("top_k", "top_k, keep: 0.1, chunk: 256")},
    {"random_k", rules("random_k", "random_k, keep: 0.1, bucket_mb: 1")},
    {"qsgd", rules("unique", "qsgd, min_size: 200")},
    {"sign_majority", rules("unique", "sign_majority")},
    {"one_bit_adam", rules("unique", "one_bit_adam, freeze: 1"), {{"optimizer", "{name: sgd}"}}},
    {"zero", rules("unique", "zero, bucket_mb: 0.1")},
    {"zero_codec", rules("unique", "zero, codec: {kind: quantised, bits: 4, feedback: 1}")},
    {"replicas",
     "sync: {input: {params: .*embedding.*, strategy: diloco}, output: {params: ^softmax, strategy: local_sgd}, "
     "rest: {params: '.*', strategy: diloco, every: 4, fragments: 2, delay: 1, mix: 0.5}}\n"},
    {"replica_tables_beside_zero",
     "sync: {input: {params: .*embedding.*, strategy: local_sgd, every: 2}, output: {params: ^softmax, strategy: "
     "diloco}, rest: {params: '.*', strategy: zero, bucket_mb: 0.1}}\n"},
    {"one_replica_table_beside_zero",
     "sync: {input: {params: .*embedding.*, strategy: unique}, output: {params: ^softmax, strategy: local_sgd}, "
     "rest: {params: '.*', strategy: zero, bucket_mb: 0.1}}\n"},
    // Few own values: a thread may make its next step while another one still uses those that they share.
    {"replicas_beside_sums", rules("unique", "diloco, every: 4, fragments: 2"), {{"model.cells", "32"}}},
};

// The lines of a rank by group and collective, summed over its calls.
std::vector<LedgerEntry> sums_of(const std::vector<LedgerEntry>& ledger) {
  std::map<std::pair<std::string, std::string>, LedgerEntry> sums;
  for (const LedgerEntry& line : ledger) {
    LedgerEntry& sum = sums[{line.group, line.collective}];
    sum.group = line.group;
    sum.collective = line.collective;
    sum.sent += line.sent;
    sum.received += line.received;
    sum.sent_between_nodes += line.sent_between_nodes;
    sum.received_between_nodes += line.received_between_nodes;
  }
  std::vector<LedgerEntry> all;
  for (auto& [key, line] : sums) all.push_back(std::move(line));
  return all;
}

Recipe exchange_recipe(const Case& c) {
  Changes changes = c.changes;
  changes.emplace_back("comm", "{name: virtual, ranks: 4, ranks_per_node: 2}");
  return read_recipe(changed(str(kWords, kSampled, c.text), changes), c.name);
}

class CountedExchange : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { load_plugins(); }
};

TEST_P(CountedExchange, SendsTheBytesOfTheRealStep) {
  const Case& c = GetParam();
  const Recipe recipe = exchange_recipe(c);
  const StepMemory real = steps_on(recipe, {});
  const auto counting = CountingDevice::make(device_named(recipe.device, "").kind);
  const StepMemory counted = steps_on(recipe, counting->device());
  expect_near(counted.training, real.training);
  ASSERT_EQ(counted.ledgers.size(), 4u);
  for (size_t rank = 0; rank < 4; ++rank) {
    const std::vector<LedgerEntry> ours = sums_of(counted.ledgers[rank]), wanted = sums_of(real.ledgers[rank]);
    ASSERT_EQ(ours.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const LedgerEntry &a = ours[i], &b = wanted[i];
      SCOPED_TRACE(str("rank ", rank, ": ", b.group, " ", b.collective));
      EXPECT_EQ(a.group, b.group);
      EXPECT_EQ(a.collective, b.collective);
      if (a.group == "control") continue;
      EXPECT_EQ(a.sent, b.sent);
      EXPECT_EQ(a.received, b.received);
      EXPECT_EQ(a.sent_between_nodes, b.sent_between_nodes);
    }
  }
}

int64_t sent_by(const std::vector<LedgerEntry>& lines, const std::string& group) {
  int64_t sum = 0;
  for (const LedgerEntry& line : lines)
    if (line.group == group) sum += line.sent;
  return sum;
}

StepMemory one_of(const Recipe& recipe, int rank, int ranks, int64_t per_node) {
  const auto counting = CountingDevice::make(device_named(recipe.device, "").kind);
  SessionStart start;
  start.open = [&] { return data_of(recipe); };
  start.device = counting->device();
  return count_steps(recipe, {.rank = rank, .ranks = ranks, .per_node = per_node}, start);
}

// The other three ranks do not exist. The bytes of dense gradients are equal; the rows of tables depend on the words
// that are drawn for the others.
TEST_P(CountedExchange, OfOneRankAlone) {
  const Case& c = GetParam();
  const Recipe recipe = exchange_recipe(c);
  const StepMemory real = steps_on(recipe, {}), counted = one_of(recipe, 1, 4, 2);
  ASSERT_EQ(sums_of(counted.ledgers[0]).size(), sums_of(real.ledgers[1]).size());
  EXPECT_EQ(sent_by(counted.ledgers[0], "rest"), sent_by(real.ledgers[1], "rest"));
  for (const std::string group : {"input", "output"}) {
    const auto bytes = static_cast<double>(sent_by(real.ledgers[1], group));
    EXPECT_GT(bytes, 0) << group;
    EXPECT_NEAR(static_cast<double>(sent_by(counted.ledgers[0], group)), bytes, 0.12 * bytes) << group;
  }
  expect_near(counted.training, real.training, 0.08);
  const auto peak = static_cast<double>(real.training.total_peak);
  EXPECT_NEAR(static_cast<double>(counted.training.total_peak), peak, 0.05 * peak);
}

TEST(CountedRank, OfTenThousand) {
  load_plugins();
  const int ranks = 10'000;
  const Recipe recipe = read_recipe(
      changed(str(kWords, kSampled, rules("unique", "allreduce, bucket_mb: 0")), {{"batch.global", "20000"}}), "many");
  const StepMemory counted = one_of(recipe, 5'000, ranks, 8);
  // Each rank sums a part of the values, gets it from all others, and sends its sum to them.
  const int64_t values = 4 * 128 * (64 + 128 + 1),
                own = chunk_begin(values, 5'001, ranks) - chunk_begin(values, 5'000, ranks);
  EXPECT_EQ(sent_by(counted.ledgers[0], "rest"), 4 * (values - own + (ranks - 1) * own));
}

// A recipe with a huge number is refused within seconds.
TEST(CountedDevice, RefusesMillionsOfKernels) {
  const auto counting = CountingDevice::make(Device::Kind::cpu);
  const auto count = [&](int64_t kernels) {
    for (int64_t i = 0; i < kernels; ++i) counting->count("mul");
  };
  EXPECT_NO_THROW(count(1'000'000));
  EXPECT_THROW(count(10'000'000), TooLargeStep);
}

// Losses and other small blocks are read outside of kernels, also if a recipe of tens of terabytes has used up the
// addresses.
TEST(CountedDevice, SmallBlocksStayAccessible) {
  const auto counting = CountingDevice::make(Device::Kind::cpu);
  Context ctx;
  counting->place(ctx);
  const auto allocate = [&](size_t bytes) { return ctx.allocator->allocate(bytes, MemClass::activations); };
  for (int i = 0; i < 50'000; ++i) allocate(size_t{900} << 20);
  auto* small = static_cast<char*>(allocate(4096));
  small[0] = 1;  // a fault without addresses
  EXPECT_EQ(small[4095], 0);
}

// Five iterations of Newton and Schulz of each hidden matrix (n, m), m <= n: 2 m^2 n + m^3 multiply-adds. Queries, keys
// and values are three matrices.
TEST(CountedOptimizer, MuonMultipliesInTheUpdate) {
  load_plugins();
  const std::string rules =
      "{tables: {params: embedding|softmax|bias|gain, name: adamw}, rest: {params: '.*', name: muon}}";
  const StepMemory counted =
      one_of(read_recipe(changed(str(kWords, kDecoder), {{"optimizer", rules}}), "muon"), 0, 1, 0);
  const auto macs = [](double n, double m) { return 5 * (2 * m * m * n + m * m * m); };
  EXPECT_EQ(macs_of(counted.update), 2 * (3 * macs(64, 64) + macs(64, 64) + 2 * macs(128, 64)));
  const StepMemory adam = one_of(read_recipe(changed(str(kWords, kDecoder), {}), "adam"), 0, 1, 0);
  EXPECT_EQ(macs_of(adam.update), 0);
  EXPECT_EQ(macs_of(adam.largest.forward), macs_of(counted.largest.forward));
}

// The matrix products of a pass, which a device that counts finds without a statement of the model.
struct Products {
  std::string name, model, loss;
  int64_t layers = 0, output = 0;  // multiply-adds of a target in the model and in the output layer, forward
};
void PrintTo(const Products& p, std::ostream* out) {
  *out << p.name;
}
class CountedProducts : public testing::TestWithParam<Products> {
 protected:
  void SetUp() override { load_plugins(); }
  static StepMemory count(const std::string& model, const std::string& loss) {
    const std::string text = str(kWords, "model: ", model, "\nloss: ", loss, "\n");
    return one_of(read_recipe(parse_yaml(text, "test"), "test"), 0, 1, 0);
  }
};

constexpr int64_t kTargets = 16 * 20, kD = 64, kCells = 128, kVocabulary = 4000, kFfn = 128;

TEST_P(CountedProducts, AreThoseOfTheFormulas) {
  const Products& p = GetParam();
  const CountedPass pass = count(p.model, p.loss).largest;
  EXPECT_EQ(pass.tokens, kTargets);
  // The softmax over all words computes its gradients in forward.
  const bool full = p.loss.find("full") != std::string::npos;
  const auto forward = static_cast<double>(kTargets * (p.layers + (full ? 3 : 1) * p.output)),
             backward = static_cast<double>(kTargets * (2 * p.layers + (full ? 0 : 2) * p.output));
  EXPECT_EQ(macs_of(pass.forward), forward);
  EXPECT_NEAR(macs_of(pass.backward), backward, 0.03 * backward);  // the state before the first step has no gradient
  EXPECT_EQ(pass.token_flops(), 2 * (macs_of(pass.forward) + macs_of(pass.backward)) / kTargets);
}

INSTANTIATE_TEST_SUITE_P(
    All, CountedProducts,
    testing::Values(Products{"lstm", "{name: lstm, embedding: 64, cells: 128}", "{name: sampled_softmax, samples: 200}",
                             4 * kCells*(kD + kCells), 200 * kCells},
                    Products{"projected", "{name: lstm, embedding: 64, cells: 128, projection: 32}",
                             "{name: full_softmax}", 4 * kCells*(kD + 32) + 32 * kCells, kVocabulary * 32},
                    Products{"mlstm", "{name: mlstm, embedding: 64, cells: 128}", "{name: full_softmax}",
                             5 * kCells*(kD + kCells), kVocabulary* kCells},
                    Products{"rhn", "{name: rhn, embedding: 64, cells: 128, depth: 3}", "{name: full_softmax}",
                             2 * kCells*(kD + 3 * kCells), kVocabulary* kCells}),
    [](const auto& test) { return test.param.name; });

TEST_F(CountedProducts, ActivationCheckpointingMultipliesAgain) {
  const std::string rhn = "{name: rhn, embedding: 64, cells: 128, depth: 3, layers: 2, segment: 5";
  const CountedPass kept = count(rhn + "}", "{name: full_softmax}").largest,
                    again = count(rhn + ", checkpoint: true}", "{name: full_softmax}").largest;
  EXPECT_EQ(macs_of(again.forward), macs_of(kept.forward));
  const double layers = macs_of(kept.forward) - static_cast<double>(3 * kTargets * kVocabulary * kCells);
  EXPECT_EQ(macs_of(again.backward), macs_of(kept.backward) + layers);
}

TEST_F(CountedProducts, OfAttention) {
  const std::string model = "{name: transformer, encoder_layers: 0, decoder_layers: 2, d: 64, ffn: 128, heads: 4}";
  const CountedPass pass = count(model, "{name: full_softmax}").largest;
  const double seen = kD * 21.0 / 2;  // a position sees 1 to 20 positions, each with kD numbers
  const double layers = static_cast<double>(2 * (4 * kD * kD + 2 * kD * kFfn)) + 2 * 2 * seen;
  const double forward = kTargets * (layers + static_cast<double>(3 * kVocabulary * kD));
  EXPECT_NEAR(macs_of(pass.forward), forward, 0.001 * forward);
  // Backward computes the scores again.
  const double backward = kTargets * (2 * layers + 2 * seen);
  EXPECT_NEAR(macs_of(pass.backward), backward, 0.01 * backward);
}

// The output layer's gradients are complete before those of the layers, and the input's table is the last.
TEST_F(CountedProducts, GradientsAreCompleteInTheOrderOfBackward) {
  const CountedPass pass = count("{name: lstm, embedding: 64, cells: 128, layers: 2}", "{name: full_softmax}").last;
  std::map<std::string, size_t> ready(pass.ready.begin(), pass.ready.end());
  EXPECT_EQ(ready.size(), pass.ready.size());
  EXPECT_EQ(ready.size(), 9u);
  EXPECT_LT(ready.at("softmax.weight"), ready.at("lstm.1.weight_hh"));
  EXPECT_LT(ready.at("lstm.1.weight_hh"), ready.at("lstm.0.weight_hh"));
  EXPECT_LE(ready.at("lstm.0.weight_hh"), ready.at("embedding.weight"));
  EXPECT_EQ(pass.ready.back().first, "embedding.weight");
  EXPECT_LE(pass.ready.back().second, pass.backward.size());
}

INSTANTIATE_TEST_SUITE_P(All, CountedExchange, testing::ValuesIn(kExchanges),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(All, CountedStep,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values("fp32", "bf16", "fp16")),
                         [](const auto& test) { return std::get<0>(test.param).name + "_" + std::get<1>(test.param); });

}  // namespace
}  // namespace lmx::app

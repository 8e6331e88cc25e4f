// Dropout masks, a sampled softmax's candidates, and therefore the rows that ranks exchange, differ between steps. The
// text is one repeated word and the learning rate is 0, so that steps differ only by their random numbers.
#include <gmock/gmock.h>

#include <set>

#include "data/dataset.h"
#include "lmx/parallel.h"
#include "recipe/comm_config.h"
#include "train/loop/trainer.h"
#include "train/run_folder.h"

namespace lmx::train {
namespace {

constexpr int64_t kSteps = 6;
constexpr const char* kRecipe = R"(
data: {name: synthetic, vocab_size: 400, train_tokens: 500, valid_tokens: 100, test_tokens: 0, classes: 4}
batcher: {name: random_windows, sequence_length: 5}
batch: {global: 6}
optimizer: {name: sgd, lr: 0}
train: {steps: 6, log_every: 1, eval_every: 6}
run: {tensorboard: false}
threads: 1
)";

class FreshDraws : public RunFolderTest {
 protected:
  // The distinct values of `key` over the steps.
  std::set<double> distinct(const std::string& key, const std::string& model_and_loss, int64_t ranks = 1) {
    const std::string dir = str("run", runs_++);
    const Node tree = parse_yaml(str(kRecipe, model_and_loss), "draws.yaml");
    Recipe r = read_recipe(tree, "draws");
    r.comm = parse_yaml(str("{name: virtual, ranks: ", ranks, "}"), "comm");
    std::filesystem::create_directories(path(dir));
    make_comm_group(r.comm, "comm", {1, {}})->run([&](Communicator& comm) {
      set_num_threads(comm.threads());
      Session session(r, comm, {.open = [&] { return data_; }});
      Trainer trainer(session, path(dir), {});
      EXPECT_EQ(trainer.run(), 0);
    });
    std::set<double> values;
    for (const auto& record : records(dir, "train")) values.insert(record.at(key).get<double>());
    return values;
  }
  static Dataset one_word() {
    Dataset data;
    std::vector<Vocabulary::Entry> entries{{"<unk>", 0}, {"</s>", 1}};
    for (int w = 0; w < 398; ++w) entries.push_back({str("w", w), 400 - w});
    data.vocabulary = Vocabulary(std::move(entries));
    data.train = TokenArray::of(std::vector<int32_t>(600, 7));
    data.valid = TokenArray::of(std::vector<int32_t>(60, 7));
    data.hash = "one word";
    return data;
  }
  Dataset data_ = one_word();
  int runs_ = 0;
};

TEST_F(FreshDraws, DropoutMasks) {
  const std::string loss = "loss: {name: full_softmax}\n";
  for (const char* name : {"lstm", "mlstm", "rhn"}) {
    const std::string model = str("model: {name: ", name, ", embedding: 8, cells: 10, dropout: ");
    EXPECT_EQ(distinct("nll_nat", loss + model + "0}").size(), 1u)
        << name << ": without random numbers the steps must be equal";
    EXPECT_EQ(distinct("nll_nat", loss + model + "0.5}").size(), kSteps) << name;
  }
  const std::string transformer =
      "model: {name: transformer, encoder_layers: 0, decoder_layers: 1, d: 8, ffn: 8, heads: 2, dropout: ";
  EXPECT_EQ(distinct("nll_nat", loss + transformer + "0}").size(), 1u);
  EXPECT_EQ(distinct("nll_nat", loss + transformer + "0.5}").size(), kSteps);
}

TEST_F(FreshDraws, CandidatesAndTheRowsThatRanksExchange) {
  const std::string model =
      "model: {name: lstm, embedding: 8, cells: 10}\nloss: {name: sampled_softmax, samples: 12}\n";
  EXPECT_EQ(distinct("nll_nat", model).size(), kSteps);
  const std::string unique = model + "sync: {rest: {params: '.*', strategy: unique}}\n";
  EXPECT_EQ(distinct("nll_nat", unique, 2).size(), kSteps);
  EXPECT_GT(distinct("rows/softmax.weight", unique, 2).size(), 2u);
}

}  // namespace
}  // namespace lmx::train

// Runs on synthetic parallel text with the smallest translation model.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>

#include "lmx/parallel.h"
#include "recipe/comm_config.h"
#include "train/loop/trainer.h"
#include "train/run_folder.h"

namespace lmx::app {

// Sentences of 1 to 9 words and </s>. The target words are a code of the source words, of which some are left out.
inline PairArray coded_pairs(int64_t n, uint64_t seed, int64_t vocabulary = 30) {
  const RandomKey key(seed);
  std::vector<int32_t> source, target;
  const auto words = static_cast<uint64_t>(vocabulary - 2);
  uint64_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto length = 1 + key.fold("length").below(static_cast<uint64_t>(i), 9);
    const auto topic = key.fold("topic").below(static_cast<uint64_t>(i), words);
    for (uint64_t w = 0; w < length; ++w, ++at) {
      const auto word = (topic + key.fold("word").below(at, 4)) % words;
      source.push_back(static_cast<int32_t>(2 + word));
      if (w == 0 || key.fold("left out").below(at, 4) > 0)
        target.push_back(static_cast<int32_t>(2 + (word * 5 + 1) % words));
    }
    source.push_back(Vocabulary::kEos);
    target.push_back(Vocabulary::kEos);
  }
  return {TokenArray::of(std::move(source)), TokenArray::of(std::move(target))};
}

inline Dataset parallel_data(int64_t train) {
  Dataset data;
  std::vector<Vocabulary::Entry> entries{{"<unk>", 0}, {"</s>", train}};
  for (int w = 0; w < 28; ++w) entries.push_back({str("w", w), 1});
  data.vocabulary = Vocabulary(std::move(entries));
  data.train_pairs = coded_pairs(train, 1);
  data.valid_pairs = coded_pairs(50, 2);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < data.valid_pairs.size(); ++i)
    tokens.insert(tokens.end(), data.valid_pairs.target(i).begin(), data.valid_pairs.target(i).end());
  data.valid = data.train = TokenArray::of(std::move(tokens));
  data.hash = "made up";
  return data;
}

// `data` of the recipe is a placeholder: the test passes the text to the run.
inline constexpr const char* kPairsRecipe = R"(
data: {name: synthetic, vocab_size: 30, train_tokens: 500, valid_tokens: 100, test_tokens: 0, classes: 2}
batcher: {name: token_budget, max_tokens: 60}
batch: {global: 8}
model: {name: tiny_translator, width: 8, dropout: 0.1}
loss: {name: full_softmax, label_smoothing: 0.1}
optimizer: {name: adam, lr: 0.02}
train: {steps: 12, log_every: 1, eval_every: 6}
checkpoint: {every: 5, keep_last: 5}
run: {tensorboard: false}
threads: 1
)";

class PairsTest : public RunFolderTest {
 protected:
  PairsTest() {
    static const bool once = [] {
      Registry::instance().add_directory(lmx_test::build_path("/tests/train_plugins"));
      return true;
    }();
    static_cast<void>(once);
  }
  static Node recipe(const Changes& changes) { return changed(kPairsRecipe, changes); }
  struct Result {
    std::vector<float> params;
    Position at;
    std::string stopped;
  };
  // Trains in `dir`. If `dir` already exists, continues the run there from its last checkpoint.
  Result train(const std::string& dir, const Changes& changes = {}, int64_t ranks = 0) {
    const Node tree = recipe(changes);
    Recipe r = read_recipe(tree, "pairs");
    if (ranks > 0) r.comm = parse_yaml(str("{name: virtual, ranks: ", ranks, "}"), "comm");
    const auto group = make_comm_group(r.comm, "comm", {1, {}});
    const bool resuming = !std::filesystem::create_directories(folder_ / dir);
    Result result;
    group->run([&](Communicator& comm) {
      set_num_threads(comm.threads());
      Session session(r, comm, {.resumed = resuming ? path(dir) : "", .open = [&] { return data_; }});
      Position at;
      if (resuming) {
        const std::string last = list_checkpoints(path(dir)).back().folder;
        at = unpack_state(session, load_checkpoint(last, session.ctx.host), last);
      } else if (session.leads() && !session.shared->costs->empty()) {
        write_all(path(dir + "/" + kCostsFile), session.shared->costs->to_json());
      }
      comm.barrier();
      Trainer trainer(session, path(dir), at);
      EXPECT_EQ(trainer.run(), 0);
      if (!session.leads()) return;
      result.at = trainer.position();
      result.stopped = trainer.stopped();
      result.params = values_of(session.shared->params);
    });
    return result;
  }
  Dataset data_ = parallel_data(300);
};

}  // namespace lmx::app

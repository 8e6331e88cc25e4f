// On a device the update is enqueued before the host knows the loss and the norm, and the next step before the host
// reads them. Results, records and messages are those of a run that waits in every step.
#include <algorithm>
#include <csignal>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "app/run/run.h"
#include "data/dataset.h"
#include "lmx/parallel.h"
#include "recipe/comm_config.h"
#include "runfiles/checkpoint.h"
#include "train/loop/trainer.h"
#include "train/run_folder.h"
#include "train/signals.h"

namespace lmx::app {
namespace {

using namespace lmx_test;
using testing::Contains;
using testing::Each;

// Appended to kWordRecipe. Two groups are clipped, of which one changes rows of a table, and bias and all else are not.
constexpr const char* kAhead = R"(
model: {name: lstm, embedding: 8, cells: 10, projection: 6, dropout: 0.2}
loss: {name: sampled_softmax, samples: 12}
optimizer: {name: adam, lr: 0.01}
clip: [{params: '^lstm.*weight', norm: 0.05}, {params: '^softmax', norm: 0.1}]
train: {steps: 12, log_every: 6, eval_every: 12, ema: 0.8, preflight: false}
checkpoint: {every: 12}
)";

// The numbers of measured and of updated steps each time that the host reads a result of the device. The emulated
// device may have computed it already, so that the host does not wait.
class Reads {
 public:
  struct At {
    int64_t measured, updated;
  };
  // `at_read` is called at each of them.
  explicit Reads(std::function<void(const At&)> at_read = {}) : at_read_(std::move(at_read)) {
    device_.guard_waits(std::make_shared<const WaitGuard>(WaitGuard{[] { return nullptr; }, [this] { note(); }}));
  }
  ~Reads() { device_.guard_waits(nullptr); }
  Reads(const Reads&) = delete;
  Reads& operator=(const Reads&) = delete;
  // The steps whose update was enqueued, at each read after the first update.
  std::vector<int64_t> updated() const {
    std::vector<int64_t> numbers;
    for (const At& at : all_)
      if (at.updated > 0) numbers.push_back(at.updated);
    return numbers;
  }
  // The steps that were measured, but whose update was not enqueued.
  std::vector<int64_t> open() const {
    std::vector<int64_t> numbers;
    for (const At& at : all_) numbers.push_back(at.measured - at.updated);
    return numbers;
  }

 private:
  void note() {  // each rank is a thread
    const std::lock_guard lock(mutex_);
    const DeviceCounts counts = device_.counts().since(before_);
    const auto launches = [&](const char* name) {
      const auto found = counts.launches.find(name);
      return found == counts.launches.end() ? 0 : found->second;
    };
    all_.push_back({launches("clip_factors"), launches("adam")});
    if (at_read_) at_read_(all_.back());
  }
  CudaDevice& device_ = cuda_device(0);
  DeviceCounts before_ = device_.counts();
  std::mutex mutex_;
  std::vector<At> all_;
  std::function<void(const At&)> at_read_;
};

class RunAhead : public RunFolderTest {
 protected:
  void SetUp() override {
    if (lmx_test::test_device() == "cpu") GTEST_SKIP() << "the CPU computes when it is asked to";
  }
  // The parameters after the run; its result is stored.
  std::vector<float> run(const std::string& dir, const Changes& changes = {}, const std::string& resume = "",
                         int64_t until = 0, int64_t ranks = 0) {
    result_ = run_recipe(recipe_in(dir, ranks, str(kWordRecipe, kAhead), changes), "ahead",
                         {.resume = resume, .until_step = until});
    const TrainState state = load_checkpoint(str(path(dir), "/checkpoints/step-", result_.steps), Allocator::cpu());
    std::vector<float> all;
    for (const StateDict* part : {&state.model, &state.train})
      for (const auto& [name, t] : *part)
        if (t.dtype() == DType::f32) all.insert(all.end(), t.values<float>().begin(), t.values<float>().end());
    return all;
  }
  // The records of training, without times.
  std::vector<nlohmann::json> log(const std::string& dir) const {
    std::vector<nlohmann::json> all = records(dir, "train");
    for (nlohmann::json& record : all)
      for (const char* time : {"step_s", "words_per_s", "comm_s", "comm_exposed_s"}) record.erase(time);
    return all;
  }
  RunResult result_;
};

const Changes kSkip{{"train.on_divergence", "skip"}};

// A wait between backward and update would leave the device without work. The policy `skip` needs it.
TEST_F(RunAhead, TheHostReadsNothingBetweenBackwardAndUpdate) {
  for (const int64_t ranks : {0, 2}) {
    const Reads early;
    run(str("stop", ranks), {}, "", 0, ranks);
    EXPECT_THAT(early.updated(), Contains(12));
    const std::vector<int64_t> open = early.open();
    if (ranks == 0) {
      EXPECT_THAT(open, Each(0));
    }
    // The other one of two ranks may still read an earlier result meanwhile, but not in each of the 12 steps.
    EXPECT_LT(std::count(open.begin(), open.end(), 1), 12) << ranks;
    const Reads late;
    run(str("skip", ranks), kSkip, "", 0, ranks);
    EXPECT_THAT(late.open(), Contains(1)) << ranks;
  }
}

// Nothing is recorded after a step whose successor is started before its loss is read: here steps 6 and 12 are logged.
TEST_F(RunAhead, TheNextStepIsStartedBeforeTheLossIsRead) {
  const Reads reads;
  run("a");
  std::vector<int64_t> norms;  // each step reads the norm and the loss
  const std::vector<int64_t> updated = reads.updated();
  for (size_t i = 0; i + 1 < updated.size() && norms.size() < 12; i += 2) {
    norms.push_back(updated[i]);
    EXPECT_EQ(updated[i + 1], updated[i]);
  }
  EXPECT_THAT(norms, ElementsAre(2, 3, 4, 5, 6, 6, 8, 9, 10, 11, 12, 12));
}

TEST_F(RunAhead, ResultsAndRecordsAreThoseOfARunThatWaits) {
  const std::vector<Changes> cases{{},
                                   {{"batch.micro", "2"}},
                                   {{"clip", "0.1"}, {"precision", "bf16"}},
                                   {{"precision", "fp16"}, {"loss_scale", "{preset: none, init: 64}"}},
                                   {{"loss", "{name: full_softmax}"}, {"optimizer", "{name: sgd, lr: 0.5}"}}};
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const auto with = [&](Changes more) {
      more.insert(more.end(), cases[i].begin(), cases[i].end());
      return more;
    };
    const auto ahead = run(str("ahead", i), cases[i]);
    EXPECT_EQ(run(str("waits", i), with(kSkip)), ahead);
    EXPECT_EQ(log(str("ahead", i)), log(str("waits", i)));
    EXPECT_EQ(run(str("each", i), with({{"train.log_every", "1"}})), ahead);
  }
}

TEST_F(RunAhead, ResumesAtEveryStepToTheBit) {
  const auto whole = run("whole");
  for (int64_t step = 1; step < 12; ++step) {
    const std::string dir = str("until", step);
    run(dir, {}, "", step);
    EXPECT_EQ(result_.steps, step);
    EXPECT_EQ(run(dir, {}, path(dir)), whole) << step;
    EXPECT_EQ(log(dir), log("whole")) << step;
  }
}

// A signal that arrives when the next step is started ends the run after that step.
TEST_F(RunAhead, ASignalEndsTheRunAfterTheStepThatIsStarted) {
  const auto whole = run("whole");
  {
    const Reads reads([](const Reads::At& at) {
      if (at.updated == 4 && SignalGuard::received() == 0) std::raise(SIGTERM);
    });
    run("a");
  }
  EXPECT_EQ(result_.exit_code, 128 + SIGTERM);
  EXPECT_EQ(result_.steps, 4);
  EXPECT_EQ(run("a", {}, path("a")), whole);
  EXPECT_EQ(log("a"), log("whole"));
}

// The host learns of it one step later, and reports the same step and numbers.
TEST_F(RunAhead, ADivergenceHasTheSameMessage) {
  for (const Changes& diverges :
       {Changes{{"optimizer", "{name: sgd, lr: 1e30}"}}, Changes{{"train.max_loss", "2"}, {"optimizer.lr", "0"}}}) {
    const auto text = [&](const std::string& dir, const char* log_every) {
      Changes changes{{"train.log_every", log_every}};
      changes.insert(changes.end(), diverges.begin(), diverges.end());
      return run_error([&] { run(dir + diverges[0].first, changes); });
    };
    const std::string each = text("each", "1");
    EXPECT_THAT(each, Names("[train] step ", "on_divergence: stop"));
    EXPECT_EQ(text("ahead", "6"), each);
    EXPECT_FALSE(std::filesystem::exists(path("ahead" + diverges[0].first + "/checkpoints/step-12")));
  }
}

// Dropout masks, a sampled softmax's candidates, and therefore the rows that ranks exchange, differ between steps. The
// text is one repeated word and the learning rate is 0, so that steps differ only by their random numbers.

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
}  // namespace lmx::app

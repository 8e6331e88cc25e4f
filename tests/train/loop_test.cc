// The training loop in one process: accumulation, carried state, evaluation, folders, comparison at a resume.
#include <signal.h>

#include <cmath>
#include <thread>

#include "app/datasets/open.h"
#include "app/run/run.h"
#include "autograd/gradient_sums.h"
#include "base/text.h"
#include "lmx/parallel.h"
#include "runfiles/checkpoint.h"
#include "train/loop/trainer.h"
#include "train/run_folder.h"
#include "train/signals.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

// Appended to kWordRecipe.
constexpr const char* kTraining = R"(
model: {name: lstm, embedding: 8, cells: 10, projection: 6}
loss: {name: full_softmax}
optimizer: {name: sgd, lr: 0.5}
clip: 0.5
train: {steps: 12, log_every: 1, eval_every: 12}
)";

SessionStart start_of(const Recipe& recipe) {
  return {.open = [data = recipe.data] { return open_dataset(data); }};
}

class Loop : public RunFolderTest {
 protected:
  Node recipe(const Changes& changes = {}) const { return changed(str(kWordRecipe, kTraining), changes); }
  std::vector<float> trained(const Changes& changes) {
    const Recipe r = read_recipe(recipe(changes), "loop");
    const auto comm = make_self_communicator(static_cast<int>(r.threads));
    set_num_threads(comm->threads());
    Session session(r, *comm, start_of(r));
    const std::string dir = path(str("run", runs_++));
    std::filesystem::create_directory(dir);
    Trainer trainer(session, dir, {});
    EXPECT_EQ(trainer.run(), 0);
    return values_of(session.params);
  }
  std::unique_ptr<Communicator> comm_ = make_self_communicator(1);
  int runs_ = 0;
};

TEST_F(Loop, MicroBatchesEqualTheWholeBatch) {
  for (const char* loss :
       {"{name: full_softmax}", "{name: full_softmax, normalize: sequence}", "{name: sampled_softmax, samples: 12}"}) {
    const auto whole = trained({{"loss", loss}});
    for (const char* micro : {"1", "2", "4", "6"})
      expect_near(trained({{"loss", loss}, {"batch.micro", micro}}), whole, 2e-5f);
    EXPECT_NE(whole, trained({{"loss", loss}, {"seed", "2"}}));
  }
}

// The words of all micro-batches choose the rows that a step exchanges.
TEST_F(Loop, SampledRowsAreThoseOfTheWholeBatch) {
  const Changes rows{{"loss", "{name: two_stage_softmax}"},
                     {"sync", "{all: {params: '.*', strategy: sampled_rows, p: 5, q: 5, hidden_q: 90}}"}};
  const auto with_micro = [&](const char* micro) {
    Changes changes = rows;
    changes.emplace_back("batch.micro", micro);
    return trained(changes);
  };
  const auto whole = trained(rows);
  for (const char* micro : {"1", "2"}) expect_near(with_micro(micro), whole, 2e-5f);
}

TEST_F(Loop, SequenceNormalisationIsTheTokensTimesTheLength) {
  const auto token = trained({{"optimizer.lr", "0.5"}, {"clip", "[]"}});
  const auto sequence =
      trained({{"optimizer.lr", "0.1"}, {"clip", "[]"}, {"loss", "{name: full_softmax, normalize: sequence}"}});
  expect_near(token, sequence, 2e-5f);  // sequences of 5 tokens: five times the gradient, a fifth of the learning rate
}

// The forward pass of a step whose gradients overflow was correct, so the next step begins with its states.
TEST_F(Loop, AnOverflowKeepsTheStatesOfTheText) {
  const auto losses = [&](const char* scale) {
    trained({{"precision", "fp16"}, {"optimizer.lr", "0"}, {"loss_scale", scale}});
    return records(str("run", runs_ - 1), "train");
  };
  const auto calm = losses("{init: 1}"), overflowing = losses("{init: 1e9, factor: 32}");
  ASSERT_EQ(calm.size(), overflowing.size());
  EXPECT_EQ(overflowing[0]["overflows"], 1);
  EXPECT_EQ(calm.back()["overflows"], 0);
  for (size_t i = 0; i < calm.size(); ++i) EXPECT_EQ(calm[i]["nll_nat"], overflowing[i]["nll_nat"]) << i;
}

// A signal has interrupted the validation of the last step; the run that continues there has nothing else to do.
TEST_F(Loop, AnInterruptedValidationIsRepeated) {
  const Recipe r = read_recipe(recipe(), "loop");
  for (const int64_t evaluated : {-1, 12}) {
    const auto comm = make_self_communicator(1);
    Session session(r, *comm, start_of(r));
    const std::string dir = str("evaluated", evaluated);
    std::filesystem::create_directory(path(dir));
    Position at;
    at.step = 12;
    at.evaluated = evaluated;
    Trainer trainer(session, path(dir), at);
    EXPECT_EQ(trainer.run(), 0);
    EXPECT_EQ(records(dir, "valid").size(), evaluated == 12 ? 0u : 1u);
    EXPECT_EQ(trainer.position().evaluated, 12);
  }
}

TEST_F(Loop, ThreadsDoNotChangeTheBits) {
  EXPECT_EQ(trained({{"threads", "1"}}), trained({{"threads", "2"}}));
}

TEST_F(Loop, Bf16Trains) {
  const auto fp32 = trained({}), bf16 = trained({{"precision", "bf16"}});
  EXPECT_NE(fp32, bf16);
  expect_near(fp32, bf16, 0.05f);
}

TEST_F(Loop, StateOfAStepThatWasLeftOutIsForgotten) {
  const Recipe r = read_recipe(recipe(), "loop");
  Session s(r, *comm_, start_of(r));
  Batch batch = s.batcher.batch(0, 2, 2);
  batch.fresh = {0, 0};
  ModelState state = s.network.model->initial_state(s.ctx, 2);
  for (auto& [name, t] : state) fill(s.ctx, t, 7);
  s.carried->stage(batch, state);
  s.carried->discard();
  s.carried->commit(s.ctx);
  const auto first = [&](const Batch& b, bool keep = true) {
    return lmx_test::values_of(s.ctx, s.carried->gather(s.ctx, b, keep).begin()->second)[0];
  };
  EXPECT_EQ(first(batch), 0);
  s.carried->stage(batch, state);
  EXPECT_EQ(first(batch), 0) << "the state changed before commit()";
  s.carried->commit(s.ctx);
  EXPECT_EQ(first(batch), 7);
  EXPECT_EQ(first(batch, false), 0);
  EXPECT_EQ(first(s.batcher.batch(1, 0, 2)), 0) << "state of other slots";
  batch.fresh = {1, 0};
  EXPECT_EQ(first(batch), 0);
}

TEST_F(Loop, EvaluationDoesNotDependOnItsBatches) {
  const Recipe r = read_recipe(recipe(), "loop");
  Session s(r, *comm_, start_of(r));
  const auto nll = [&](int64_t sequences, int64_t length) {
    const SplitScore score =
        score_split(s.ctx, s.network, s.params, s.data.valid, {"valid", sequences, length, 0, true});
    EXPECT_EQ(score.tokens, 156);
    EXPECT_DOUBLE_EQ(score.ppl(), std::exp(score.nll()));
    return score.nll();
  };
  EXPECT_NEAR(nll(1, 5), nll(1, 156), 1e-6);  // one slot: windows of any length read the same text
  EXPECT_NEAR(nll(1, 7), nll(1, 1), 1e-6);
  EXPECT_NEAR(nll(4, 5), nll(4, 11), 1e-6);
  EXPECT_NEAR(nll(1, 5), std::log(40), 0.3);  // an untrained model is near the uniform one
  const SplitScore part = score_split(s.ctx, s.network, s.params, s.data.valid, {"valid", 4, 5, 50, true});
  EXPECT_EQ(part.tokens, 49);
  const SplitScore stopped =
      score_split(s.ctx, s.network, s.params, s.data.valid, {"valid", 4, 5, 0, true, false, [] { return true; }});
  EXPECT_FALSE(stopped.complete);
}

TEST_F(Loop, PackedStateComesBack) {
  const Recipe r = read_recipe(recipe({{"optimizer", "{name: adam, lr: 0.01}"}}), "loop");
  Session a(r, *comm_, start_of(r));
  std::filesystem::create_directory(path("r"));
  Trainer trainer(a, path("r"), {});
  ASSERT_EQ(trainer.run(), 0);
  const TrainState packed = pack_state(a, trainer.position());
  Session b(r, *comm_, start_of(r));
  const Position at = unpack_state(b, packed, "x");
  EXPECT_EQ(at.step, 12);
  EXPECT_EQ(at.valid_ppl, trainer.position().valid_ppl);
  const TrainState again = pack_state(b, at);
  EXPECT_EQ(again.numbers, packed.numbers);
  ASSERT_EQ(again.train.size(), packed.train.size());
  save_checkpoint(path("a"), 1, packed);
  save_checkpoint(path("b"), 1, again);
  EXPECT_EQ(lmx_test::read_file(path("a/checkpoints/step-1/state.json")),
            lmx_test::read_file(path("b/checkpoints/step-1/state.json")));  // its hashes
  // Version 0.1.0 stored none of these numbers; its updates were the steps.
  TrainState old = packed;
  for (const char* name : {"updates", "counted.steps", "counted.tokens"})
    EXPECT_EQ(old.numbers.erase(name), 1u) << name;
  const Position from_old = unpack_state(b, old, "x");
  EXPECT_EQ(from_old.updates, at.step);
  EXPECT_EQ(from_old.counted_steps, 0);
}

TEST_F(Loop, CheckpointsThatDoNotFit) {
  const Recipe r = read_recipe(recipe(), "loop");
  Session a(r, *comm_, start_of(r));
  const TrainState good = pack_state(a, {});
  const auto refused = [&](auto&& change) {
    TrainState bad = good;
    change(bad);
    return user_error([&] { unpack_state(a, bad, "DIR"); });
  };
  EXPECT_THAT(refused([](TrainState& s) { s.model.erase("lstm.0.bias"); }), Names("DIR", "lstm.0.bias"));
  EXPECT_THAT(refused([](TrainState& s) { s.model["extra"] = floats({1}, {0}); }), Names("extra (1)"));
  EXPECT_THAT(refused([](TrainState& s) {
                s.model["lstm.0.bias"] = floats({2}, {0, 0});
              }),
              Names("lstm.0.bias", "(2) f32", "DIR", "(40)"));
  EXPECT_THAT(refused([](TrainState& s) { s.numbers.erase("step"); }), Names("number step"));
  EXPECT_THAT(refused([](TrainState& s) { s.numbers["step"] = "x"; }), Names("'x'"));
  EXPECT_THAT(refused([](TrainState& s) { s.train.erase("carried/lstm.0.h"); }), Names("state lstm.0.h"));
  EXPECT_THAT(refused([](TrainState& s) {
                s.train["carried/lstm.0.h"] = floats({1, 1}, {0});
              }),
              Names("(1, 1) f32", "DIR"));
  EXPECT_THAT(refused([](TrainState& s) {
                s.train["carried/lstm.9.h"] = floats({1, 1}, {0});
              }),
              Names("state lstm.9.h"));
}

TEST(Signals, AreNotedOnceAndRestored) {
  {
    const SignalGuard guard;
    EXPECT_EQ(SignalGuard::received(), 0);
    raise(SIGTERM);
    EXPECT_EQ(SignalGuard::received(), SIGTERM);
    struct sigaction now {};
    sigaction(SIGTERM, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL) << "a second signal must end the process";
  }
  const SignalGuard guard;
  EXPECT_EQ(SignalGuard::received(), 0);
}

// A closed terminal sends SIGHUP more than once; Slurm's --signal sends SIGUSR1 or SIGUSR2.
TEST(Signals, WarningsCountAsTermAndMayRepeat) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction before {
    }, after{};
    sigaction(signal, nullptr, &before);
    {
      const SignalGuard guard;
      raise(signal);
      raise(signal);
      EXPECT_EQ(SignalGuard::received(), SIGTERM);
      EXPECT_EQ(SignalGuard::name(SIGTERM), std::string("SIG") + sigabbrev_np(signal));
    }
    sigaction(signal, nullptr, &after);
    EXPECT_EQ(before.sa_handler, after.sa_handler);
  }
}

TEST(Signals, NohupKeepsIgnoringSighup) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const SignalGuard guard;
    raise(SIGHUP);
    EXPECT_EQ(SignalGuard::received(), 0);
  }
  std::signal(SIGHUP, before);
}

TEST_F(Loop, RunDirectories) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  std::vector<std::string> made(8);
  std::vector<std::thread> threads;
  for (std::string& dir : made) threads.emplace_back([&dir] { dir = create_run_directory("", "r"); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(std::set<std::string>(made.begin(), made.end()).size(), made.size()) << "two runs share a folder";
  EXPECT_EQ(newest_run("", "r"), "") << "none of them contains a run yet";
  write_all(made[3] + "/config.yaml", "a: 1");
  EXPECT_EQ(newest_run("", "r"), made[3]);
  std::filesystem::current_path(before);
  EXPECT_EQ(create_run_directory(path("mine"), "r"), path("mine"));
  EXPECT_EQ(create_run_directory(path("mine"), "r"), path("mine")) << "an existing empty folder is allowed";
  write_all(path("mine/x"), "");
  EXPECT_THAT(user_error([&] { create_run_directory(path("mine"), "r"); }), Names(path("mine"), "empty"));
  EXPECT_THAT(run_error([] { create_run_directory("/proc/no/run", "r"); }), Names("/proc/no/run"));
}

TEST_F(Loop, DifferencesThatCount) {
  const Node a =
      parse_yaml("{seed: 1, threads: 2, model: {cells: 4, init: {scale: 0.1}}, train: {steps: 5}, run: {dir: x}}", "a");
  const Node b =
      parse_yaml("{seed: 1, threads: 9, model: {cells: 8, deep: true}, train: {steps: 9}, run: {dir: y}}", "b");
  std::vector<std::string> found;
  for (const KeyDifference& d : differences(a, b)) found.push_back(str(d.key, ' ', d.there, ' ', d.here));
  EXPECT_THAT(found, ElementsAre("model.cells 4 8", "model.deep (absent) true", "model.init.scale 0.1 (absent)"));
  EXPECT_TRUE(differences(a, a).empty());
}

TEST(Text, CountsAndBytes) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1,000");
  EXPECT_EQ(count_text(-1234567), "-1,234,567");
  EXPECT_EQ(count_text(111845376), "111,845,376");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1536), "1.5 kB");
  EXPECT_EQ(bytes_text(447381504), "447 MB");
  EXPECT_EQ(bytes_text(999'999), "1.0 MB");
}

}  // namespace
}  // namespace lmx::app

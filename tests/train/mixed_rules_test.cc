// Steps of ranks that sum the gradients of some parameters and have their own values of the others. The ranks share
// nothing, as processes do.
#include <cmath>
#include <mutex>

#include "lmx/model.h"
#include "recipe/comm_config.h"
#include "train/loop/update.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

using namespace lmx_test;
using Doubles = std::vector<double>;
using Values = std::map<std::string, Doubles>;  // by parameter

constexpr int kRanks = 3;
constexpr int64_t kSteps = 7, kEvery = 3;

// A part of a batch of 7 sequences has 3, 2 and 2 of them.
constexpr const char* kRecipe = R"(
data: {name: synthetic, vocab_size: 40, train_tokens: 1500, valid_tokens: 157, test_tokens: 0, branching: 6, classes: 4}
batcher: {name: tbptt, sequence_length: 5}
batch: {global: 7}
threads: 1
model: {name: gpt, layers: 1, d: 16, heads: 2, ffn: 24, positions: learned}
loss: {name: full_softmax, bias: false}
optimizer: {name: sgd, lr: 0.5}
schedule: {name: constant}
clip: 0.2
train: {steps: 7}
sync:
  tables: {params: "embedding|positions|softmax", strategy: allreduce}
  layers: {params: ".*", strategy: diloco, every: 3, outer_lr: 0.7, outer_momentum: 0}
)";

// Parts of a group have no device.
Recipe recipe_of(Changes changes) {
  changes.emplace_back("device", "cpu");
  return read_recipe(changed(kRecipe, changes), "mixed");
}

bool is_summed(const std::string& name) {
  return name.find("layer") == std::string::npos && name.find("norm") == std::string::npos;
}

Doubles of(const Tensor& t) {
  const Tensor host = copy_to(t, Allocator::cpu());
  const auto values = std::as_const(host).values<float>();
  return {values.begin(), values.end()};
}

Values of(const ParameterStore& params) {
  Values all;
  for (const std::string& name : params.names()) all[name] = of(params.at(name).value());
  return all;
}

// The values and counters of a rank after a step.
struct Seen {
  Values own, shared;
  double grad_norm = 0, loss_scale = 0;
  int64_t updates = 0, skipped = 0, overflows = 0;
  std::map<std::string, int64_t> overflowed;
};

class MixedRules : public testing::Test {
 protected:
  MixedRules() {
    load_plugins();
    set_log_level(LogLevel::error);
  }

  // One list for each step, of all ranks. `fault`: called before the exchange of a step, may change gradients.
  std::vector<std::vector<Seen>> run(const Changes& changes,
                                     const std::function<void(Session&, int64_t step)>& fault = {}) {
    const Recipe recipe = recipe_of(changes);
    std::vector<std::vector<Seen>> all(kSteps, std::vector<Seen>(kRanks));
    std::mutex mutex;
    make_comm_group(parse_yaml(str("{name: virtual, ranks: ", kRanks, "}"), "comm"), "comm", {})
        ->run([&](Communicator& comm) {
          SessionStart start;
          start.open = [&] { return open_dataset(recipe.data); };
          Session s(recipe, comm.in_node(), start);
          RunState run(s, "", Position(), 0);
          StepRunner steps(run, StepOf::group);
          Updater updater(run, StepOf::group);
          for (int64_t& step = run.at.step; step < kSteps;) {
            make_step(s, steps, updater, step, fault);
            s.replicas->after_step(s.ctx, ++step, kSteps);
            const std::lock_guard lock(mutex);
            all[static_cast<size_t>(step - 1)][static_cast<size_t>(s.ctx.rank)] = seen(run);
          }
        });
    return all;
  }

 private:
  // start_step(), with a fault.
  static void make_step(Session& s, StepRunner& steps, Updater& updater, int64_t step,
                        const std::function<void(Session&, int64_t step)>& fault) {
    const std::vector<Batch> share = steps.draw(step);
    const StepPlan plan = steps.begin(share, step);
    StartedStep started{steps.forward_backward(share, plan), {}};
    if (fault) fault(s, step);
    s.sync->finish();
    started.update = updater.start(step, steps);
    const auto [loss, clipped] = results_of(s, steps, started);
    updater.finish(started.update, clipped, loss, step);
  }
  static Seen seen(const RunState& run) {
    const Window& w = run.at.window;
    return {of(run.s.params), of(run.s.shared->params),
            w.grad_norm,      run.at.loss_scale.scale,
            run.at.updates,   w.skipped,
            w.overflows,      w.overflowed};
  }
};

// Sum(rank) of the gradients of the mean over a rank's part of the batch, for its own values. In double precision from
// the gradient on.
class PlainLoop {
 public:
  explicit PlainLoop(const Recipe& recipe)
      : session_(recipe, *comm_, {.open = [&] { return open_dataset(recipe.data); }}) {
    for (int rank = 0; rank < kRanks; ++rank) own_.push_back(of(session_.params));
    anchors_ = own_[0];
  }

  // `clip`: the largest norm, of the sums and of each rank's own gradients.
  void step(int64_t number, double lr, double clip) {
    std::vector<Values> gradients;
    Values sum;
    double squares = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const int64_t first = chunk_begin(kBatch, rank, kRanks), count = chunk_begin(kBatch, rank + 1, kRanks) - first;
      gradients.push_back(gradient(number, own_[static_cast<size_t>(rank)], first, count));
      for (auto& [name, g] : gradients.back()) {
        Doubles& all = sum[name];
        all.resize(g.size());
        for (size_t i = 0; i < g.size(); ++i) all[i] += g[i] / kBatch;
        for (double& x : g) x /= static_cast<double>(count);
      }
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      Values& own = own_[static_cast<size_t>(rank)];
      const Values& g = gradients[static_cast<size_t>(rank)];
      const double norm = norm_of(g, false);
      squares += norm * norm / kRanks;
      descend(own, g, false, lr * std::min(1.0, clip / norm));
      descend(own, sum, true, lr * std::min(1.0, clip / norm_of(sum, true)));
    }
    grad_norm = std::sqrt(squares + norm_of(sum, true) * norm_of(sum, true));
    if ((number + 1) % kEvery == 0) exchange();
  }
  // The values that validations use.
  Values shared() const {
    Values all = own_[0];
    for (auto& [name, values] : all)
      if (!is_summed(name)) values = anchors_.at(name);
    return all;
  }
  const Values& own(int rank) const { return own_[static_cast<size_t>(rank)]; }

  double grad_norm = 0;

 private:
  static constexpr int64_t kBatch = 7;

  // The gradient of the sum over the sequences.
  Values gradient(int64_t step, const Values& values, int64_t first, int64_t count) {
    for (auto& [name, v] : values) {
      const std::vector<float> floats(v.begin(), v.end());
      Var& param = session_.params.at(name);
      param.value().copy_from(session_.ctx.upload(Tensor::from<float>(session_.ctx.host, param.shape(), floats)));
      param.changed();
    }
    const Batch batch = session_.batcher.batch(step, first, count);
    Tape tape;
    Context ctx = session_.ctx;
    ctx.tape = &tape;
    ModelState state = session_.network.initial_state(ctx, count);
    const Var features = session_.network.model->forward(ctx, session_.params, batch, state);
    const LossValue loss = session_.network.loss->forward(ctx, session_.params, features,
                                                          batch.targets.reshape({batch.tokens()}), StepPlan{});
    tape.backward(ctx, loss.loss, 1.0 / static_cast<double>(session_.batcher.sequence_length()));
    Values all;
    for (const std::string& name : session_.params.names()) {
      Gradient& g = session_.params.at(name).grad();
      if (g.sparse()) {
        const Shape shape = session_.params.at(name).shape();
        Tensor dense = ctx.zeros(shape, DType::f32, MemClass::other);
        for (const RowSparse& piece : g.pieces) add_rows(ctx, dense, piece);
        all[name] = of(dense);
      } else {
        all[name] = of(g.dense);
      }
      g.clear();
    }
    return all;
  }
  static double norm_of(const Values& g, bool summed) {
    double squares = 0;
    for (const auto& [name, values] : g)
      if (is_summed(name) == summed)
        for (const double x : values) squares += x * x;
    return std::sqrt(squares);
  }
  static void descend(Values& values, const Values& g, bool summed, double lr) {
    for (auto& [name, v] : values)
      if (is_summed(name) == summed)
        for (size_t i = 0; i < v.size(); ++i) v[i] -= lr * g.at(name)[i];
  }
  void exchange() {
    for (auto& [name, a] : anchors_) {
      if (is_summed(name)) continue;
      for (size_t i = 0; i < a.size(); ++i) {
        double mean = 0;
        for (const Values& own : own_) mean += own.at(name)[i] / kRanks;
        a[i] += 0.7 * (mean - a[i]);
      }
      for (Values& own : own_) own.at(name) = a;
    }
  }

  std::unique_ptr<Communicator> comm_ = make_self_communicator(1);
  Session session_;
  std::vector<Values> own_;
  Values anchors_;
};

void expect_close(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want)
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(got.at(name)[i], values[i], 1e-6) << what << ' ' << name;
}

// The norm of the sums clips them, and the norm of a rank's own gradients these.
TEST_F(MixedRules, FollowAPlainLoop) {
  for (const double clip : {0.0, 0.2}) {
    const Changes changes{{"clip", str(clip)}};
    const auto steps = run(changes);
    PlainLoop plain(recipe_of({{"clip", str(clip)}, {"sync", "{all: {params: .*, strategy: allreduce}}"}}));
    for (int64_t step = 0; step < kSteps; ++step) {
      plain.step(step, 0.5, clip > 0 ? clip : 1e9);
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::string what = str("clip ", clip, ", step ", step + 1, ", rank ", rank, ':');
        const Seen& seen = steps[static_cast<size_t>(step)][static_cast<size_t>(rank)];
        expect_close(seen.own, plain.own(rank), what);
        expect_close(seen.shared, plain.shared(), what + " shared");
        EXPECT_NEAR(seen.grad_norm, plain.grad_norm, 1e-5) << what;
        EXPECT_EQ(seen.grad_norm, steps[static_cast<size_t>(step)][0].grad_norm) << what;
      }
    }
  }
}

void expect_equal_where_summed(const std::vector<Seen>& ranks, bool exchanged) {
  for (const Seen& seen : ranks)
    for (const auto& [name, values] : seen.own) {
      EXPECT_EQ(seen.shared.at(name), ranks[0].shared.at(name)) << name;
      if (is_summed(name)) {
        EXPECT_EQ(values, ranks[0].own.at(name)) << name;
        EXPECT_EQ(values, seen.shared.at(name)) << name;
      } else {
        EXPECT_EQ(values == seen.shared.at(name), exchanged) << name;
        if (&seen != &ranks[0]) {
          EXPECT_EQ(values == ranks[0].own.at(name), exchanged) << name;
        }
      }
    }
}

TEST_F(MixedRules, RanksHaveEqualBitsOfWhatTheySum) {
  const std::string layers = "layers: {params: '.*', strategy: diloco, every: 3}";
  const Changes adam{{"optimizer", "{name: adam, lr: 0.01}"}, {"model.dropout", "0.1"}};
  for (const std::string strategy : {"allreduce", "one_bit", "unique", "zero", "top_k, keep: 0.2"}) {
    SCOPED_TRACE(strategy);
    Changes changes = adam;
    changes.emplace_back(
        "sync", str("{tables: {params: 'embedding|positions|softmax', strategy: ", strategy, "}, ", layers, "}"));
    const auto steps = run(changes);
    for (int64_t step = 1; step <= kSteps; ++step)
      expect_equal_where_summed(steps[static_cast<size_t>(step - 1)], step % kEvery == 0);
  }
}

// A gradient that is not finite on one rank alone, of a parameter that it updates alone.
constexpr const char* kBroken = "norm.gain";
void break_one_rank(Session& s, int64_t step) {
  if (step != 1 || s.ctx.rank != 1) return;
  Tensor& grad = s.params.at(kBroken).grad().dense;
  grad = s.ctx.upload(Tensor::from<float>(s.ctx.host, grad.shape(), std::vector<float>(16, INFINITY)));
}

TEST_F(MixedRules, AllRanksSkipTheUpdateThatOneCannotMake) {
  for (const char* policy : {"skip", "lower_lr"}) {
    const auto steps = run({{"train.on_divergence", policy}}, break_one_rank);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(steps[1][rank].own, steps[0][rank].own) << rank;
      EXPECT_NE(steps[2][rank].own, steps[1][rank].own) << rank;
      EXPECT_EQ(steps[6][rank].skipped, 1) << rank;
      EXPECT_EQ(steps[6][rank].updates, kSteps - 1) << rank;
    }
  }
  EXPECT_THAT(run_error([&] { run({}, break_one_rank); }), Names("step 2", "norm"));
}

TEST_F(MixedRules, AllRanksHaveOneLossScale) {
  const auto steps = run({{"precision", "fp16"}, {"loss_scale", "{init: 64, window: 3}"}}, break_one_rank);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    Doubles scales;
    for (const std::vector<Seen>& step : steps) scales.push_back(step[rank].loss_scale);
    EXPECT_THAT(scales, ElementsAre(64, 32, 32, 32, 64, 64, 64)) << rank;
    EXPECT_EQ(steps[1][rank].own, steps[0][rank].own) << rank;
    EXPECT_EQ(steps[6][rank].overflows, 1) << rank;
    EXPECT_EQ(steps[6][rank].overflowed, (std::map<std::string, int64_t>{{kBroken, 1}})) << rank;
  }
  for (int64_t step = 1; step <= kSteps; ++step)
    if (step != 2) expect_equal_where_summed(steps[static_cast<size_t>(step - 1)], step % kEvery == 0);
}

}  // namespace
}  // namespace lmx::app

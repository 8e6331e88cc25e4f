// 1-bit Adam (Tang et al. 2021, "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence
// Speed", arXiv 2102.02888, algorithm 1). With g the sum of the gradients of all G ranks, t the number of the update:
//
//   t <= freeze:  m <- b1 m + (1 - b1) g      v <- b2 v + (1 - b2) g^2
//   t > freeze:   m <- the sum over ranks r of b1 m / G + (1 - b1) g_r, in one bit for each element
//   the result:   m / (1 - b1^t) / (sqrt(v / (1 - b2^min(t, freeze))) + eps)
//
// The sum of momenta is that of a codec with error feedback: ranks keep the quantisation error of what they send, and
// the owner of a part that of its sum. The result is the update of the recipe's optimizer (sgd), up to its rate.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/row_sync.h"
#include "lmx/sum_strategy.h"
#include "lmx/vectors.h"
#include "one_bit_adam_kernels.h"

namespace {

using namespace lmx;

const KernelAdder adder = cpu::updates<one_bit_adam::WarmUp, one_bit_adam::Frozen>();

constexpr const char *kFirst = ".exp_avg", *kSecond = ".exp_avg_sq", *kUpdates = "updates";

struct OneBitAdamConfig {
  int64_t freeze = 1000;
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  bool bias_correction = true;
  double bucket_mb = 5;
  CodecConfig codec{.kind = "sign"};
  void fields(Fields& f) {
    f.field("freeze", freeze, "updates of the warm-up, after which the variance does not change any more", kPositive);
    f.field("betas", betas, "decay of the momentum and of the variance, each below 1", kFraction);
    f.field("eps", eps, "added to the root of the variance", kNonNegative);
    f.field("bias_correction", bias_correction,
            "divide the moments by the sum of their weights, as Adam does; false: as the authors' program");
    f.field("bucket_mb", bucket_mb,
            "megabytes, as sent after the warm-up, of values that share one message; 0: one message for each parameter",
            kNonNegative);
    f.group("codec", codec, "encoding of momenta for the exchange");
  }
  void check(const std::string& where) const {
    if (betas.size() != 2 || betas[0] >= 1 || betas[1] >= 1)
      throw UserError(str(where, ".betas: expected two numbers in [0, 1) such as [0.9, 0.999]"));
    codec.check(where);
    if (!codec.feedback())
      throw UserError(str(where, ".codec: ", codec.kind, " has no error feedback here, without which the error of a ",
                          "momentum is never corrected; choose a codec that keeps it, such as kind: sign"));
  }
};

class OneBitAdam final : public SumStrategy {
 public:
  OneBitAdam(const OneBitAdamConfig& config, const SyncEnv& env)
      : SumStrategy({.codec = config.codec, .bucket_mb = config.bucket_mb}, env), c_(config), exact_({}, env.group) {}
  SyncResult result() const override { return SyncResult::update; }

  void reduce(Context& ctx, std::span<Var> unit) override {
    const bool frozen = updates_ >= c_.freeze;
    std::vector<Reducer::Block> blocks;
    std::vector<Var> present;
    for (Var& p : unit) {
      if (ctx.comm->size() == 1 && p.grad().empty()) continue;
      const Tensor own = dense_of(ctx, p.grad(), p.value());
      p.grad().clear();
      blocks.push_back({p.name(), frozen ? momentum(ctx, p.name(), own) : own});
      present.push_back(p);
    }
    const std::vector<Tensor> sums = (frozen ? reducer() : exact_).reduce(ctx, blocks);
    blocks.clear();
    advance(ctx, present, sums, frozen);
  }

  void after_step(Context& ctx) override {
    SumStrategy::after_step(ctx);
    if (!std::exchange(skipped_, false)) ++updates_;
    for (auto& [name, kept] : moments_) kept.before = kept.now;
  }
  void discard() override {
    SumStrategy::discard();
    skipped_ = true;
    for (auto& [name, kept] : moments_) kept.now = kept.before;
  }
  // Gradients are divided by the product of all factors, so the moments and residuals do not change.
  void rescale(double factor) override { unscale_ /= factor; }

  // All ranks have equal moments, so any number of ranks can resume from those of the first.
  StateDict state() const override {
    StateDict all = SumStrategy::state();
    if (env().rank != 0) return all;
    for (const auto& [name, kept] : moments_) {
      if (!kept.now.m.defined()) continue;
      all.emplace(name + kFirst, kept.now.m);
      all.emplace(name + kSecond, kept.now.v);
    }
    const int32_t updates[] = {static_cast<int32_t>(updates_)};
    all.emplace(kUpdates, Tensor::from<int32_t>(Context().host, {1}, updates));
    return all;
  }
  void load(Context& ctx, const std::vector<StateDict>& ranks) override {
    moments_.clear();
    StateDict first = ranks.at(0);  // on other ranks it may be empty
    const std::vector<int32_t> header = header_of(ctx, first);
    updates_ = header[0];
    for (size_t i = 0; i < env().params.size(); ++i) {
      const ParameterSpec& p = env().params[i];
      if (header[i + 1] == 0) continue;
      const Moments of{received(ctx, first, p, kFirst), received(ctx, first, p, kSecond)};
      moments_[p.name] = {of, of};
    }
    std::vector<StateDict> rest = ranks;
    for (StateDict& state : rest) std::erase_if(state, [&](const auto& entry) { return is_moment(entry.first); });
    SumStrategy::load(ctx, rest);
  }

  std::string summary() const override {
    if (updates_ > c_.freeze) return {};
    return str("all updates belonged to the warm-up, which has ", c_.freeze, "; no momentum was sent in one bit");
  }

 private:
  struct Moments {
    Tensor m, v;  // in the shape of the parameter; undefined before its first update
  };
  struct Kept {
    Moments now, before;  // `before`: those of the last update that was made
  };

  bool is_moment(const std::string& key) const {
    if (key == kUpdates) return true;
    return std::any_of(env().params.begin(), env().params.end(),
                       [&](const ParameterSpec& p) { return key == p.name + kFirst || key == p.name + kSecond; });
  }

  // The number of updates, and for each parameter whether rank 0 has its moments. Collective.
  std::vector<int32_t> header_of(Context& ctx, const StateDict& first) const {
    std::vector<int32_t> header(env().params.size() + 1);
    if (ctx.rank == 0) {
      if (const auto found = first.find(kUpdates); found != first.end()) header[0] = found->second.data<int32_t>()[0];
      for (size_t i = 0; i < env().params.size(); ++i) {
        const std::string& name = env().params[i].name;
        header[i + 1] = first.contains(name + kFirst) && first.contains(name + kSecond) ? 1 : 0;
      }
    }
    const Shape shape{static_cast<int64_t>(header.size())};
    const Tensor all = ctx.comm->broadcast(Tensor::from<int32_t>(ctx.host, shape, header), 0, "checkpoint");
    const std::span<const int32_t> values = all.values<int32_t>();
    return {values.begin(), values.end()};
  }

  // The moment of `p` that rank 0 has loaded. Collective.
  Tensor received(Context& ctx, const StateDict& first, const ParameterSpec& p, const char* slot) const {
    Tensor own = ctx.empty(p.shape, DType::f32, MemClass::communication);
    if (ctx.rank == 0) {
      const Tensor& kept = first.at(p.name + slot);
      if (!(kept.shape() == p.shape))
        throw UserError(str("[sync] the checkpoint has ", p.name, slot, ' ', kept.shape(), ", and the parameter is ",
                            p.shape, ": it is from another model"));
      own = ctx.upload(kept);
    }
    const Tensor all = ctx.comm->broadcast(own, 0, "checkpoint");
    return ctx.comm->once<Tensor>([&] { return all.clone(MemClass::optimizer); });
  }

  // This rank's part of the next momentum.
  Tensor momentum(Context& ctx, const std::string& name, const Tensor& gradient) {
    const auto part = static_cast<float>(c_.betas[0] / ctx.comm->size());
    Tensor own = ctx.zeros(gradient.shape(), DType::f32, MemClass::communication);
    add_scaled(ctx, own, static_cast<float>((1 - c_.betas[0]) * unscale_), gradient);
    if (const Tensor& m = moments_[name].now.m; m.defined()) add_scaled(ctx, own, part, m);
    return own;
  }

  one_bit_adam::Correction<float> correction() const {
    if (!c_.bias_correction) return {1, 1, static_cast<float>(c_.eps)};
    const int64_t number = updates_ + 1;
    return {static_cast<float>(1 / sum_of_weights(c_.betas[0], number)),
            static_cast<float>(1 / std::sqrt(sum_of_weights(c_.betas[1], std::min(number, c_.freeze)))),
            static_cast<float>(c_.eps)};
  }

  // Replaces the gradients by directions, and the moments by those of the next update. `sums`: of the gradients or of
  // the momenta. Ranks of one process share the results; the moments count as those of an optimizer, which they share
  // as well.
  void advance(Context& ctx, std::span<Var> params, std::span<const Tensor> sums, bool frozen) {
    struct Next {
      Tensor direction;
      Moments of;
    };
    const auto next = ctx.comm->once<std::vector<Next>>([&] {
      std::vector<Next> all;
      std::vector<optim::Change<float>> changes;
      for (size_t i = 0; i < params.size(); ++i) {
        Next& n = all.emplace_back(Next{ctx.empty(params[i].shape(), DType::f32, MemClass::communication),
                                        next_moments(ctx, params[i], frozen)});
        const int64_t count = n.direction.numel();
        changes.push_back({n.direction.data<float>(),
                           sums[i].data<float>(),
                           {n.of.m.data<float>(), n.of.v.data<float>()},
                           nullptr,
                           count,
                           1,
                           unscale_,
                           nullptr});
      }
      run(ctx, changes, frozen);
      return all;
    });
    for (size_t i = 0; i < params.size(); ++i) {
      const Tensor& direction = next[i].direction;
      params[i].grad().dense = ctx.comm->once_tensor(MemClass::communication, [&] { return direction; });
      moments_[params[i].name()].now = next[i].of;
    }
  }

  // The memory for the next moments, with the present ones as far as the next ones depend on them.
  Moments next_moments(Context& ctx, const Var& p, bool frozen) {
    const Moments& now = moments_[p.name()].now;
    const auto zeros = [&] { return ctx.zeros(p.shape(), DType::f32, MemClass::optimizer); };
    if (!now.m.defined()) return {zeros(), zeros()};
    if (frozen) return {ctx.empty(p.shape(), DType::f32, MemClass::optimizer), now.v};
    return {now.m.clone(MemClass::optimizer), now.v.clone(MemClass::optimizer)};
  }

  void run(Context& ctx, const std::vector<optim::Change<float>>& changes, bool frozen) const {
    const one_bit_adam::Correction<float> corrected = correction();
    const std::span<const optim::Change<float>> all(changes);
    if (all.empty()) return;
    if (frozen)
      return optim::run_updates(ctx, all, [&](const optim::Change<float>& c) {
        return one_bit_adam::Frozen<float>{c, corrected};
      });
    optim::run_updates(ctx, all, [&](const optim::Change<float>& c) {
      return one_bit_adam::WarmUp<float>{c, static_cast<float>(c_.betas[0]), static_cast<float>(c_.betas[1]),
                                         corrected};
    });
  }

  OneBitAdamConfig c_;
  Reducer exact_;  // of the warm-up
  std::map<std::string, Kept> moments_;
  int64_t updates_ = 0;  // that were made
  bool skipped_ = false;
  double unscale_ = 1;
};

}  // namespace

LMX_PLUGIN(sync, one_bit_adam, OneBitAdamConfig, OneBitAdam)

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
#include <string>
#include <vector>

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/row_sync.h"
#include "lmx/sum_strategy.h"
#include "lmx/vectors.h"
#include "one_bit_adam_kernels.h"

namespace {

using namespace lmx;

const KernelAdder adder = cpu::updates<one_bit_adam::Update>();

constexpr const char *kFirst = ".exp_avg", *kSecond = ".exp_avg_sq";

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
    std::vector<Var> present;
    for (Var& p : unit)
      if (ctx.comm->size() > 1 || !p.grad().empty()) present.push_back(p);
    if (present.empty()) return;
    for (Var& p : present) {
      if (!frozen()) continue;
      const Tensor own = momentum(ctx, p);
      p.grad().clear();
      p.grad().dense = own;
    }
    reduce_dense(ctx, present, frozen() ? reducer() : exact_);
    advance(ctx, present);
  }

  std::string summary() const override {
    if (updates() > c_.freeze) return {};
    return str("all updates belonged to the warm-up, which has ", c_.freeze, "; no momentum was sent in one bit");
  }

 private:
  using Update = one_bit_adam::Update<float>;

  bool frozen() const { return updates() >= c_.freeze; }

  // This rank's part of the next momentum.
  Tensor momentum(Context& ctx, const Var& p) {
    const Tensor own = scaled(ctx, dense_of(ctx, p.grad(), p.value()), static_cast<float>(1 - c_.betas[0]));
    if (const Tensor& m = common()[p.name() + kFirst]; m.defined())
      add_scaled(ctx, own, static_cast<float>(c_.betas[0] / ctx.comm->size()), m);
    return own;
  }

  // Replaces the sums, of gradients or of momenta, by directions, and the moments by those of this update. Ranks of one
  // process share them.
  void advance(Context& ctx, std::span<Var> params) {
    struct Next {
      Tensor m, v, direction;
    };
    const auto next = ctx.comm->once<std::vector<Next>>([&] {
      std::vector<Next> all;
      std::vector<optim::Change<float>> changes;
      for (const Var& p : params) {
        const Tensor sum = p.grad().dense;
        const Tensor &m = common()[p.name() + kFirst], &v = common()[p.name() + kSecond];
        Next& n = all.emplace_back(frozen() ? ctx.empty(p.shape(), DType::f32, MemClass::optimizer) : moment(ctx, p, m),
                                   frozen() && v.defined() ? v : moment(ctx, p, v),
                                   ctx.empty(p.shape(), DType::f32, MemClass::communication));
        changes.push_back({.param = n.direction.data<float>(),
                           .grad = sum.data<float>(),
                           .slot = {n.m.data<float>(), n.v.data<float>()},
                           .count = sum.numel()});
      }
      const Update update = this_update();
      optim::run_updates<float>(ctx, changes, [&](const optim::Change<float>& c) {
        Update one = update;
        one.of = c;
        return one;
      });
      return all;
    });
    for (size_t i = 0; i < params.size(); ++i) {
      common()[params[i].name() + kFirst] = next[i].m;
      common()[params[i].name() + kSecond] = next[i].v;
      params[i].grad().dense = ctx.comm->once_tensor(MemClass::communication, [&] { return next[i].direction; });
    }
  }

  static Tensor moment(Context& ctx, const Var& p, const Tensor& now) {
    return now.defined() ? now.clone(MemClass::optimizer) : ctx.zeros(p.shape(), DType::f32, MemClass::optimizer);
  }

  Update this_update() const {
    const int64_t t = updates() + 1;
    Update u{.frozen = frozen(),
             .b1 = static_cast<float>(c_.betas[0]),
             .b2 = static_cast<float>(c_.betas[1]),
             .eps = static_cast<float>(c_.eps)};
    if (!c_.bias_correction) return u;
    u.first = static_cast<float>(1 / sum_of_weights(c_.betas[0], t));
    u.root = static_cast<float>(1 / std::sqrt(sum_of_weights(c_.betas[1], std::min(t, c_.freeze))));
    return u;
  }

  OneBitAdamConfig c_;
  Reducer exact_;  // of the warm-up
};

}  // namespace

LMX_PLUGIN(sync, one_bit_adam, OneBitAdamConfig, OneBitAdam)

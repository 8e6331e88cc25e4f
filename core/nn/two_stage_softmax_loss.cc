// Two-stage softmax (Xiao 2017, section 4). V_all contains the words that get gradients. It is the list of
// rows that the step's plan has for the weight. Without such a list the loss selects them itself: the current targets,
// the p percent most frequent words and q percent at random. The forward pass adds V_gamma: mu percent of the
// vocabulary, sampled from the words outside V_all. All samples depend on the plan's sampler key, so they are new in
// each step, and ranks with different keys have different samples.
#include <algorithm>

#include "lmx/error.h"
#include "lmx/row_sampling.h"
#include "nn/component.h"
#include "nn/losses.h"
#include "ops/common.h"

namespace lmx::losses {
namespace {

struct TwoStageConfig : OutputConfig {
  RowShares shares;
  double mu = 5;
  std::string dx_set = "all";

  void fields(Fields& f) {
    shares.fields(f);
    f.field("mu", mu, "percent of the vocabulary at random that the forward sums over beside the selected words",
            {0, 100});
    f.choice("dx_set", dx_set, {"all", "forward"},
             "words over which the gradient of the features sums: the selected ones, or all of the forward");
    OutputConfig::fields(f);
  }
  static TwoStageConfig read(const Node& n, const std::string& path) { return read_config<TwoStageConfig>(n, path); }
};

class TwoStageSoftmax final : public OutputLoss {
 public:
  TwoStageSoftmax(TwoStageConfig config, const LossEnv& env, const std::string& where, const std::string& path)
      : OutputLoss(config, env, true, where),
        config_(std::move(config)),
        vocab_(env.vocab_size),
        width_(env.feature_size),
        path_(path) {}

  bool draws_candidates() const override { return true; }
  void check_planned(const std::string& rule) const override {
    const RowShares usual, own = config_.shares;
    if (own.p == usual.p && own.q == usual.q) return;
    throw UserError(str("[loss] ", path_, ".p ", own.p, " and q ", own.q, ": ", rule,
                        " selects the softmax's rows, by its own p and q; give them there, and leave these out"));
  }
  LossValue forward(Context& ctx, const ParameterStore& params, const Var& features, const Tensor& targets,
                    const StepPlan& plan) const override {
    const SoftmaxInputs in = inputs(params, features, targets);
    ops::check_ids("two_stage_softmax", "targets", targets, vocab_, "w", in.w.shape());
    const Var loss = two_stage_softmax_loss(ctx, in, rows(targets, plan));
    return value(ctx, loss, loss);
  }
  LossPlan plan() const override {
    int64_t samples = 0;
    for (const double percent : {config_.shares.p, config_.shares.q, config_.mu})
      samples += rows_of_percent(percent, vocab_);
    return {.samples = std::min(samples, vocab_)};
  }
  // Counts the words that are selected in every batch; targets outside of them are not counted.

 private:
  TwoStageRows rows(const Tensor& targets, const StepPlan& plan) const {
    const RandomKey key = plan.sampler_key.fold("two-stage softmax");
    const auto planned = plan.rows.find(weight_name());
    TwoStageRows rows;
    rows.ids = planned != plan.rows.end()
                   ? planned->second
                   : select_rows(key.fold("selected"), targets.values<int32_t>(), config_.shares, vocab_);
    rows.trained = static_cast<int64_t>(rows.ids.size());
    rows.dh_forward = config_.dx_set == "forward";
    const int64_t count = rows_of_percent(config_.mu, vocab_);
    const std::vector<int32_t> noise = additional_rows(key.fold("forward"), rows.ids, count, vocab_);
    rows.ids.insert(rows.ids.end(), noise.begin(), noise.end());
    return rows;
  }

  TwoStageConfig config_;
  int64_t vocab_, width_;
  std::string path_;  // of the loss in the recipe's tree
};

std::unique_ptr<Loss> make_two_stage_softmax(const Node& config, const std::string& path, const LossEnv& env) {
  return std::make_unique<TwoStageSoftmax>(TwoStageConfig::read(config, path), env, place_of_key(config, path, "tie"),
                                           path);
}

}  // namespace

Entry two_stage_softmax() {
  return component::entry<TwoStageConfig, LossFactory>("two_stage_softmax", make_two_stage_softmax);
}

}  // namespace lmx::losses

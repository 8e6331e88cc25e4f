// Checks of losses: parameters, sums over micro-batches, likelihoods, candidates, gradients against finite differences
// in f64.
#include "lmx/loss.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "conformance/conformance.h"
#include "lmx/gradcheck.h"

namespace lmx::app::conformance {
namespace {

constexpr int64_t kLossWords = 23, kWidth = 5, kTargets = 12;
constexpr double kSameLoss = 1e-4;  // relative difference that additions in f32 explain

Vocabulary vocabulary() {
  std::vector<Vocabulary::Entry> entries;
  for (int64_t k = 0; k < kLossWords; ++k) entries.push_back({"w" + std::to_string(k), 500 / (k + 1)});
  return Vocabulary(std::move(entries));
}

const ParameterSpec kSharedTable{"embedding.weight", {kLossWords, kWidth}, {}, true};

bool close(double a, double b) {
  return std::abs(a - b) <= kSameLoss * std::max({1.0, std::abs(a), std::abs(b)});
}

// The features and parameters of a loss in one type, and their targets.
struct Setting {
  Setting(const Loss& loss, DType type) {
    if (type == DType::f64) ctx.compute = DType::f64;
    uint64_t seed = 20;
    for (const ParameterSpec& spec : loss.parameters()) {
      params.add(ctx, spec, RandomKey(1));
      params.at(spec.name).value().copy_from(normal_values(spec.shape, type, ++seed, 0.5));
      params.at(spec.name).changed();
    }
    features = normal_values({kTargets, kWidth}, type, 7);
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < kTargets; ++i) ids.push_back(static_cast<int32_t>(RandomKey(3).below(i, kLossWords)));
    ids[1] = ids[0];
    targets = Tensor::from<int32_t>(Allocator::cpu(), {kTargets}, ids);
  }
  Context ctx;
  ParameterStore params;
  Tensor features, targets;
};

struct Value {
  double loss = 0, nats = 0;
};

class LossCheck {
 public:
  explicit LossCheck(const Subject& s) : s_(s), words_(vocabulary()), loss_(make(&words_)) {}

  void run(Report& report) {
    report.run("dry run", [&] { return dry_run(); });
    report.run("parameters", [&] { return parameters(); });
    if (report.failures() > 0) return;
    narrow_ = std::make_unique<Setting>(*loss_, DType::f32);
    report.run("tie", [&] { return tie(); });
    report.run("value", [&] { return value(); });
    report.run("determinism", [&] { return determinism(); });
    report.run("sum", [&] { return sum(); });
    report.run("evaluation", [&] { return evaluation(); });
    report.run("likelihood", [&] { return likelihood(); });
    report.run("candidates", [&] { return candidates(); });
    report.run("costs", [&] { return costs(); });
    report.run("gradients", [&] { return gradients(); });
  }

 private:
  std::unique_ptr<Loss> make(const Vocabulary* words, const std::string& tie = "") const {
    auto loss =
        create<LossFactory>(s_.plugin, s_.config, "loss", LossEnv{kLossWords, kWidth, words, {kSharedTable}, tie});
    if (!loss) fail("the factory returns no loss");
    return loss;
  }
  // Whether a target is compared with all words, and not with candidates that may depend on the other targets.
  bool whole() const { return !loss_->draws_candidates() && loss_->plan().samples == 0; }

  Value forward(Setting& s, const Tensor& features, const Tensor& targets, uint64_t key = 5) const {
    const LossValue v = loss_->forward(s.ctx, s.params, Var(features), targets, {.sampler_key = RandomKey(key)});
    if (!v.loss.defined() || v.loss.value().numel() != 1) fail("forward(): `loss` is not one element");
    if (!v.nats.defined() || v.nats.numel() != 1 || v.nats.dtype() != DType::f64)
      fail("forward(): `nats` is not one element of f64 (OutputLoss::value() converts it)");
    return {at(v.loss.value(), 0), at(v.nats, 0)};
  }
  Value forward(uint64_t key = 5) const { return forward(*narrow_, narrow_->features, narrow_->targets, key); }
  Value part(int64_t first, int64_t last) const {
    return forward(*narrow_, narrow_->features.slice(first, last), narrow_->targets.slice(first, last));
  }

  // A dry run has no vocabulary, but needs the parameters.
  std::string dry_run() const {
    const std::vector<ParameterSpec> with = loss_->parameters(), without = make(nullptr)->parameters();
    bool same = with.size() == without.size();
    for (size_t i = 0; same && i < with.size(); ++i)
      same = with[i].name == without[i].name && with[i].shape == without[i].shape;
    if (!same) fail("without a vocabulary (LossEnv::vocabulary is null in a dry run) it has other parameters");
    return "the same parameters without a vocabulary";
  }

  std::string parameters() const {
    std::set<std::string> names;
    for (const ParameterSpec& spec : loss_->parameters()) {
      if (!names.insert(spec.name).second) fail("two parameters are called ", spec.name);
      if (spec.name == kSharedTable.name) fail(spec.name, " is a parameter of the model, and no tie was asked for");
      if (spec.shape.numel() <= 0) fail(spec.name, " is ", spec.shape);
    }
    const std::vector<ParameterSpec> again = loss_->parameters();
    for (size_t i = 0; i < again.size(); ++i)
      if (!names.contains(again[i].name)) fail("a second call of parameters() returns other names");
    const std::string& divisor = loss_->normalize();
    if (divisor != "token" && divisor != "sequence")
      fail("normalize() returns '", divisor, "', expected token or sequence");
    return str(names.size(), " parameters; the sum is divided by the number of ", divisor, "s");
  }

  std::string tie() const {
    std::unique_ptr<Loss> tied;
    try {
      tied = make(&words_, kSharedTable.name);
    } catch (const UserError& e) {
      return str("refuses a model that shares a table with the output layer: ", e.what());
    }
    for (const ParameterSpec& spec : tied->parameters())
      if (spec.name == kSharedTable.name && spec.shape == kSharedTable.shape)
        return "uses the table that a model shares with it";
    fail("LossEnv::tie names ", kSharedTable.name,
         ", but no parameter of the loss is this table; use it as the weight, or ", "throw a UserError");
  }

  std::string value() const {
    const Value v = forward();
    if (!std::isfinite(v.loss)) fail("the loss is ", v.loss);
    if (!(v.nats >= 0) || !std::isfinite(v.nats)) fail("the negative log-likelihood is ", v.nats);
    return str(v.loss, " for ", kTargets, " targets, ", v.nats, " nats");
  }

  std::string determinism() const {
    const Value a = forward(), b = forward();
    if (a.loss != b.loss || a.nats != b.nats)
      fail("two forwards of the same batch give ", a.loss, " and ", b.loss,
           "; noise must come from the StepPlan's key");
    return "equal in every bit";
  }

  // A step's loss is the sum over micro-batches and ranks, and lmx divides it.
  std::string sum() const {
    const Value all = forward(), first = part(0, 1), rest = part(1, kTargets);
    if (whole() && (!close(all.loss, first.loss + rest.loss) || !close(all.nats, first.nats + rest.nats)))
      fail("the losses of ", 1, " and ", kTargets - 1, " targets add up to ", first.loss + rest.loss, " (",
           first.nats + rest.nats, " nats), but that of all is ", all.loss, " (", all.nats,
           "); forward() must return a sum over the targets, which lmx divides");
    std::vector<int32_t> ids;
    std::vector<float> rows;
    for (int copy = 0; copy < 2; ++copy) {
      const auto targets = narrow_->targets.values<int32_t>();
      const auto features = narrow_->features.values<float>();
      ids.insert(ids.end(), targets.begin(), targets.end());
      rows.insert(rows.end(), features.begin(), features.end());
    }
    const Value twice = forward(*narrow_, Tensor::from<float>(Allocator::cpu(), {2 * kTargets, kWidth}, rows),
                                Tensor::from<int32_t>(Allocator::cpu(), {2 * kTargets}, ids));
    if (!close(twice.loss, 2 * all.loss) || !close(twice.nats, 2 * all.nats))
      fail("the loss of a batch is ", all.loss, ", that of the batch twice is ", twice.loss, " (", all.nats, " and ",
           twice.nats, " nats); forward() must return a sum over the targets, which lmx divides");
    return whole() ? "the losses of parts add up to that of the whole"
                   : "twice the targets give twice the loss (candidates may depend on the targets of a batch)";
  }

  // The negative log-likelihoods by the logits, in f64.
  std::vector<double> reference() const {
    const Tensor z = loss_->logits(narrow_->ctx, narrow_->params, narrow_->features);
    if (z.shape() != Shape{kTargets, kLossWords})
      fail("logits() is ", z.shape(), ", expected ", Shape{kTargets, kLossWords});
    std::vector<double> nlls;
    for (int64_t i = 0; i < kTargets; ++i) {
      double total = 0;
      for (int64_t v = 0; v < kLossWords; ++v) total += std::exp(at(z, i * kLossWords + v));
      nlls.push_back(std::log(total) - at(z, i * kLossWords + narrow_->targets.data<int32_t>()[i]));
    }
    return nlls;
  }

  std::string evaluation() const {
    const std::vector<double> expected = reference();
    const Tensor z = loss_->logits(narrow_->ctx, narrow_->params, narrow_->features);
    int64_t seen = 0;
    const auto visit = [&](int64_t first, const Tensor& logits) {
      if (first != seen || logits.rank() != 2 || logits.dim(1) != kLossWords || first + logits.dim(0) > kTargets)
        fail("evaluate() gives logits ", logits.shape(), " of the rows from number ", first, " on, after ", seen,
             " rows; expected all rows of ", z.shape(), " in order");
      for (int64_t i = 0; i < logits.numel(); ++i)
        if (!close(at(logits, i), at(z, first * kLossWords + i))) fail("evaluate() gives other logits than logits()");
      seen += logits.dim(0);
    };
    const Tensor nll = loss_->evaluate(narrow_->ctx, narrow_->params, narrow_->features, narrow_->targets, visit);
    if (seen != kTargets)
      fail("evaluate() gives logits of ", seen, " of ", kTargets, " rows; metrics need all of them");
    if (nll.shape() != Shape{kTargets} || nll.dtype() != DType::f32)
      fail("evaluate() is ", name_of(nll.dtype()), " ", nll.shape(), ", expected f32 ", Shape{kTargets});
    for (int64_t i = 0; i < kTargets; ++i)
      if (!close(at(nll, i), expected[static_cast<size_t>(i)]))
        fail("evaluate() gives ", at(nll, i), " nats for target ", i, ", the softmax of logits() ",
             expected[static_cast<size_t>(i)], "; perplexities of all losses must be comparable");
    return "evaluate() is the full softmax of logits(), which it passes on";
  }

  std::string likelihood() const {
    if (!whole()) return "not compared: candidates take the place of all words in training";
    double expected = 0;
    for (const double nll : reference()) expected += nll;
    const Value v = forward();
    if (!close(v.nats, expected))
      fail("forward() records ", v.nats, " nats, but the full softmax gives the targets ", expected,
           "; `nats` is the negative log-likelihood without what the loss adds to it");
    return close(v.loss, v.nats) ? "the loss is the negative log-likelihood"
                                 : "training records the negative log-likelihood, not the loss";
  }

  // Strategies that choose candidates for all ranks rely on draws_candidates().
  std::string candidates() const {
    const double a = forward(5).loss, b = forward(6).loss;
    if (a != b && !loss_->draws_candidates())
      fail("StepPlan::sampler_key changes the loss (", a, ", ", b, "), but draws_candidates() is false");
    if (a == b && loss_->draws_candidates())
      fail("draws_candidates() is true, but the loss is the same for another StepPlan::sampler_key");
    return a == b ? "none are sampled" : "sampled by StepPlan::sampler_key";
  }

  // Bytes of activations that forward() keeps for backward, for a batch of `copies` times the targets.
  int64_t kept_bytes(int64_t copies) const {
    const int64_t n = copies * kTargets;
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < n; ++i) ids.push_back(narrow_->targets.data<int32_t>()[i % kTargets]);
    Context ctx;
    Tape tape;
    ctx.tape = &tape;
    const Var features(normal_values({n, kWidth}, DType::f32, 9), true, "features");
    const Tensor targets = Tensor::from<int32_t>(Allocator::cpu(), {n}, ids);
    ctx.allocator = Allocator::counting(Allocator::cpu());
    const LossValue v = loss_->forward(ctx, narrow_->params, features, targets, {.sampler_key = RandomKey(5)});
    const int64_t kept = ctx.allocator->stats().current[static_cast<size_t>(MemClass::activations)];
    tape.clear();
    return kept;
  }

  std::string costs() const {
    const LossPlan plan = loss_->plan();
    if (plan.samples < 0 || plan.samples > kLossWords)
      fail("plan().samples is ", plan.samples, ", and the vocabulary has ", kLossWords, " words");
    const int64_t bytes = (kept_bytes(8) - kept_bytes(4)) / (4 * kTargets);
    return str(bytes, " bytes a token");
  }

  std::string gradients() const {
    Setting wide(*loss_, DType::f64);
    std::vector<Var> leaves{Var(wide.features, true, "features")};
    for (const std::string& name : wide.params.names()) leaves.push_back(wide.params.at(name));
    const auto run = [&](Context& ctx, const std::vector<Var>& v) {
      return loss_->forward(ctx, wide.params, v[0], wide.targets, {.sampler_key = RandomKey(5)}).loss;
    };
    const std::string problem = testing::gradcheck_problem(run, leaves);
    if (!problem.empty() && !s_.approximate)
      fail(problem, " (analytic: of backward; numeric: the difference quotient); --approximate allows a gradient that ",
           "differs from that of the loss on purpose");
    testing::run_backward(run, leaves, 1, {});
    for (const std::string& name : wide.params.names()) {
      const Gradient& g = wide.params.at(name).grad();
      if (g.empty()) fail("no gradient reaches the parameter ", name);
      check_form(g, wide.params.spec(name));
    }
    const Value narrow = forward(), exact = forward(wide, wide.features, wide.targets);
    if (!close(narrow.loss, exact.loss)) fail("in f32 the loss is ", narrow.loss, ", in f64 ", exact.loss);
    if (!problem.empty()) return "--approximate: not that of the loss, " + problem;
    return str("features and ", wide.params.names().size(), " parameters against difference quotients in f64");
  }

  const Subject& s_;
  Vocabulary words_;
  std::unique_ptr<Loss> loss_;
  std::unique_ptr<Setting> narrow_;
};

}  // namespace

void check_loss(Report& report, const Subject& subject) {
  std::unique_ptr<LossCheck> check;
  report.run("construction", [&] {
    check = std::make_unique<LossCheck>(subject);
    return str("with a vocabulary of ", kLossWords);
  });
  if (check) check->run(report);
}

}  // namespace lmx::app::conformance

// The LSTM language model against PyTorch: same weights, same batches (tools/parity/lstm.py makes the golden files).
#include <gtest/gtest.h>

#include <cmath>

#include "lmx/checkpoint.h"
#include "lmx/error.h"
#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/optim.h"
#include "lmx/plugin.h"
#include "ops/gradcheck.h"

namespace lmx {
namespace {

struct Golden {
  const char* name;
  const char* model;
};

void PrintTo(const Golden& g, std::ostream* out) {
  *out << g.name;
}

class LstmParity : public ::testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    golden_ =
        load_safetensors(str(LMX_SOURCE_DIR, "/tests/models/golden/", GetParam().name, ".safetensors"), ctx_.allocator);
    const Node config = parse_yaml(GetParam().model, "test");
    Registry::instance().add_default_directories();
    const int64_t vocab = golden_.at("param.embedding.weight").dim(0);
    model_ =
        factory<ModelFactory>(Registry::instance().find(PluginKind::model, config, "model"))(config, "model", {vocab});
    loss_ = make_loss(parse_yaml("{name: full_softmax, bias: true}", "test"), "loss",
                      {vocab, model_->feature_size(), nullptr});
    for (const ParameterSpec& spec : model_->parameters()) add(spec);
    for (const ParameterSpec& spec : loss_->parameters()) add(spec);
    state_ = model_->initial_state(ctx_, golden_.at("inputs").dim(1));
  }

  void add(const ParameterSpec& spec) {
    Var& v = params_.add(ctx_, spec, RandomKey(1));
    v.value().copy_from(golden_.at("param." + spec.name));
    v.changed();
  }

  Batch batch(int64_t step) const {
    const Tensor& inputs = golden_.at("inputs");
    Batch b;
    b.inputs = inputs.slice(step, step + 1).reshape({inputs.dim(1), inputs.dim(2)});
    b.targets = golden_.at("targets").slice(step, step + 1).reshape({inputs.dim(1), inputs.dim(2)});
    for (int64_t s = 0; s < inputs.dim(1); ++s) b.slots.push_back(s);
    b.fresh.assign(b.slots.size(), step == 0);
    return b;
  }

  // Forward and backward of one batch; returns the mean loss.
  double differentiate(int64_t step) {
    Tape tape;
    ctx_.tape = &tape;
    const Batch b = batch(step);
    features_ = model_->forward(ctx_, params_, b, state_);
    const Var loss = loss_->forward(ctx_, params_, features_, b.targets.reshape({-1}), {}).loss;
    const double tokens = static_cast<double>(b.tokens());
    const double mean = *loss.value().data<float>() / tokens;
    tape.backward(ctx_, loss, 1 / tokens);
    ctx_.tape = nullptr;
    return mean;
  }

  // Largest difference over the largest value: 1e-5 is a hundred units in the last place of fp32.
  void expect_close(const std::string& what, const std::vector<double>& got, const Tensor& want, double limit) {
    ASSERT_EQ(static_cast<int64_t>(got.size()), want.numel()) << what;
    double largest = 0, error = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(want.data<float>()[i])));
      error = std::max(error, std::abs(got[i] - static_cast<double>(want.data<float>()[i])));
    }
    EXPECT_LE(error, limit * largest) << what;
  }

  std::vector<double> doubles(const Tensor& t) const {
    const std::span<const float> v = t.values<float>();
    return {v.begin(), v.end()};
  }

  Context ctx_;
  StateDict golden_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loss> loss_;
  ParameterStore params_;
  ModelState state_;
  Var features_;
};

TEST_P(LstmParity, FirstBatch) {
  const double loss = differentiate(0);
  EXPECT_NEAR(loss, *golden_.at("losses").data<float>(), 1e-5 * loss);
  expect_close("logits", doubles(loss_->logits(ctx_, params_, features_.value())), golden_.at("logits"), 1e-5);
  for (const std::string& name : params_.names()) {
    expect_close(name, lmx::testing::dense_gradient(params_.at(name)), golden_.at("grad." + name), 1e-5);
  }
  const Tensor& h = golden_.at("state_h");
  for (int64_t l = 0; l < h.dim(0); ++l) {
    expect_close("h", doubles(state_.at(str("lstm.", l, ".h"))), h.slice(l, l + 1), 1e-5);
    expect_close("c", doubles(state_.at(str("lstm.", l, ".c"))), golden_.at("state_c").slice(l, l + 1), 1e-5);
  }
}

TEST_P(LstmParity, TwentyTrainingLosses) {
  const std::unique_ptr<Optimizer> sgd = make_optimizer(parse_yaml("{name: sgd, lr: 1.0}", "test"), "optimizer");
  const Tensor& losses = golden_.at("losses");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const double loss = differentiate(step), want = losses.data<float>()[step];
    EXPECT_NEAR(loss, want, 1e-5 * want) << "step " << step;
    for (const std::string& name : params_.names()) params_.at(name).grad().coalesce(ctx_);
    clip_gradients(ctx_, params_, {{".*", 0.5}});
    for (const std::string& name : params_.names()) sgd->update(ctx_, params_.at(name), 1.0, step + 1);
    params_.clear_gradients();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Golden, LstmParity,
    ::testing::Values(Golden{"lstm_plain", "{name: lstm, embedding: 7, cells: 12}"},
                      Golden{"lstm_projection", "{name: lstm, embedding: 7, cells: 12, projection: 6}"},
                      Golden{"lstm_two_layers", "{name: lstm, layers: 2, embedding: 7, cells: 12, projection: 6}"}));

}  // namespace
}  // namespace lmx

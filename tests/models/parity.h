// A model against PyTorch: same weights, same batches. Scripts in tools/parity make the golden files. The model
// computes on the device that LMX_TEST_DEVICE names.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device.h"
#include "lmx/error.h"
#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/optim.h"
#include "lmx/plugin.h"
#include "ops/gradcheck.h"
#include "paths.h"
#include "runfiles/checkpoint.h"

namespace lmx::testing {

struct Golden {
  const char* name;   // tests/models/golden/NAME.safetensors
  const char* model;  // its config
};

inline void PrintTo(const Golden& g, std::ostream* out) {
  *out << g.name;
}

class Parity : public ::testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    ctx_ = lmx_test::test_context();
    golden_ = load_safetensors(str(lmx_test::source_path("/tests/models/golden/"), GetParam().name, ".safetensors"),
                               ctx_.host);
  }

  // Makes the model and a full softmax, with the golden file's weights.
  void make(int64_t vocab, const char* loss) {
    const Node config = parse_yaml(GetParam().model, "test");
    Registry::instance().add_default_directories();
    const PluginInfo& plugin = Registry::instance().find(PluginKind::model, config, "model");
    model_ = create<ModelFactory>(plugin, config, "model", ModelEnv{vocab});
    const LossEnv env{vocab, model_->feature_size(), nullptr, model_->parameters(), model_->output_table()};
    loss_ = make_loss(parse_yaml(loss, "test"), "loss", env);
    for (const ParameterSpec& spec : all_parameters(model_->parameters(), *loss_)) {
      Var& v = params_.add(ctx_, spec, RandomKey(1));
      copy_values(v.value(), golden_.at("param." + spec.name));
      v.changed();
    }
  }

  virtual Batch batch(int64_t step) const = 0;

  // Forward and backward of one batch; returns the mean loss.
  double differentiate(int64_t step) {
    Tape tape;
    ctx_.tape = &tape;
    const Batch b = batch(step);
    features_ = model_->forward(ctx_, params_, b, state_);
    const Var loss = loss_->forward(ctx_, params_, features_, b.targets.reshape({-1}), {}).loss;
    const double tokens = static_cast<double>(b.tokens());
    const double mean = static_cast<double>(ctx_.read<float>(loss.value()).value()) / tokens;
    tape.backward(ctx_, loss, 1 / tokens);
    ctx_.tape = nullptr;
    return mean;
  }

  // Largest difference over the largest value, or `floor`: 1e-5 is a hundred units in the last place of fp32.
  void expect_close(const std::string& what, const std::vector<double>& got, const Tensor& want, double floor = 0) {
    ASSERT_EQ(static_cast<int64_t>(got.size()), want.numel()) << what;
    double largest = floor, error = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(want.data<float>()[i])));
      error = std::max(error, std::abs(got[i] - static_cast<double>(want.data<float>()[i])));
    }
    EXPECT_LE(error, 1e-5 * largest) << what;
  }

  // What a gradient is compared with where its largest value is smaller.
  virtual double floor_of(const std::string&) const { return 0; }

  void expect_equal_first_batch() {
    const double loss = differentiate(0);
    EXPECT_NEAR(loss, *golden_.at("losses").data<float>(), 1e-5 * loss);
    expect_close("logits", lmx_test::values_of(ctx_, loss_->logits(ctx_, params_, features_.value())),
                 golden_.at("logits"));
    size_t gradients = 0;
    for (const auto& [name, value] : golden_) gradients += name.starts_with("grad.");
    EXPECT_EQ(gradients, params_.names().size());
    for (const std::string& name : params_.names())
      expect_close(name, dense_gradient(params_.at(name)), golden_.at("grad." + name), floor_of(name));
  }

  void expect_equal_training(double lr) {
    const std::unique_ptr<Optimizer> sgd =
        make_optimizer(parse_yaml(str("{name: sgd, lr: ", lr, "}"), "test"), "optimizer");
    const Tensor& losses = golden_.at("losses");
    for (int64_t step = 0; step < losses.numel(); ++step) {
      const double loss = differentiate(step), want = losses.data<float>()[step];
      EXPECT_NEAR(loss, want, 1e-5 * want) << "step " << step;
      for (const std::string& name : params_.names()) params_.at(name).grad().coalesce(ctx_);
      clip_gradients(ctx_, params_, {{ParamPattern(".*"), 0.5}});
      for (const std::string& name : params_.names()) sgd->update(ctx_, params_.at(name), lr, step + 1);
      params_.clear_gradients();
    }
  }

  Context ctx_;
  StateDict golden_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loss> loss_;
  ParameterStore params_;
  ModelState state_;
  Var features_;
};

}  // namespace lmx::testing

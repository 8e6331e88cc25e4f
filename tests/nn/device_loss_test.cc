// `loss:` of a recipe on a CUDA device against the CPU: initial parameters, one forward and backward pass, the
// evaluation and the logits.
#include <gtest/gtest.h>

#include "lmx/loss.h"
#include "ops/device_values.h"

namespace lmx {
namespace {

using testing::Place;
using testing::Values;

class DeviceLoss : public testing::OnDevice {};

std::vector<Values> run(const std::string& config, Device device, DType compute) {
  constexpr int64_t kV = 90, kD = 7;
  std::vector<Vocabulary::Entry> entries;
  for (int64_t k = 0; k < kV; ++k) entries.push_back({"w" + std::to_string(k), 5000 / (k + 1)});
  const Vocabulary words(std::move(entries));
  const auto loss = make_loss(parse_yaml(config, "r.yaml"), "loss", {kV, kD, &words});
  Place p(device, compute);
  ParameterStore params;
  for (const ParameterSpec& spec : loss->parameters()) params.add(p.ctx, spec, RandomKey(5));
  const Var features = p.leaf(testing::f64_tensor({5, kD}, 1));
  const Tensor targets = p.host(testing::ids_tensor({3, 0, 89, 3, 44}));
  const LossValue value = loss->forward(p.ctx, params, features, targets, {.sampler_key = RandomKey(7)});
  p.tape.backward(p.ctx, value.loss, 0.2);
  std::vector<Values> all{p.values(value.loss.value()), p.values(value.nats), p.gradient(features)};
  for (const std::string& name : params.names()) {
    all.push_back(p.values(params.at(name).value()));
    all.push_back(p.gradient(params.at(name)));
    params.at(name).grad().coalesce(p.ctx);
    all.push_back(p.gradient(params.at(name)));
    all.push_back(p.values(params.copy(p.ctx).at(name).value()));
  }
  all.push_back(p.values(loss->evaluate(p.ctx, params, features.value(), targets)));
  all.push_back(p.values(loss->logits(p.ctx, params, features.value())));
  return all;
}

TEST_F(DeviceLoss, EqualsTheCpu) {
  for (const char* config :
       {"{name: full_softmax, init: {kind: normal, scale: 0.5}}",
        "{name: full_softmax, label_smoothing: 0.1, bias: false, init: {kind: xavier_uniform, scale: 1}}",
        "{name: sampled_softmax, samples: 20, proposal: unigram, init: {kind: uniform, scale: 1}}",
        "{name: sampled_softmax, samples: 20, logq: false, remove_accidental_hits: false, bias: false}",
        "{name: two_stage_softmax, p: 10, q: 10, mu: 20, dx_set: forward, init: {kind: normal, scale: 0.5}}",
        "{name: two_stage_softmax, p: 10, q: 10, mu: 0}"}) {
    SCOPED_TRACE(config);
    testing::expect_close(run(config, testing::kDevice, DType::f64), run(config, {}, DType::f64), 1e-12);
    testing::expect_close(run(config, testing::kDevice, DType::f32), run(config, {}, DType::f32), 1e-5);
  }
}

}  // namespace
}  // namespace lmx

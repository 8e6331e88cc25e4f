#include "app/plan/work.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lmx/optim.h"
#include "lmx/recomputing_model.h"

namespace lmx::plan {
namespace {

using namespace train;

// Launches of a pass over one product: itself and the element-wise part after it; backward also the second product.
constexpr double kForwardLaunches = 2, kBackwardLaunches = 3;
// How often a byte that is kept for backward is moved.
constexpr double kForwardMoves = 2, kBackwardMoves = 3, kLogitMoves = 2;

struct Stage {
  std::string weight;
  double forward_s = 0, backward_s = 0;
};

// Activation bytes that belong to a product: kept until backward, or computed a second time then, together with the
// product.
struct Activations {
  double kept = 0, recomputed = 0;
  bool again = false;
};

// A frozen weight needs no gradient.
Stage stage_of(const Product& p, bool frozen, const Activations& bytes, const DeviceConfig& device, DType compute) {
  const double times = static_cast<double>(p.times), launch = device.launch_us * 1e-6;
  const double all = bytes.kept + bytes.recomputed;
  const auto products = [&](int64_t n, int64_t k) {
    return times * device.product_s(p.m, n, k, compute) + (p.times > 1 ? device.pack_s(p.m, n, k, compute) : 0);
  };
  const double forward = products(p.n, p.k) + device.memory_s(kForwardMoves * all);
  double backward = products(p.k, p.n) + device.memory_s(kBackwardMoves * all);
  if (p.weight.empty())
    backward += times * device.product_s(p.n, p.k, p.m, compute);
  else if (!frozen)
    backward += device.product_s(p.n, p.k, p.m * p.times, compute);
  Stage stage{p.weight, std::max(forward, times * kForwardLaunches * launch),
              std::max(backward, (times * (kBackwardLaunches - 1) + 1) * launch)};
  if (bytes.again) {
    const double again = times * device.product_s(p.m, p.n, p.k, compute);
    stage.backward_s +=
        std::max(again + device.memory_s(kForwardMoves * bytes.recomputed), times * kForwardLaunches * launch);
  }
  return stage;
}

// The sizes of one forward pass.
ForwardShape pass_shape(const Shares& s) {
  if (s.pairs) return {std::max<int64_t>(1, s.forward_tokens / kSentence), kSentence};
  return {s.forward_tokens / s.length, s.length};
}

// The products of a forward pass: the model's, and at last the loss's.
std::vector<Product> forward_products(const Network& network, const Shares& shares) {
  std::vector<Product> products = network.model->products(pass_shape(shares));
  const int64_t width = network.model->feature_size(), tokens = shares.forward_tokens;
  const int64_t words = std::max<int64_t>(1, network.loss->macs_per_token(tokens) / width);
  products.push_back({tokens, words, width, 1, network.loss->parameters().front().name});
  return products;
}

std::vector<Stage> stages_of(const Network& network, const Shares& shares, const DeviceConfig& device, DType compute) {
  std::vector<Product> products = forward_products(network, shares);
  const Product loss = products.back();
  products.pop_back();
  double macs = 0;
  for (const Product& p : products) macs += static_cast<double>(p.macs());
  const double tokens = static_cast<double>(shares.forward_tokens);
  const double kept = tokens * static_cast<double>(network.model->activation_bytes_per_token(compute));
  const auto* again = dynamic_cast<const RecomputingModel*>(network.model.get());
  const double recomputed = again ? tokens * static_cast<double>(again->recomputed_bytes_per_token(compute)) : 0;
  std::set<std::string> frozen;
  for (const ParameterSpec& spec : network.specs)
    if (spec.frozen) frozen.insert(spec.name);
  std::vector<Stage> stages;
  for (const Product& p : products) {
    const double part = static_cast<double>(p.macs()) / std::max(macs, 1.0);
    const Activations bytes{kept * part, recomputed * part, again && again->recomputes(p)};
    stages.push_back(stage_of(p, frozen.contains(p.weight), bytes, device, compute));
  }
  const double logits = kLogitMoves * 4 * static_cast<double>(loss.m * loss.n);
  Stage last = stage_of(loss, frozen.contains(loss.weight), {}, device, compute);
  last.forward_s += device.memory_s(logits);
  last.backward_s += device.memory_s(logits);
  stages.push_back(last);
  return stages;
}

// A parameter that no product names (a bias, a gain) is complete with the matrix that is declared before it. A table of
// the input is complete at the end, also if the output layer shares it.
std::map<std::string, double> ready_times(const Network& network, const std::vector<Stage>& stages, double backward_s) {
  std::set<std::string> tables;
  for (const ParameterSpec& spec : network.model->parameters())
    if (spec.sparse) tables.insert(spec.name);
  std::map<std::string, double> named, ready;
  double now = 0;
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    now += stage->backward_s;
    if (!stage->weight.empty()) named[stage->weight] = now;
  }
  double last = backward_s;
  for (const ParameterSpec& spec : network.specs) {
    const auto found = named.find(spec.name);
    if (tables.contains(spec.name) || (found == named.end() && spec.shape.rank() > 1))
      last = backward_s;
    else if (found != named.end())
      last = found->second;
    ready[spec.name] = last;
  }
  return ready;
}

// Adds the times of an update that changes these parts.
void add_update(Work& work, const Recipe& r, const Network& network, const DeviceConfig& device,
                const ChangedParts& parts) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(r.optimizer, "optimizer");
  for (const ParameterSpec& spec : network.specs) {
    if (spec.frozen) continue;
    const double part = parts.at(spec.name), values = 4 * static_cast<double>(spec.shape.numel()),
                 state = static_cast<double>(optimizer->state_bytes(spec));
    work.update_s += device.memory_s(part * (2 * (values + state) + values));
    if (r.clip.kind != Node::Kind::null) work.clip_s += device.memory_s(part * values);
  }
  work.update_s += work.clip_s;
}

}  // namespace

ChangedParts changed_parts(const Network& network, const Shares& shares, const WordLaw& law,
                           const std::vector<UnitPlan>& units) {
  ChangedParts parts;
  std::map<std::string, double> bytes;
  for (const ParameterSpec& spec : network.specs) {
    const double height = static_cast<double>(spec.shape[0]);
    const int64_t tokens = shares.step_tokens + shares.samples * shares.ranks;
    parts[spec.name] = spec.sparse ? static_cast<double>(law(tokens, spec.shape[0])) / height : 1;
    bytes[spec.name] = 4 * static_cast<double>(spec.shape.numel());
  }
  for (const UnitPlan& unit : units) {
    double whole = 0;
    for (const std::string& name : unit.params) whole += bytes.at(name);
    for (const std::string& name : unit.params)
      parts[name] = std::min(1.0, static_cast<double>(unit.kept.sums) / std::max(whole, 1.0));
  }
  return parts;
}

void Work::set_pass(double forward, double backward) {
  for (auto& [name, seconds] : ready_s) seconds *= backward / std::max(backward_s, 1e-12);
  forward_s = forward;
  backward_s = backward;
}

std::vector<ProductShape> product_shapes(const Network& network, const Shares& shares) {
  std::set<ProductShape> shapes;
  for (const Product& p : forward_products(network, shares)) {
    const bool repeated = p.times > 1;
    shapes.insert({p.m, p.n, p.k, repeated});
    shapes.insert({p.m, p.k, p.n, repeated});
    shapes.insert({p.n, p.k, p.m * (p.weight.empty() ? 1 : p.times), false});
  }
  return {shapes.begin(), shapes.end()};
}

Work work_of(const Recipe& recipe, const Network& network, const Shares& shares, const DeviceConfig& device,
             const ChangedParts& parts) {
  const std::vector<Stage> stages = stages_of(network, shares, device, compute_of(recipe));
  Work work;
  work.passes = std::max(1.0, static_cast<double>(shares.own_tokens) / static_cast<double>(shares.forward_tokens));
  for (const Stage& stage : stages) {
    work.forward_s += stage.forward_s;
    work.backward_s += stage.backward_s;
  }
  work.ready_s = ready_times(network, stages, work.backward_s);
  add_update(work, recipe, network, device, parts);
  return work;
}

}  // namespace lmx::plan

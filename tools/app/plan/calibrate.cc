#include "app/plan/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>

#include "app/memory/estimate.h"
#include "app/memory/machine_memory.h"
#include "app/plan/work.h"
#include "app/records/median.h"
#include "data/data_config.h"
#include "lmx/autograd.h"
#include "lmx/error.h"
#include "lmx/matmul.h"
#include "recipe/planned_batcher.h"

namespace lmx::plan {
namespace {

using namespace train;
using Clock = std::chrono::steady_clock;

constexpr double kShortest = 0.05;  // seconds that a measurement is repeated
constexpr int kLeastTimes = 5;
constexpr int64_t kStream = int64_t{1} << 26;  // floats of the arrays that are added: beyond every cache

// The median of the seconds of `body`, after one call that is not counted.
double median_s(const std::function<void()>& body) {
  body();
  std::vector<double> times;
  double total = 0;
  while (total < kShortest || times.size() < kLeastTimes) {
    const auto begin = Clock::now();
    body();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total += times.back();
  }
  return lmx_cli::median(std::move(times));
}

Tensor noise(Context& ctx, const Shape& shape) {
  Tensor t = ctx.empty(shape, DType::f32);
  float x = 0.3F;  // the time of a product does not depend on the values, unless they are zero or denormal
  for (float& v : t.values<float>()) v = x = x > 0.9F ? x - 0.7F : x + 0.013F;
  return t;
}

double product_s(Context& ctx, const ProductShape& p) {
  Tensor c = ctx.zeros({p.m, p.n}, DType::f32);
  const Tensor b = noise(ctx, {p.k, p.n});
  if (p.repeated) {
    const PackedMatrix packed(ctx, b, false, p.m);
    const Tensor a = as_operand(ctx, noise(ctx, {p.m, p.k}));
    return median_s([&] { packed.multiply(ctx, a, c); });
  }
  const Tensor a = noise(ctx, {p.m, p.k});
  return median_s([&] { matmul(ctx, a, false, b, false, c); });
}

// The largest rate is the peak; `half_size` is the median of what each product's rate implies.
void fit_curve(DeviceConfig& device, const std::vector<MeasuredProduct>& products, DType compute) {
  std::vector<std::pair<double, double>> rates;  // smallest size, operations a second
  double peak = 0;
  for (const MeasuredProduct& p : products) {
    const double macs = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    rates.emplace_back(static_cast<double>(std::min({p.m, p.n, p.k})), 2 * macs / (p.us * 1e-6));
    peak = std::max(peak, rates.back().second);
  }
  std::vector<double> halves;
  for (const auto& [size, rate] : rates) halves.push_back(size * (peak / rate - 1));
  device.half_size = lmx_cli::median(std::move(halves));
  device.peak_tflops.of(compute) = peak / 1e12;
  device.efficiency.of(compute) = 1;
}

DeviceConfig measure_device(const Recipe& recipe, Context& ctx, int ranks) {
  const Network network = make_network(recipe, data::vocabulary_size(recipe.data), nullptr);
  const Shares shares = shares_of(recipe, planned_batcher(recipe.batcher)->plan(), network.loss->plan(), ranks);
  DeviceConfig device;
  device.name = str("CPU (", cpu_isa(), ")");
  device.memory_gb = static_cast<double>(machine_memory().bytes) / 1e9 / ranks;
  std::vector<MeasuredProduct> products;
  for (const ProductShape& shape : product_shapes(network, shares))
    products.push_back({shape.m, shape.n, shape.k, recipe.precision, 1e6 * product_s(ctx, shape)});
  fit_curve(device, products, ctx.compute);
  for (const MeasuredProduct& p : products) device.products.items.push_back(write_config(p));
  {
    Tensor a = ctx.zeros({kStream / ranks}, DType::f32);
    const Tensor b = noise(ctx, {kStream / ranks});
    const double seconds = median_s([&] { add_tensor(ctx, a, b); });
    device.memory_gb_s = 3 * 4 * static_cast<double>(a.numel()) / seconds / 1e9;
  }
  Tensor one = ctx.zeros({1}, DType::f32);
  const Tensor other = noise(ctx, {1});
  device.launch_us = 1e6 / 1000 * median_s([&] {
                       for (int i = 0; i < 1000; ++i) add_tensor(ctx, one, other);
                     });
  return device;
}

constexpr int kExchanges = 7;

// The median of the seconds between two barriers, without those of a barrier itself. Collective.
double between_barriers_s(Communicator& comm, const std::function<void()>& body) {
  std::vector<double> times, barriers;
  for (int i = 0; i < kExchanges; ++i) {
    comm.barrier();
    const auto begin = Clock::now();
    body();
    const auto middle = Clock::now();
    comm.barrier();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    const auto alone = Clock::now();
    comm.barrier();
    barriers.push_back(std::chrono::duration<double>(Clock::now() - alone).count());
    times.back() = std::max(times.back() - barriers.back(), std::chrono::duration<double>(middle - begin).count());
  }
  return lmx_cli::median(std::move(times));
}

// Seconds of an exchange in which this rank sends `floats` floats to each rank for which `with` holds.
double exchange_s(Context& ctx, const std::function<bool(int)>& with, int64_t floats) {
  std::vector<int64_t> rows;
  for (int r = 0; r < ctx.comm->size(); ++r) rows.push_back(r != ctx.comm->rank() && with(r) ? floats : 0);
  const Tensor own = noise(ctx, {std::accumulate(rows.begin(), rows.end(), int64_t{0})});
  return between_barriers_s(*ctx.comm, [&] { ctx.comm->all_to_all(own, rows, rows, "calibration"); });
}

// `partners`: ranks with which each rank exchanges; `sharing`: ranks that share the link.
LinkConfig measure_link(Context& ctx, const std::function<bool(int)>& with, int partners, int sharing) {
  constexpr int64_t kSmall = 1, kLarge = int64_t{1} << 19;
  const double small = exchange_s(ctx, with, kSmall), large = exchange_s(ctx, with, kLarge);
  LinkConfig link;
  const double bytes = 4.0 * static_cast<double>(kLarge - kSmall) * partners * sharing;
  link.gb_s = bytes / std::max(large - small, 1e-9) / 1e9;
  link.latency_us = 1e6 * small / std::max(1, ctx.comm->size() - 1);  // its rounds follow each other
  return link;
}

}  // namespace

Machine calibrate(const Recipe& recipe, Communicator& comm, int ranks_per_node) {
  Context ctx;
  ctx.comm = &comm;
  ctx.compute = compute_of(recipe);
  ctx.rank = comm.rank();
  ctx.ranks = comm.size();
  const int nodes = (comm.size() + ranks_per_node - 1) / ranks_per_node, own_node = comm.rank() / ranks_per_node;
  Machine m;
  m.name = str("measured: ", comm.size(), comm.size() == 1 ? " rank" : " ranks", " on ", nodes,
               nodes == 1 ? " node" : " nodes");
  comm.barrier();
  m.device = measure_device(recipe, ctx, std::min(ranks_per_node, comm.size()));
  m.links.ranks_per_node = ranks_per_node;
  m.sources = Node::map();
  m.sources.set("device", Node::string("measured by lmx plan --calibrate"));
  m.sources.set("links", Node::string("measured by lmx plan --calibrate"));
  const int inside = std::min(ranks_per_node, comm.size()) - 1, outside = comm.size() - 1 - inside;
  comm.barrier();
  if (inside > 0)
    m.links.node = measure_link(
        ctx, [&](int r) { return r / ranks_per_node == own_node; }, inside, 1);
  if (outside > 0)
    m.links.network = measure_link(
        ctx, [&](int r) { return r / ranks_per_node != own_node; }, outside, ranks_per_node);
  // A link that this job does not have.
  const LinkConfig memory{m.device.memory_gb_s / 2, m.device.launch_us};
  if (inside == 0) m.links.node = outside > 0 ? m.links.network : memory;
  if (outside == 0) m.links.network = m.links.node;
  if (inside == 0) m.sources.set("links.node", Node::string("not measured: every rank is alone on its node"));
  if (outside == 0) m.sources.set("links.network", Node::string("not measured: all ranks are on one node"));
  return m;
}

}  // namespace lmx::plan

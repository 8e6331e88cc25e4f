#include "app/calibration/calibrate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "app/calibration/rehearsal.h"
#include "app/calibration/timing.h"
#include "app/datasets/open.h"
#include "app/memory/counted.h"
#include "app/plan/variants.h"
#include "app/plan/work.h"
#include "app/print/terminal.h"
#include "app/records/records.h"
#include "backend/cuda.h"
#include "base/clock.h"
#include "base/text.h"
#include "lmx/autograd.h"
#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"
#include "lmx/tensor.h"
#include "recipe/comm_config.h"
#include "recipe/components.h"
#include "recipe/planned_batcher.h"
#include "recipe/sync_rules.h"

namespace lmx::app::calibration {
namespace {

double operations(const plan::MeasuredProduct& p) {
  return 2 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

// Seconds in which the memory delivers the operands and takes the result.
double traffic_s(const plan::DeviceConfig& device, const plan::MeasuredProduct& p, DType compute) {
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  return device.memory_s(static_cast<double>(size_of(compute)) * (m * k + k * n + m * n));
}

// Operations a second, without the fixed part of the time.
double rate_of(const plan::MeasuredProduct& p, double fixed_us) {
  return operations(p) / (1e-6 * std::max(p.us - fixed_us, p.us / 2));
}

double peak_of(const std::vector<plan::MeasuredProduct>& products, double fixed_us) {
  double peak = 0;
  for (const plan::MeasuredProduct& p : products) peak = std::max(peak, rate_of(p, fixed_us));
  return peak;
}

}  // namespace

void fit_products(plan::DeviceConfig& device, const std::vector<plan::MeasuredProduct>& products, DType compute) {
  const double first_peak = peak_of(products, 0);
  std::vector<plan::MeasuredProduct> arithmetic;
  std::vector<double> beyond;  // microseconds
  for (const plan::MeasuredProduct& p : products) {
    const double traffic = traffic_s(device, p, compute);
    if (device.kind == "gpu" && traffic > operations(p) / first_peak)
      beyond.push_back(std::max(0.0, p.us - 1e6 * traffic));
    else
      arithmetic.push_back(p);
  }
  device.product_us = beyond.empty() ? 0 : median(std::move(beyond));
  const double peak = peak_of(products, device.product_us);
  std::vector<double> halves;
  for (const plan::MeasuredProduct& p : arithmetic)
    halves.push_back(static_cast<double>(std::min({p.m, p.n, p.k})) * (peak / rate_of(p, device.product_us) - 1));
  device.half_size = halves.empty() ? 0 : median(std::move(halves));
  device.peak_tflops.of(compute) = peak / 1e12;
  device.efficiency.of(compute) = 1;
}

namespace {

constexpr int64_t kStream = int64_t{1} << 26;  // floats of the arrays that are added: beyond every cache of a CPU
constexpr int64_t kCaches = 8;                 // arrays of a GPU are as many times as large as its L2 cache
constexpr int64_t kLaunches = 1000;            // small kernels of a measurement
constexpr int64_t kFewestReplayed = 16;        // products of a replayed loop

bool on_gpu(const Context& ctx) {
  return ctx.device.kind != Device::Kind::cpu;
}

int64_t cache_of(const Context& ctx) {
  return cuda_device_info(ctx.device.index).cache;
}

// A GPU computes products in a replayed loop, so that the host's part, which is counted by itself, does not matter.
// Each product has another second factor. Together these exceed the L2 cache twice, because a pass uses all of its
// weights between two uses of one.
double cold_product_s(Context& ctx, const plan::ProductShape& p) {
  const auto bytes = p.k * p.n * static_cast<int64_t>(size_of(ctx.compute));
  const int64_t different = (2 * cache_of(ctx) + bytes - 1) / bytes, copies = std::max(kFewestReplayed, different);
  const Tensor a = to_compute(ctx, noise(ctx, {p.m, p.k}));
  const Tensor all = to_compute(ctx, noise(ctx, {different * p.k, p.n}));
  Tensor c = ctx.zeros({p.m, p.n}, DType::f32);
  return together_s(ctx,
                    [&] {
                      replay_steps(ctx, [&](Context& loop) {
                        for (int64_t i = 0; i < copies; ++i) {
                          const int64_t row = i % different * p.k;
                          gemm(loop, a, false, all.slice(row, row + p.k), false, c);
                        }
                      });
                    }) /
         static_cast<double>(copies);
}

plan::MeasuredProduct measure_product(Context& ctx, const plan::ProductShape& p, const std::string& precision) {
  plan::MeasuredProduct result{p.m, p.n, p.k, precision};
  if (on_gpu(ctx)) {
    result.us = 1e6 * cold_product_s(ctx, p);
    return result;
  }
  Tensor c = ctx.zeros({p.m, p.n}, DType::f32);
  const Tensor b = noise(ctx, {p.k, p.n}), a = noise(ctx, {p.m, p.k});
  if (!p.repeated) {
    result.us = 1e6 * together_s(ctx, [&] { matmul(ctx, a, false, b, false, c); });
    return result;
  }
  result.pack_us = 1e6 * together_s(ctx, [&] { PackedMatrix(ctx, b, false, p.m); });
  const PackedMatrix packed(ctx, b, false, p.m);
  const Tensor operand = as_operand(ctx, a);
  result.us = 1e6 * together_s(ctx, [&] { packed.multiply(ctx, operand, c); });
  return result;
}

// How the ranks of a machine share its cores. The body: a product that stays in the cache.
struct Sharing {
  double stretch = 1;  // seconds that a second of processor time takes while all ranks compute
  double beside = 0;   // DeviceConfig::beside
};
Sharing measure_sharing(Context& ctx) {
  constexpr int64_t kSize = 256;
  const Tensor a = noise(ctx, {kSize, kSize}), b = noise(ctx, {kSize, kSize});
  Tensor c = ctx.zeros({kSize, kSize}, DType::f32);
  const auto product = [&] { matmul(ctx, a, false, b, false, c); };
  constexpr int kRounds = 3;  // another program may use the machine in one of them
  constexpr double kBusy = 0.3;
  double all = INFINITY, stretch = INFINITY;
  std::vector<double> beside;
  for (int round = 0; round < kRounds; ++round) {
    all = std::min(all, together_s(ctx, product));
    stretch = std::min(stretch, stretch_of(*ctx.comm, product));
  }
  for (int round = 0; round < kRounds; ++round) {
    const Beside busy = beside_s(*ctx.comm, product, [] {
      const double end = thread_cpu_s() + kBusy;
      while (thread_cpu_s() < end) {
      }
    });
    // The other thread has computed kBusy seconds, which take kBusy * stretch if all ranks compute.
    beside.push_back(std::clamp((busy.seconds - busy.calls * all) / (kBusy * stretch), 0.0, 1.0));
  }
  return {stretch, median(std::move(beside))};
}

void describe_device(plan::DeviceConfig& device, const Context& ctx, int ranks_here) {
  device.memory_gb = static_cast<double>(memory_of(ctx.device)) / 1e9 / ranks_here;
  if (on_gpu(ctx)) {
    device.name = cuda_device_info(ctx.device.index).name;
    return;
  }
  device.name = str("CPU (", cpu_isa(), ")");
  device.kind = "cpu";
  device.native_bf16 = !multiplies_in_f32(DType::bf16);
}

double measure_bandwidth(Context& ctx, int ranks_here) {
  const int64_t floats = on_gpu(ctx) ? kCaches * cache_of(ctx) / 4 : kStream;
  Tensor a = ctx.zeros({floats / ranks_here}, DType::f32);
  const Tensor b = noise(ctx, {floats / ranks_here});
  const double seconds = together_s(ctx, [&] { add_tensor(ctx, a, b); });
  return 3 * 4 * static_cast<double>(a.numel()) / seconds / 1e9;
}

void measure_launches(plan::DeviceConfig& device, Context& ctx) {
  Tensor one = ctx.zeros({1}, DType::f32);
  const Tensor other = noise(ctx, {1});
  const auto add = [&](Context& to) {
    for (int64_t i = 0; i < kLaunches; ++i) add_tensor(to, one, other);
  };
  const auto us_of = [&](const std::function<void()>& body) { return 1e6 * together_s(ctx, body) / kLaunches; };
  device.launch_us = us_of([&] { add(ctx); });
  if (on_gpu(ctx)) device.replay_us = us_of([&] { replay_steps(ctx, add); });
}

plan::DeviceConfig measure_device(const std::vector<Recipe>& recipes, Context& ctx, int ranks_here) {
  plan::DeviceConfig device;
  describe_device(device, ctx, ranks_here);
  device.memory_gb_s = measure_bandwidth(ctx, ranks_here);
  measure_launches(device, ctx);
  std::map<std::string, std::pair<DType, std::set<plan::ProductShape>>> shapes;  // by precision
  for (const Recipe& r : recipes) {
    const Outline outline = outline_of(r, ctx.ranks, ctx.ranks);
    shapes[r.precision].first = compute_of(r);
    const RankCount count = count_rank(r, outline.batch, {ctx.device.kind, ctx.ranks, 0});
    for (const plan::ProductShape& shape : plan::product_shapes(count, !on_gpu(ctx)))
      shapes[r.precision].second.insert(shape);
  }
  for (const auto& [precision, all] : shapes) {
    ctx.compute = all.first;
    std::vector<plan::MeasuredProduct> products;
    for (const plan::ProductShape& shape : all.second) products.push_back(measure_product(ctx, shape, precision));
    fit_products(device, products, ctx.compute);
    for (const plan::MeasuredProduct& p : products) device.products.items.push_back(write_config(p));
  }
  ctx.allocator->trim();  // passes need the memory
  return device;
}

void measure_passes(const std::vector<Recipe>& recipes, Context& ctx, int ranks_here, plan::DeviceConfig& device) {
  std::vector<plan::MeasuredPass> found;
  for (const Recipe& r : recipes)
    if (const auto pass = measure_pass(ctx, r, outline_of(r, ctx.ranks, ctx.ranks), found, ranks_here))
      found.push_back(*pass);
  for (const plan::MeasuredPass& p : found) device.passes.items.push_back(write_config(p));
}

// Rank 0 runs the exchanges of all recipes; the others wait. Collective.
void measure_exchanges(const std::vector<Recipe>& recipes, Context& ctx, double stretch, plan::DeviceConfig& device) {
  std::vector<plan::MeasuredExchange> found;
  for (const Recipe& r : recipes)
    if (ctx.rank == 0)
      for (const plan::MeasuredExchange& e : rehearse_exchange(r, ctx.ranks)) {
        const bool known = std::any_of(found.begin(), found.end(), [&](const plan::MeasuredExchange& f) {
          return f.strategy == e.strategy && f.ranks == e.ranks && f.moved == e.moved;
        });
        if (!known) found.push_back(e);
      }
  for (plan::MeasuredExchange& e : found) {
    e.us *= stretch;
    device.exchanges.items.push_back(write_config(e));
  }
  ctx.comm->barrier();
}

// An exchange in which this rank sends `floats` floats to each rank for which `with` holds.
std::function<void()> exchange(Context& ctx, const std::function<bool(int)>& with, int64_t floats) {
  std::vector<int64_t> rows;
  for (int r = 0; r < ctx.comm->size(); ++r) rows.push_back(r != ctx.comm->rank() && with(r) ? floats : 0);
  const Tensor own = noise(ctx, {std::accumulate(rows.begin(), rows.end(), int64_t{0})});
  return [comm = ctx.comm, rows, own] { comm->all_to_all(own, rows, rows, "calibration"); };
}

// `partners`: ranks with which each rank exchanges; `sharing`: ranks that share the link.
plan::LinkConfig measure_link(Context& ctx, const std::function<bool(int)>& with, int partners, int sharing) {
  constexpr int64_t kSmall = 1, kMedium = int64_t{1} << 17, kLarge = int64_t{1} << 22;
  constexpr double kEnough = 2;  // seconds of an exchange; on a slow link a short one begins and ends in buffers
  constexpr int kShort = 51, kLong = 5;
  Communicator& comm = *ctx.comm;
  const double small = between_barriers_s(comm, exchange(ctx, with, kSmall), kShort);
  const double medium = between_barriers_s(comm, exchange(ctx, with, kMedium), kLong);
  // All ranks choose the same size, as large as the link can send in that time.
  const double factor = kEnough / comm.gather_numbers(std::span(&medium, 1), "calibration")[0];
  const int64_t floats = std::clamp(static_cast<int64_t>(factor * static_cast<double>(kMedium)), kMedium, kLarge);
  const std::function<void()> large = exchange(ctx, with, floats);
  plan::LinkConfig link;
  const double bytes = 4.0 * static_cast<double>(floats - kSmall) * partners;
  link.gb_s = bytes * sharing / std::max(between_barriers_s(comm, large, kLong) - small, 1e-9) / 1e9;
  link.latency_us = 1e6 * small / std::max(1, comm.size() - 1);  // its rounds follow each other
  const Tensor a = noise(ctx, {256, 256});
  Tensor c = ctx.zeros({256, 256}, DType::f32);
  const auto product = [&] { matmul(ctx, a, false, a, false, c); };
  constexpr int kRounds = 3, kTimes = 2;  // another program may use the machine in one of the rounds
  std::vector<double> delays;
  for (int round = 0; round < kRounds; ++round) {
    const double one = together_s(ctx, product);
    const Beside beside = beside_s(comm, product, [&] {
      for (int i = 0; i < kTimes; ++i) large();
    });
    delays.push_back(std::max(0.0, beside.seconds - beside.calls * one) / (kTimes * bytes * 1e-9));
  }
  link.delay_s_gb = median(std::move(delays));
  return link;
}

}  // namespace

plan::Machine calibrate(const std::vector<Recipe>& given, Communicator& comm, int ranks_per_node) {
  Context ctx = make_context(given[0], comm);
  if (on_gpu(ctx) && comm.size() > 1)
    throw UserError(str("[plan] --calibrate measures one GPU without its links to others, and these are ", comm.size(),
                        " ranks: set comm=self, or device=cpu"));
  const int nodes = (comm.size() + ranks_per_node - 1) / ranks_per_node, own_node = comm.rank() / ranks_per_node;
  plan::Machine m;
  m.name = str("measured: ", plural(comm.size(), "rank"), " on ", plural(nodes, "node"));
  comm.barrier();
  const int ranks_here = std::min(ranks_per_node, comm.size());
  std::vector<Recipe> recipes;
  for (const Recipe& r : given) recipes.push_back(with_measured_batch(ctx, r, ranks_here));
  m.device = measure_device(recipes, ctx, ranks_here);
  ctx.compute = DType::f32;
  measure_passes(recipes, ctx, ranks_here, m.device);
  if (!on_gpu(ctx)) {  // one GPU exchanges nothing, and shares no core with other ranks
    const Sharing sharing = measure_sharing(ctx);
    m.device.beside = sharing.beside;
    measure_exchanges(recipes, ctx, sharing.stretch, m.device);
  }
  m.links.ranks_per_node = ranks_per_node;
  m.sources = Node::map();
  m.sources.set("device", Node::string("measured by lmx plan --calibrate"));
  m.sources.set("links", Node::string("measured by lmx plan --calibrate"));
  // Unless the recipe leaves sums to the library, ranks exchange in lmx's own collectives.
  const bool own = unordered_sums(recipes[0].comm, "comm").empty();
  m.links.collectives = plan::name_of(own ? plan::Algorithm::pairwise : plan::Algorithm::ring);
  m.sources.set("links.collectives", Node::string("the recipe's comm.reduce"));
  const int inside = std::min(ranks_per_node, comm.size()) - 1, outside = comm.size() - 1 - inside;
  comm.barrier();
  if (inside > 0)
    m.links.node = measure_link(
        ctx, [&](int r) { return r / ranks_per_node == own_node; }, inside, 1);
  if (outside > 0)
    m.links.network = measure_link(
        ctx, [&](int r) { return r / ranks_per_node != own_node; }, outside, ranks_per_node);
  // A link that this job does not have.
  const plan::LinkConfig memory{m.device.memory_gb_s / 2, m.device.launch_us, 0};
  if (inside == 0) m.links.node = outside > 0 ? m.links.network : memory;
  if (outside == 0) m.links.network = m.links.node;
  if (inside == 0) m.sources.set("links.node", Node::string("not measured: every rank is alone on its node"));
  if (outside == 0) m.sources.set("links.network", Node::string("not measured: all ranks are on one node"));
  return m;
}

namespace {

constexpr std::string_view kMemory = "memory/", kPeak = "_peak_bytes";

// The memory that the records of a run contain.
struct Recorded {
  std::map<std::string, int64_t> peaks;  // by class and "total": of the rank with the most, at the last record
  int64_t step = 0;                      // of the last record of the ranks
  bool validated = false;                // before that record
};

Recorded read_recorded(const std::string& run) {
  Recorded all;
  int64_t validation = -1;
  for (const RunRecord& record : read_records(run)) {
    if (record.split == "valid") validation = validation < 0 ? record.step : validation;
    for (const auto& [key, value] : record.values) {
      if (record.split != "rank" || !key.starts_with(kMemory) || !key.ends_with(kPeak)) continue;
      int64_t& most = all.peaks[key.substr(kMemory.size(), key.size() - kMemory.size() - kPeak.size())];
      most = std::max(most, static_cast<int64_t>(value));
      all.step = record.step;
    }
  }
  all.validated = validation >= 0 && validation < all.step;
  if (all.peaks.empty())
    throw UserError(str("[plan] --memory ", run, ": the run has no record of the memory of its ranks"));
  return all;
}

// As the run was made: its ranks were threads of one process or processes.
RankMemory counted(const Recipe& recipe, int ranks, const std::optional<plan::Machine>& machine) {
  const BatchPlan plan = planned_batcher(recipe.batcher)->plan();
  const bool gpu = machine ? machine->device.support().gpu : recipe.device.starts_with("cuda");
  const CountedGroup group{gpu ? Device::Kind::cuda : Device::Kind::cpu, ranks,
                           comm_nodes(recipe.comm, "comm", ranks).per_node(),
                           check_dataset(recipe.data).findings.empty() ? [&] { return open_dataset(recipe.data); }
                                                                       : std::function<Dataset()>()};
  if (ranks > 1 && in_one_process(recipe.comm, "comm")) return count_process(recipe, plan, group, 1).rank;
  return count_rank(recipe, plan, group).memory;
}

}  // namespace

double ComparedClass::error() const {
  if (measured == 0) return planned == 0 ? 0 : INFINITY;
  return static_cast<double>(planned) / static_cast<double>(measured) - 1;
}

ComparedMemory compare_memory(const std::string& run, const std::optional<plan::Machine>& machine) {
  const std::string config = (std::filesystem::path(run) / "config.yaml").string();
  if (!std::filesystem::exists(config))
    throw UserError(str("[plan] --memory ", run, ": there is no run (no config.yaml)"));
  const Node tree = parse_yaml_file(config);
  const Recipe recipe = read_recipe(tree, "run");
  if (is_asynchronous(recipe.sync, "sync"))
    throw UserError(str("[plan] --memory ", run, ": the memory of asynchronous workers is not compared"));
  const Recorded recorded = read_recorded(run);
  const int ranks = plan::ranks_of(tree);
  const RankMemory planned = counted(recipe, ranks, machine);
  const std::filesystem::path folder = std::filesystem::absolute(run) / "";  // with or without a slash at the end
  ComparedMemory result{folder.parent_path().filename().string(), ranks, recorded.step, {}};
  const auto add = [&](const std::string& name, int64_t bytes) {
    const auto found = recorded.peaks.find(name);
    result.classes.push_back({name, bytes, found == recorded.peaks.end() ? 0 : found->second});
  };
  for (int c = 0; c < kMemClasses; ++c) {
    const auto type = static_cast<MemClass>(c);
    if (type != MemClass::other)
      add(name_of(type), recorded.validated ? planned.of(type) : planned.training.peak[static_cast<size_t>(c)]);
  }
  add("total", recorded.validated ? planned.total() : planned.training.total_peak);
  return result;
}

std::string text_of(const ComparedMemory& c) {
  std::vector<std::vector<std::string>> rows{{"CLASS", "PLANNED", "MEASURED", "ERROR"}};
  for (const ComparedClass& one : c.classes) {
    rows.push_back(
        {one.name, bytes_text(one.planned), bytes_text(one.measured), format("%+.1f %%", 100 * one.error())});
  }
  return fit(str("memory of a rank of ", c.recipe, ", ", plural(c.ranks, "rank"), ", until step ", c.steps, "\n",
                 table(rows)));
}

Json json_of(const ComparedMemory& c) {
  Json classes;
  for (const ComparedClass& one : c.classes)
    classes[one.name] = {
        {"planned_bytes", one.planned}, {"measured_bytes", one.measured}, {"error", json_number(one.error())}};
  return {{"run", c.recipe}, {"ranks", c.ranks}, {"step", c.steps}, {"classes", classes}};
}

}  // namespace lmx::app::calibration

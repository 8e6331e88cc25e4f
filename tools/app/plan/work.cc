#include "app/plan/work.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "lmx/error.h"

namespace lmx::plan {
namespace {

using namespace train;

// How often a byte of activations that a kernel allocates is moved: it is written once and read once. Backward also
// reads what forward has kept.
constexpr double kMoves = 2, kKeptReads = 1;

// The kernels of an entry that are no products, copies and fills.
double between(const CountedWork& w) {
  return static_cast<double>(w.kernels + w.transfers - (w.m > 0 && !w.within ? std::min(w.times, w.kernels) : 0));
}

double products_s(const CountedWork& w, const DeviceConfig& device, DType compute) {
  return w.m > 0 ? static_cast<double>(w.times) * device.product_s(w.m, w.n, w.k, compute, w.within) : 0;
}

// Seconds until each entry of a part of a pass is done. `read`: bytes that its entries read beside their own.
std::vector<double> ends_of(const std::vector<CountedWork>& part, double read, const DeviceConfig& device,
                            DType compute) {
  const double macs = std::max(macs_of(part), 1.0);
  std::set<std::tuple<int64_t, int64_t, int64_t>> packed;
  std::vector<double> ends;
  double now = 0;
  for (const CountedWork& w : part) {
    double seconds = device.memory_s(kMoves * static_cast<double>(w.written) + read * w.macs() / macs) +
                     products_s(w, device, compute);
    if (w.packed && packed.insert({w.m, w.n, w.k}).second) seconds += device.pack_s(w.m, w.n, w.k, compute);
    now += device.replays()
               ? seconds + 1e-6 * device.replay_us * between(w) + device.memory_s(static_cast<double>(w.rewritten))
               : std::max(seconds, 1e-6 * device.launch_us * static_cast<double>(w.kernels));
    ends.push_back(now);
  }
  return ends;
}

// Seconds in which the host starts the kernels of a pass, except those of replayed loops.
double host_s(const CountedPass& pass, const DeviceConfig& device) {
  int64_t kernels = 0;
  for (const auto* part : {&pass.forward, &pass.backward})
    for (const CountedWork& w : *part) kernels += w.kernels + w.transfers - w.in_loops;
  return 1e-6 * device.launch_us * static_cast<double>(kernels);
}

struct PassTimes {
  double forward_s = 0;
  std::vector<double> backward;  // the ends of its entries
};

PassTimes times_of(const CountedPass& pass, const DeviceConfig& device, DType compute) {
  double written = 0;
  for (const CountedWork& w : pass.forward) written += static_cast<double>(w.written);
  PassTimes times{ends_of(pass.forward, 0, device, compute).back(),
                  ends_of(pass.backward, kKeptReads * written, device, compute)};
  if (device.replays()) {
    const double stretch = std::max(1.0, host_s(pass, device) / (times.forward_s + times.backward.back()));
    times.forward_s *= stretch;
    for (double& end : times.backward) end *= stretch;
  }
  return times;
}

// Adds the times of the counted update.
void add_update(Work& work, const Recipe& r, const Network& network, const DeviceConfig& device,
                const RankCount& count) {
  double trained = 0;
  for (const ParameterSpec& spec : network.specs) trained += spec.frozen ? 0 : static_cast<double>(spec.shape.numel());
  for (const ParameterSpec& spec : network.specs) {
    if (spec.frozen) continue;
    const double part = static_cast<double>(count.rows.at(spec.name)) / static_cast<double>(spec.shape[0]),
                 values = 4 * static_cast<double>(spec.shape.numel()),
                 state = static_cast<double>(count.state) * static_cast<double>(spec.shape.numel()) / trained;
    work.update_s += device.memory_s(part * (2 * (values + state) + values));
    if (r.clip.kind != Node::Kind::null) work.clip_s += device.memory_s(part * values);
  }
  for (const CountedWork& w : count.update)
    work.update_s += products_s(w, device, compute_of(r)) + 1e-6 * device.replay_us * between(w);
  work.update_s += work.clip_s;
}

}  // namespace

void Work::set_pass(double forward, double backward) {
  for (auto& [name, seconds] : ready_s) seconds *= backward / std::max(backward_s, 1e-12);
  forward_s = forward;
  backward_s = backward;
}

std::vector<ProductShape> product_shapes(const RankCount& count, bool within) {
  std::set<ProductShape> shapes;
  for (const auto* part : {&count.pass.forward, &count.pass.backward, &count.update})
    for (const CountedWork& w : *part)
      if (w.m > 0 && (within || !w.within)) shapes.insert({w.m, w.n, w.k, w.packed});
  return {shapes.begin(), shapes.end()};
}

Work work_of(const Recipe& recipe, const Network& network, const Shares& shares, const RankCount& count,
             const DeviceConfig& device) {
  if (count.pass.tokens == 0)
    throw UserError("[plan] a step of this recipe has no targets on the rank with the largest share of the batch");
  const PassTimes pass = times_of(count.pass, device, compute_of(recipe)),
                  last = times_of(count.last, device, compute_of(recipe));
  Work work;
  work.passes = std::max(1.0, static_cast<double>(shares.own_tokens) / static_cast<double>(shares.forward_tokens));
  for (const auto& [name, entries] : count.last.ready)
    work.ready_s[name] = entries > 0 ? last.backward[entries - 1] : 0;
  work.backward_s = last.backward.back();
  const double whole = static_cast<double>(shares.forward_tokens) / static_cast<double>(count.pass.tokens);
  work.set_pass(whole * pass.forward_s, whole * pass.backward.back());
  add_update(work, recipe, network, device, count);
  return work;
}

}  // namespace lmx::plan

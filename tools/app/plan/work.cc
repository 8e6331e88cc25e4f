#include "app/plan/work.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "lmx/error.h"

namespace lmx::app::plan {
namespace {

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

namespace {

constexpr std::array kNames{"pairwise", "ring", "tree", "hierarchical", "auto"};

// Seconds of the G-1 rounds in which rank r sends `part` bytes to rank r + s. A node holds L neighbours. In round s,
// L - s of them send to a neighbour, and L - (G - s) to one by way of rank 0, where these numbers are positive; the
// others send to another node.
double pairwise_s(double part, int64_t ranks, int64_t node_ranks, const LinksConfig& links) {
  const double inside = links.inside_s(part, node_ranks);
  const auto round = [&](int64_t s) {
    const int64_t here = std::max<int64_t>(0, node_ranks - s) + std::max<int64_t>(0, node_ranks - (ranks - s));
    const int64_t crossing = std::max<int64_t>(0, node_ranks - here);
    const double across = crossing > 0 ? links.across_s(part * static_cast<double>(crossing), part, crossing) : 0;
    return std::max(here > 0 ? inside : 0, across);
  };
  double seconds = 0;
  for (int64_t s = 1; s < std::min(node_ranks, ranks); ++s) seconds += round(s);
  // From here to the last L - 1 rounds, every rank of a node sends to another one.
  const int64_t equal = std::max<int64_t>(0, ranks - 2 * node_ranks + 1);
  if (equal > 0) seconds += static_cast<double>(equal) * round(node_ranks);
  for (int64_t s = node_ranks + equal; s < ranks; ++s) seconds += round(s);
  return seconds;
}

// A hierarchy needs full nodes.
Transfer fastest(const Sent& sent, int ranks, const LinksConfig& links) {
  Transfer best = transfer(sent, ranks, links, Algorithm::pairwise);
  for (const Algorithm a : {Algorithm::ring, Algorithm::tree, Algorithm::hierarchical}) {
    if (a == Algorithm::hierarchical && ranks % std::min<int64_t>(links.ranks_per_node, ranks) != 0) continue;
    const Transfer next = transfer(sent, ranks, links, a);
    if (next.seconds < best.seconds) best = next;
  }
  return best;
}

}  // namespace

double crossing_part(int64_t ranks, int64_t node_ranks) {
  const int64_t last = ranks % node_ranks, full = ranks / node_ranks;
  const int64_t pairs = full * node_ranks * (ranks - node_ranks) + last * (ranks - last);
  return static_cast<double>(pairs) / (static_cast<double>(ranks) * static_cast<double>(ranks - 1));
}

const char* name_of(Algorithm algorithm) {
  return kNames[static_cast<size_t>(algorithm)];
}

Algorithm algorithm_named(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return static_cast<Algorithm>(found - kNames.begin());
  throw UserError(str("[plan] no collectives '", name, "'", did_you_mean(name, {kNames.begin(), kNames.end()})));
}

Transfer transfer(const Sent& sent, int ranks, const LinksConfig& links, Algorithm algorithm) {
  if (ranks < 2) return {};
  if (algorithm == Algorithm::automatic) return fastest(sent, ranks, links);
  const int64_t inner = std::min<int64_t>(links.ranks_per_node, ranks), nodes = (ranks + inner - 1) / inner;
  const double bytes = static_cast<double>(sent.bytes), calls = static_cast<double>(sent.collectives);
  const double others = ranks - 1, g = ranks, local = static_cast<double>(inner);
  const double latency = nodes > 1 ? links.network.latency_s() : links.node.latency_s();
  const double two_levels = (local - 1) * links.node.latency_s() + static_cast<double>(nodes - 1) * latency;
  double seconds = 0, across = bytes * crossing_part(ranks, inner);  // sent by a rank to other nodes, on average
  const double stated = static_cast<double>(sent.between_nodes);
  if (algorithm != Algorithm::hierarchical && ranks % inner == 0 && stated < 0.99 * across) {
    across = stated;
    // Half of the collectives are inside the nodes, half between them.
    seconds =
        links.inside_s(bytes - across, inner) + links.across_s(across * local, across, inner) + calls / 2 * two_levels;
  } else if (algorithm == Algorithm::pairwise) {
    seconds = pairwise_s(bytes / others, ranks, inner, links) + calls * others * latency;
  } else if (algorithm == Algorithm::hierarchical) {
    if (ranks % inner != 0)
      throw UserError(str("[plan] --collectives hierarchical needs the same number of ranks in every node, and ", ranks,
                          " ranks do not fill nodes of ", inner));
    across /= local;
    const double inside = bytes * g / others * (local - 1) / local;
    seconds = links.inside_s(inside, inner) + links.across_s(across * local, across, inner) + calls * two_levels;
  } else {
    across = nodes > 1 ? bytes / local : 0;  // one rank of each node sends all its bytes to the next node
    const double rounds = algorithm == Algorithm::ring ? others : std::ceil(std::log2(g));
    const double ring = nodes > 1 ? links.across_s(bytes, bytes, 1) : 0;
    seconds = std::max(links.inside_s(bytes, inner), ring) + calls * rounds * latency;
  }
  const auto network_bytes = std::llround(across);
  return {seconds, sent.bytes - network_bytes, network_bytes};
}

}  // namespace lmx::app::plan

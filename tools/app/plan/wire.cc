#include "app/plan/wire.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lmx/error.h"

namespace lmx::plan {
namespace {

constexpr std::array kNames{"pairwise", "ring", "tree", "hierarchical"};

// Seconds of the G-1 rounds in which rank r sends `part` bytes to rank r + s. A node holds L neighbours. In round s,
// min(s, G - s, L) of them send to another node.
double pairwise_s(double part, int ranks, int64_t node_ranks, const LinksConfig& links) {
  const double inside = links.node.seconds(part) * (links.shared ? static_cast<double>(node_ranks) : 1);
  double seconds = 0;
  for (int64_t s = 1; s < ranks; ++s) {
    const int64_t crossing = ranks > node_ranks ? std::min({s, ranks - s, node_ranks}) : 0;
    const double across = links.network.seconds(part * static_cast<double>(crossing));
    seconds += std::max(crossing < node_ranks ? inside : 0, across);
  }
  return seconds;
}

}  // namespace

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
  const int64_t inner = std::min<int64_t>(links.ranks_per_node, ranks), nodes = (ranks + inner - 1) / inner;
  const double bytes = static_cast<double>(sent.bytes), calls = static_cast<double>(sent.collectives);
  const double others = ranks - 1, g = ranks, local = static_cast<double>(inner);
  const double latency = nodes > 1 ? links.network.latency_s() : links.node.latency_s();
  const double share = links.shared ? local : 1;
  const double two_levels = (local - 1) * links.node.latency_s() + static_cast<double>(nodes - 1) * latency;
  double seconds = 0, across = nodes > 1 ? bytes * (g - local) / others : 0;  // sent by a rank to other nodes
  const double stated = static_cast<double>(sent.between_nodes);
  if (algorithm != Algorithm::hierarchical && ranks % inner == 0 && stated < 0.99 * across) {
    across = stated;
    // Half of the collectives are inside the nodes, half between them.
    seconds =
        links.node.seconds(bytes - across) * share + links.network.seconds(across * local) + calls / 2 * two_levels;
  } else if (algorithm == Algorithm::pairwise) {
    seconds = pairwise_s(bytes / others, ranks, inner, links) + calls * others * latency;
  } else if (algorithm == Algorithm::hierarchical) {
    across /= local;
    const double inside = bytes * g / others * (local - 1) / local;
    seconds = links.node.seconds(inside) * share + links.network.seconds(across * local) + calls * two_levels;
  } else {
    across /= local;  // one rank of each node sends to the next node
    const double rounds = algorithm == Algorithm::ring ? others : std::ceil(std::log2(g));
    const double ring = nodes > 1 ? links.network.seconds(bytes) : 0;
    seconds = std::max(links.node.seconds(bytes) * share, ring) + calls * rounds * latency;
  }
  const auto network_bytes = std::llround(across);
  return {seconds, sent.bytes - network_bytes, network_bytes};
}

}  // namespace lmx::plan

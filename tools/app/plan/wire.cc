#include "app/plan/wire.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lmx/error.h"

namespace lmx::plan {
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

}  // namespace lmx::plan

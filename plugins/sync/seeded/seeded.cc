// Seeding (Patwary 2018, section III-B): groups of ranks sample the candidates of a sampled softmax with one seed, so
// that the union of their rows grows more slowly than the number of ranks. Otherwise equal to `unique`.
#include <algorithm>
#include <cmath>
#include <map>

#include "lmx/plugin.h"
#include "lmx/sum_strategy.h"

namespace {

using namespace lmx;

struct SeededConfig {
  std::string seeds = "power_0.64", rounding = "nearest", placement = "block";
  bool rotation = false;
  std::string gather = "unique";
  CodecConfig codec;
  void fields(Fields& f) {
    f.choice("seeds", seeds, {"all", "log2", "ln", "log10", "power_0.64", "one"},
             "number of seeds for G ranks: G, log2 G, ln G, log10 G, G^0.64 or 1");
    f.choice("rounding", rounding, {"nearest", "floor", "ceil"}, "how that number becomes an integer (at least 1)");
    f.choice("placement", placement, {"block", "round_robin"},
             "ranks that share a seed: neighbours (floor(rank seeds / G)), or rank modulo seeds");
    f.field("rotation", rotation, "which ranks share a seed is drawn again in each step");
    f.choice("gather", gather, {"unique", "raw"},
             "indices that ranks send to each other: each once, or (raw) as often as they occur");
    f.group("codec", codec, "encoding of gradients for the exchange");
  }
  void check(const std::string& where) const { codec.check(where); }
};

double exact_seeds(const std::string& kind, double ranks) {
  if (kind == "all") return ranks;
  if (kind == "log2") return std::log2(ranks);
  if (kind == "ln") return std::log(ranks);
  if (kind == "log10") return std::log10(ranks);
  return kind == "one" ? 1 : std::pow(ranks, 0.64);
}

class Seeded final : public SumStrategy {
 public:
  Seeded(const SeededConfig& config, const SyncEnv& env)
      : SumStrategy(SumConfig{.codec = config.codec, .gather = config.gather}, env), config_(config) {}

  void begin_step(Context& ctx, std::span<const Batch>, StepPlan& plan) override {
    const auto step = static_cast<uint64_t>(plan.step), rank = static_cast<uint64_t>(ctx.rank),
               ranks = static_cast<uint64_t>(ctx.ranks);
    const uint64_t place = config_.rotation ? permute(env().key.fold("rotation").fold(step), rank, ranks) : rank;
    plan.sampler_key = env().key.fold("seed group").fold(group(static_cast<int>(place), ctx.ranks)).fold(step);
  }

  CandidateKey candidate_key() const override { return CandidateKey::needed; }

  std::string describe(int ranks) const override {
    const uint64_t n = seeds(ranks);
    std::map<uint64_t, std::vector<int>> members;
    for (int r = 0; r < ranks; ++r) members[group(r, ranks)].push_back(r);
    std::string table;
    for (const auto& [seed, m] : members) {
      table += str(table.empty() ? "" : ", ", m.front());
      if (m.size() > 1) table += config_.placement == "block" ? str("-", m.back()) : str("+", n, "..", m.back());
    }
    return str(plural(n, "seed"), " for ", plural(ranks, "rank"), " (", config_.seeds, ", ", config_.rounding, ", ",
               config_.placement, config_.rotation ? ", rotating" : "", "): ", table);
  }

 private:
  uint64_t seeds(int ranks) const {
    const double exact = exact_seeds(config_.seeds, ranks);
    const double whole = config_.rounding == "floor"  ? std::floor(exact)
                         : config_.rounding == "ceil" ? std::ceil(exact)
                                                      : std::round(exact);
    return static_cast<uint64_t>(std::clamp(whole, 1.0, static_cast<double>(ranks)));
  }
  uint64_t group(int place, int ranks) const {
    const uint64_t n = seeds(ranks), p = static_cast<uint64_t>(place);
    return config_.placement == "block" ? p * n / static_cast<uint64_t>(ranks) : p % n;
  }

  SeededConfig config_;
};

}  // namespace

LMX_PLUGIN(sync, seeded, SeededConfig, Seeded)

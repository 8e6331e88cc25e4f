// Learning rates as functions of t, the number of earlier updates. base is optimizer.lr after lr_rule. Steps whose
// update is skipped do not count in t. The epoch e counts passes over the data, including the data of skipped updates.
//
//   constant       warm-up as linear; then base
//   linear         base (t+1) / warmup while t < warmup; then base (N - t) / (N - warmup), 0 from N on   (Puri 2018)
//   inverse_sqrt   start + t (base - start) / warmup while t < warmup; then base sqrt(warmup / t)   (Ott 2018, fairseq)
//   cosine         warm-up as linear; then min + (base - min) (1 + cos(pi (t - warmup) / (N - warmup))) / 2
//   wsd            warm-up as linear; then base; in the last D updates min + (base - min) (1 - x), or (1 - sqrt(x)),
//                  for x = (t - N + D) / D   (Hu 2024, MiniCPM; the shapes: Haegele 2024)
//   epoch_decay    base factor^e in epoch e = 0, 1, ...   (Patwary 2018: 0.85-0.95)
//   halve_on_rise  base factor^k after k rises of the validation perplexity   (Xiao 2017: 0.5)
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "lmx/error.h"
#include "schedule/schedule.h"

namespace lmx {

Schedule::~Schedule() = default;
void Schedule::validated(double) {}
std::vector<double> Schedule::state() const {
  return {};
}
void Schedule::load(const std::vector<double>& state) {
  if (!state.empty())
    throw UserError(str("[schedule] a state of ", state.size(), " numbers for a schedule that has none"));
}

namespace {

struct ConstantConfig {
  int64_t warmup = 0;
  void fields(Fields& f) { f.field("warmup", warmup, "updates over which the rate rises to its base", kNonNegative); }
  static ConstantConfig read(const Node& n, const std::string& path) { return read_config<ConstantConfig>(n, path); }
};

// The number of updates of the decay of wsd, of `all` updates.
int64_t wsd_decay(double decay, int64_t all) {
  return std::llround(decay < 1 ? decay * static_cast<double>(all) : decay);
}

template <class Config>
Config with_warmup(const Node& node, const std::string& path) {
  auto c = read_config<Config>(node, path);
  if (c.steps > 0 && c.warmup >= c.steps)
    throw UserError(str(place_of_key(node, path, "warmup"), c.warmup, " steps of warm-up leave none of ", path,
                        ".steps = ", c.steps));
  return c;
}

struct LinearConfig {
  int64_t steps = 0;
  int64_t warmup = 0;
  void fields(Fields& f) {
    f.field("steps", steps, "the rate reaches 0 after so many updates, wherever training stops; 0: train.steps",
            kNonNegative);
    f.field("warmup", warmup, "updates over which the rate rises to its base", kNonNegative);
  }
  static LinearConfig read(const Node& n, const std::string& path) { return with_warmup<LinearConfig>(n, path); }
};

struct CosineConfig {
  int64_t steps = 0;
  int64_t warmup = 0;
  double min_lr = 0;
  void fields(Fields& f) {
    f.field("steps", steps, "the rate reaches min_lr after so many updates; 0: train.steps", kNonNegative);
    f.field("warmup", warmup, "updates over which the rate rises to its base", kNonNegative);
    f.field("min_lr", min_lr, "the rate from there on", kNonNegative);
  }
  static CosineConfig read(const Node& n, const std::string& path) { return with_warmup<CosineConfig>(n, path); }
};

struct WsdConfig {
  int64_t steps = 0;
  int64_t warmup = 0;
  double decay = 0.2;
  std::string shape = "linear";
  double min_lr = 0;
  void fields(Fields& f) {
    f.field("steps", steps, "the rate reaches min_lr after so many updates; 0: train.steps", kNonNegative);
    f.field("warmup", warmup, "updates over which the rate rises to its base", kNonNegative);
    f.field("decay", decay,
            "updates at the end over which the rate decreases; below 1: this fraction of all updates; 0: none",
            kNonNegative);
    f.choice("shape", shape, {"linear", "sqrt"}, "of the decrease: 1 - x or 1 - sqrt(x), for x from 0 to 1");
    f.field("min_lr", min_lr, "the rate at the end", kNonNegative);
  }
  static WsdConfig read(const Node& n, const std::string& path) {
    const auto c = with_warmup<WsdConfig>(n, path);
    const std::string place = place_of_key(n, path, "decay");
    if (c.decay >= 1 && c.decay != std::floor(c.decay))
      throw UserError(str(place, "expected a number of updates, or a fraction below 1, got ", c.decay));
    if (c.steps > 0 && c.warmup + wsd_decay(c.decay, c.steps) > c.steps)
      throw UserError(str(place, "a warm-up of ", c.warmup, " updates and a decay of ", wsd_decay(c.decay, c.steps),
                          " are more than ", path, ".steps = ", c.steps));
    return c;
  }
};

struct InverseSqrtConfig {
  int64_t warmup = 4000;
  double start_lr = 1e-7;
  void fields(Fields& f) {
    f.field("warmup", warmup, "updates over which the rate rises from start_lr to its base", kPositive);
    f.field("start_lr", start_lr, "rate of the first update", kNonNegative);
  }
  static InverseSqrtConfig read(const Node& n, const std::string& path) {
    return read_config<InverseSqrtConfig>(n, path);
  }
};

struct EpochDecayConfig {
  double factor = 0.9;
  void fields(Fields& f) { f.field("factor", factor, "the rate is multiplied by it after each epoch", {0, 1, true}); }
  static EpochDecayConfig read(const Node& n, const std::string& path) {
    return read_config<EpochDecayConfig>(n, path);
  }
};

struct HalveOnRiseConfig {
  double factor = 0.5;
  int64_t patience = 0;
  void fields(Fields& f) {
    f.field("factor", factor, "the rate is multiplied by it when validation perplexity rises", {0, 1, true});
    f.field("patience", patience, "rises in a row that are let pass", kNonNegative);
  }
  static HalveOnRiseConfig read(const Node& n, const std::string& path) {
    return read_config<HalveOnRiseConfig>(n, path);
  }
};

double ratio(int64_t a, int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

// The length of a schedule: its own `steps`, or train.steps if that is 0.
int64_t length(int64_t steps, const ScheduleState& s) {
  return steps > 0 ? steps : s.total_steps;
}

class Constant final : public Schedule {
 public:
  Constant(const ConstantConfig& c, double base) : c_(c), base_(base) {}
  double rate(const ScheduleState& s) const override {
    return s.update < c_.warmup ? base_ * ratio(s.update + 1, c_.warmup) : base_;
  }

 private:
  ConstantConfig c_;
  double base_;
};

class Linear final : public Schedule {
 public:
  Linear(const LinearConfig& c, double base) : c_(c), base_(base) {}
  double rate(const ScheduleState& s) const override {
    if (s.update < c_.warmup) return base_ * ratio(s.update + 1, c_.warmup);
    const int64_t n = length(c_.steps, s);
    return s.update >= n ? 0.0 : base_ * ratio(n - s.update, n - c_.warmup);
  }

 private:
  LinearConfig c_;
  double base_;
};

class Cosine final : public Schedule {
 public:
  Cosine(const CosineConfig& c, double base) : c_(c), base_(base) {}
  double rate(const ScheduleState& s) const override {
    if (s.update < c_.warmup) return base_ * ratio(s.update + 1, c_.warmup);
    const int64_t n = length(c_.steps, s);
    if (s.update >= n) return c_.min_lr;
    const double angle = std::numbers::pi * ratio(s.update - c_.warmup, n - c_.warmup);
    return c_.min_lr + (base_ - c_.min_lr) * (1 + std::cos(angle)) / 2;
  }

 private:
  CosineConfig c_;
  double base_;
};

// Warm-up, stable, decay. Each update before the decay has the same rate whatever the length of the run is, so runs of
// several lengths have a common beginning.
class Wsd final : public Schedule {
 public:
  Wsd(const WsdConfig& c, double base) : c_(c), base_(base) {}
  double rate(const ScheduleState& s) const override {
    const int64_t n = length(c_.steps, s), decay = std::min(wsd_decay(c_.decay, n), n), first = n - decay;
    if (s.update < std::min(c_.warmup, first)) return base_ * ratio(s.update + 1, c_.warmup);
    if (s.update < first || decay == 0) return base_;
    if (s.update >= n) return c_.min_lr;
    const double x = ratio(s.update - first, decay);
    return c_.min_lr + (base_ - c_.min_lr) * (1 - (c_.shape == "sqrt" ? std::sqrt(x) : x));
  }

 private:
  WsdConfig c_;
  double base_;
};

class InverseSqrt final : public Schedule {
 public:
  InverseSqrt(const InverseSqrtConfig& c, double base) : c_(c), base_(base) {}
  double rate(const ScheduleState& s) const override {
    if (s.update < c_.warmup) return c_.start_lr + (base_ - c_.start_lr) * ratio(s.update, c_.warmup);
    return base_ * std::sqrt(ratio(c_.warmup, s.update));
  }

 private:
  InverseSqrtConfig c_;
  double base_;
};

class EpochDecay final : public Schedule {
 public:
  EpochDecay(const EpochDecayConfig& c, double base) : c_(c), base_(base) {}
  double rate(const ScheduleState& s) const override {
    return base_ * std::pow(c_.factor, static_cast<double>(s.epoch));
  }

 private:
  EpochDecayConfig c_;
  double base_;
};

// A rise is relative to the previous validation. NaN counts as a rise.
class HalveOnRise final : public Schedule {
 public:
  HalveOnRise(const HalveOnRiseConfig& c, double base) : c_(c), base_(base) {}
  double rate(const ScheduleState&) const override { return base_ * std::pow(c_.factor, cuts_); }
  void validated(double perplexity) override {
    rises_ = perplexity <= last_ ? 0 : rises_ + 1;
    last_ = perplexity;
    if (rises_ <= static_cast<double>(c_.patience)) return;
    rises_ = 0;
    ++cuts_;
  }
  std::vector<double> state() const override { return {cuts_, rises_, last_}; }
  void load(const std::vector<double>& state) override {
    if (state.size() != 3)
      throw UserError(str("[schedule] halve_on_rise has a state of 3 numbers, got ", state.size()));
    cuts_ = state[0];
    rises_ = state[1];
    last_ = state[2];
  }

 private:
  HalveOnRiseConfig c_;
  double base_;
  double cuts_ = 0, rises_ = 0, last_ = std::numeric_limits<double>::infinity();
};

template <class Kind, class Config>
std::unique_ptr<Schedule> make(const Node& config, const std::string& path, double base) {
  return std::make_unique<Kind>(Config::read(config, path), base);
}

template <class Kind, class Config>
schedules::Entry entry_of(const char* name) {
  return component::entry<Config, ScheduleFactory>(name, make<Kind, Config>);
}

}  // namespace

const std::vector<schedules::Entry>& schedules::entries() {
  static const std::vector<Entry> table{entry_of<Constant, ConstantConfig>("constant"),
                                        entry_of<Linear, LinearConfig>("linear"),
                                        entry_of<InverseSqrt, InverseSqrtConfig>("inverse_sqrt"),
                                        entry_of<EpochDecay, EpochDecayConfig>("epoch_decay"),
                                        entry_of<HalveOnRise, HalveOnRiseConfig>("halve_on_rise"),
                                        entry_of<Cosine, CosineConfig>("cosine"),
                                        entry_of<Wsd, WsdConfig>("wsd")};
  return table;
}
component::Described component::schedules() {
  return describe(lmx::schedules::entries());
}

}  // namespace lmx

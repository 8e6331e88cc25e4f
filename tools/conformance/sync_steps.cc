#include "conformance/sync.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <span>

#include "lmx/row_sync.h"

namespace lmx::app::conformance {

std::vector<ParameterSpec> parameters() {
  return {{"emb", {53, 16}, {}, true},      {"tiny", {3, 5}, {}, true},  {"gate", {24, 33}, {}, false},
          {"bias", {29}, {}, false},        {"edge", {2, 3}, {}, false}, {"softmax", {101, 8}, {}, true},
          {"softmax_bias", {101}, {}, true}};
}

Own own_of(int rank, int step, const ParameterSpec& p) {
  const RandomKey key = RandomKey(7).fold(p.name).fold(static_cast<uint64_t>(step)).fold(static_cast<uint64_t>(rank));
  Own own;
  if (step == 1 && rank == 1) return own;
  if (step == 2 && p.name == "emb") return own;
  int64_t rows = p.shape[0];
  if (p.sparse) {
    rows = 6 + static_cast<int64_t>(key.below(1, 9));
    for (int64_t i = 0; i < rows; ++i) {  // the smaller of two random numbers: frequent words come first
      const auto v = static_cast<uint64_t>(p.shape[0]) - 1;
      own.indices.push_back(static_cast<int32_t>(std::min(key.below(100 + 2 * i, v), key.below(101 + 2 * i, v))));
    }
    own.indices[1] = own.indices[0];
    if (rank == 0) own.indices[2] = static_cast<int32_t>(p.shape[0]) - 1;  // a word that only rank 0 has
    own.pieces = {rows - 4, 0, 4};
  }
  for (int64_t i = 0; i < rows * row_width(p.shape); ++i)
    own.values.push_back(static_cast<float>(key.normal(1000 + static_cast<uint64_t>(i))) * 0.1f);
  if (step == 2 && p.name == "softmax" && rank < 2) {
    own.indices.assign(own.indices.size(), 5);
    own.indices[0] = 7;
    for (size_t i = 0; i < own.values.size(); ++i) own.values[i] = (rank ? -1.0f : 1.0f) * static_cast<float>(i % 9);
  }
  if (step == 4)
    for (size_t i = 0; i < own.values.size(); i += 3) own.values[i] = rank % 2 ? -0.0f : 0.0f;
  return own;
}

void give(Context& ctx, Var& var, const Own& own, float factor) {
  Gradient& g = var.grad();
  g.clear();
  if (own.values.empty()) return;
  std::vector<float> values = own.values;
  for (float& v : values) v *= factor;
  // On a device that counts, gradients have no values.
  const auto upload = [&](const Tensor& host) {
    return ctx.device.counts ? ctx.empty(host.shape(), host.dtype(), MemClass::gradients) : ctx.upload(host);
  };
  if (own.indices.empty()) {
    g.dense = upload(Tensor::from<float>(ctx.host, var.shape(), values, MemClass::gradients));
    return;
  }
  const size_t width = values.size() / own.indices.size();
  size_t at = 0;
  for (const int64_t n : own.pieces) {
    const auto count = static_cast<size_t>(n);
    Shape shape = var.shape();
    shape[0] = n;
    const std::span rows(values.data() + at * width, count * width);
    g.pieces.push_back(
        {{own.indices.begin() + static_cast<long>(at), own.indices.begin() + static_cast<long>(at + count)},
         upload(Tensor::from<float>(ctx.host, shape, rows, MemClass::gradients)),
         false});
    at += count;
  }
}

Sum sum_of(int ranks, int step, const ParameterSpec& p, const SelectedRows& selected) {
  const auto n = static_cast<size_t>(p.shape.numel()), width = static_cast<size_t>(row_width(p.shape));
  Sum all{std::vector<double>(n), std::vector<double>(n), {}};
  const auto some = selected.find(p.name);
  for (int r = 0; r < ranks; ++r) {
    const Own own = own_of(r, step, p);
    const std::set<int32_t>* chosen = some == selected.end() ? nullptr : &some->second[static_cast<size_t>(r)];
    for (size_t i = 0; i < own.values.size(); ++i) {
      const size_t row = own.indices.empty() ? i / width : static_cast<size_t>(own.indices[i / width]);
      if (chosen && !chosen->contains(static_cast<int32_t>(row))) continue;
      if (p.sparse || chosen) all.rows.insert(static_cast<int32_t>(row));
      all.sum[row * width + i % width] += static_cast<double>(own.values[i]);
      all.size[row * width + i % width] += std::abs(static_cast<double>(own.values[i]));
    }
  }
  return all;
}

// Checks of a sync strategy in each step: the sum over ranks, equal on all of them; as many bytes received as sent; and
// a state from which a run continues bit-exactly.

namespace {

// Returns the codec in the strategy's config, with its defaults; a strategy without the group `codec:` has none.
CodecConfig codec_of(const Subject& s) {
  CodecConfig codec;
  const Node full = s.plugin.descriptor->full_config(s.config, "sync.check");
  const auto value = [&](const char* key) {
    const Node* node = full.at_path(key);
    return node ? node->text : std::string();
  };
  if (const std::string kind = value("codec.kind"); !kind.empty()) codec.kind = kind;
  if (codec.kind != "fp16") return codec;
  if (const std::string scale = value("codec.scale"); !scale.empty()) codec.scale = std::stod(scale);
  if (const std::string type = value("codec.reduce"); !type.empty()) codec.reduce = type;
  return codec;
}

// Returns the largest error that a codec may cause in a sum of `ranks` values whose absolute values sum to `size`: one
// rounding for each value, one for each partial sum if they are added in fp16, and one for the result.
double tolerance(const CodecConfig& codec, int ranks, double size) {
  const double f32 = 1e-6 * size * ranks;
  if (ranks == 1) return f32;
  if (codec.kind == "bf16") return f32 + size * 0x1p-8 * 2.1;
  if (codec.kind != "fp16") return f32;
  if (codec.reduce == "fp32") return f32 + size * 0x1p-11 * 2.1 + (ranks + 1) * 0x1p-25 / codec.scale;
  return f32 + size * 0x1p-11 * (ranks + 1) + (2 * ranks + 1) * 0x1p-25 / codec.scale;
}

class StepCheck : RankChecks {
 public:
  StepCheck(Communicator& comm, const Subject& s, RankRun& run)
      : RankChecks(comm, s), run_(run), codec_(codec_of(s)), specs_(run.specs()) {}

  Observation all() {
    check_units();
    RankRun again(comm_, s_);
    std::unique_ptr<RankRun> resumed;
    for (step_ = 0; step_ < kSteps; ++step_) {
      if (step_ == kSavedStep) resumed = resume();
      run_.reduce(step_);
      check_step();
      seen_.exchanged.insert(seen_.exchanged.end(), run_.exchanged().begin(), run_.exchanged().end());
      again.reduce(step_);
      if (!same_bits(again.values(), run_.values())) add("determinism", "a second run gives other bits");
      if (resumed) {
        resumed->reduce(step_);
        if (!same_bits(resumed->values(), run_.values()))
          add("state", str("a run that loads the state() of step ", kSavedStep, " gives other bits"));
      }
      for (RankRun* run : {&run_, &again, resumed.get()})
        if (run) run->after_step();
    }
    double worst = 0;
    for (const Distance& d : distances_) worst = std::max(worst, std::sqrt(d.error / std::max(d.size, 1e-30)));
    seen_.distances["sum"] = worst;
    seen_.direction = run_.direction();
    return std::move(seen_);
  }

 private:
  struct Distance {
    double error = 0, size = 0;  // sums of squares over all steps
  };

  void check_units() {
    std::multiset<std::string> names;
    for (const auto& unit : run_.units()) names.insert(unit.begin(), unit.end());
    for (const ParameterSpec& p : specs_)
      if (names.count(p.name) != 1) seen_.add("units", str("units() has ", p.name, " ", names.count(p.name), " times"));
  }

  std::unique_ptr<RankRun> resume() {
    seen_.kept = run_.kept();
    return run_.resumed(s_);
  }

  void check_step() {
    for (const UnitExchange& unit : run_.exchanged()) check_received(unit.bytes, " for " + unit.name);
    check_ranks(run_.values(), "gradients");
    for (size_t i = 0; i < specs_.size(); ++i) {
      const Sum sum = sum_of(comm_.size(), step_, specs_[i], run_.selected());
      check_rows(specs_[i], sum);
      if (!run_.direction()) check_sum(i, sum);
    }
  }

  // Optimizers change only the rows of a row-sparse gradient, each once.
  void check_rows(const ParameterSpec& p, const Sum& sum) {
    const Gradient& g = run_.gradient(p.name);
    if (comm_.size() == 1) return;
    if (g.dense.defined()) {
      if (g.sparse()) add("rows", p.name + " has both a dense and a row-sparse gradient");
      return;
    }
    if (!p.sparse && !run_.selected().contains(p.name)) return add("rows", p.name + " has no dense gradient");
    if (g.empty() && sum.rows.empty()) return;
    if (g.pieces.size() != 1 || !g.pieces[0].unique) return add("rows", p.name + " is not one piece of unique rows");
    const std::vector<int32_t>& rows = g.pieces[0].indices;
    const bool ascend = std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) == rows.end();
    if (!ascend || (!rows.empty() && (rows.front() < 0 || rows.back() >= p.shape[0])))
      return add("rows", p.name + ": the indices do not ascend from 0 to the number of rows");
    if (!s_.approximate && !std::equal(rows.begin(), rows.end(), sum.rows.begin(), sum.rows.end()))
      add("rows", p.name + ": not the rows for which any rank has a gradient");
  }

  void check_sum(size_t param, const Sum& wanted) {
    const std::string& name = specs_[param].name;
    const std::vector<float>& got = run_.values()[param];
    Distance& distance = distances_[param];
    for (size_t k = 0; k < got.size(); ++k) {
      if (!std::isfinite(got[k])) return add("sum", str(name, '[', k, "] is ", got[k]));
      const double error = std::abs(static_cast<double>(got[k]) - wanted.sum[k]),
                   allowed = tolerance(codec_, comm_.size(), wanted.size[k]);
      distance.error += error * error;
      distance.size += wanted.sum[k] * wanted.sum[k];
      if (error > allowed && !s_.approximate)
        return add("sum",
                   str(name, '[', k, "] is ", got[k], ", the sum over ranks is ", wanted.sum[k], " and the tolerance ",
                       allowed, "; a strategy that rounds or leaves out on purpose is checked with --approximate"));
    }
  }

  RankRun& run_;
  CodecConfig codec_;
  std::vector<ParameterSpec> specs_;
  std::vector<Distance> distances_ = std::vector<Distance>(specs_.size());
};

}  // namespace

void Observation::merge(const Observation& other) {
  server |= other.server;
  replica |= other.replica;
  shard |= other.shard;
  direction |= other.direction;
  findings.insert(other.findings.begin(), other.findings.end());
  for (const auto& [check, distance] : other.distances) distances[check] = std::max(distances[check], distance);
  kept = std::max(kept, other.kept);
}

Observation observe_steps(Communicator& comm, const Subject& subject) {
  RankRun run(comm, subject);
  if (run.replica()) return observe_replicas(comm, subject);
  if (run.shard()) return observe_shards(comm, subject);
  Observation server;
  server.server = run.server();
  return server.server ? server : StepCheck(comm, subject, run).all();
}

namespace {

std::vector<UnitExchange> exchanges_of(Communicator& comm, const Subject& subject) {
  RankRun run(comm, subject);
  if (run.replica()) return observe_replicas(comm, subject).exchanged;
  if (run.shard()) return observe_shards(comm, subject).exchanged;
  std::vector<UnitExchange> all;
  for (int step = 0; step < kSteps; ++step) {
    run.reduce(step);
    all.insert(all.end(), run.exchanged().begin(), run.exchanged().end());
    run.after_step();
  }
  return all;
}

}  // namespace

void observe_counted(Communicator& comm, const Subject& subject, Observation& seen) {
  auto real = seen.exchanged.begin();
  for (const UnitExchange& unit : exchanges_of(comm, subject)) {
    const UnitBytes &counted = unit.bytes, &made = (real++)->bytes;
    const std::string where = str("rank ", comm.rank(), " of ", comm.size(), ", ", unit.name);
    if (counted.sent != made.sent || counted.sent_between_nodes != made.sent_between_nodes)
      seen.add("counted", str(where, ": a plan counts ", counted.sent, " bytes sent, ", counted.sent_between_nodes,
                              " to other nodes, and the step sends ", made.sent, " and ", made.sent_between_nodes));
    if (counted.collectives != made.collectives)
      seen.add("counted", str(where, ": a plan counts ", counted.collectives, " collectives, and the step makes ",
                              made.collectives));
  }
}

}  // namespace lmx::app::conformance

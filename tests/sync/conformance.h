// The requirements for every gradient-sync strategy with every codec on every group of ranks. The checks need no test
// framework, so that a process of an MPI job can run them, too.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "comm/partition.h"
#include "lmx/plugin.h"
#include "lmx/row_sync.h"
#include "sync/conformance_data.h"

namespace lmx::sync_test {

struct Case {
  std::string strategy, config;  // the rule's keys besides its strategy, in YAML
  Selection selection() const { return {RandomKey(3), strategy == "sampled_rows"}; }
};

inline std::vector<Case> conformance_cases() {
  const std::vector<std::string> codecs{"{kind: none}", "{kind: fp16}", "{kind: fp16, scale: 1000, reduce: fp32}",
                                        "{kind: bf16}"};
  const std::vector<std::string> one_bit{"{kind: one_bit}", "{kind: one_bit, residual: none}"};
  std::vector<Case> cases;
  for (const std::string& c : codecs) {
    for (const char* strategy : {"allgather", "allgather_dense"}) cases.push_back({strategy, "codec: " + c});
  }
  for (const std::vector<std::string>& list : {codecs, one_bit}) {
    for (const std::string& c : list) {
      cases.push_back({"allreduce", "codec: " + c});
      cases.push_back({"allreduce", "bucket_mb: 0\ncodec: " + c});
      cases.push_back({"unique", "codec: " + c});
      cases.push_back({"unique", "gather: raw\ncodec: " + c});
      cases.push_back({"seeded", "codec: " + c});
    }
  }
  for (const std::string& c : one_bit) cases.push_back({"one_bit", "codec: " + c});
  const std::string selected = "{p: 20, q: 30, hidden_q: 50, embedding: 'emb|tiny', codec: ";  // Selection::rule()
  for (const std::vector<std::string>& list : {codecs, one_bit})
    for (const std::string& c : list) cases.push_back({"sampled_rows", selected + c + "}"});
  return cases;
}

// One rank's strategy and parameters.
class RankRun {
 public:
  RankRun(Communicator& comm, const Case& c)
      : comm_(comm),
        specs_(parameters()),
        selection_(c.selection()),
        own_rows_(c.config.find("one_bit") != std::string::npos || c.strategy == "one_bit") {
    ctx_.rank = comm.rank();
    ctx_.ranks = comm.size();
    ctx_.allocator = comm.allocator();
    ctx_.comm = &comm;
    Node config = parse_yaml(c.config, "case.yaml");
    config.set("name", Node::string(c.strategy));
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, config, "sync.all");
    const SyncEnv env{"all", specs_, ctx_.rank, ctx_.ranks, selection_.key};
    rule_ = create<SyncFactory>(plugin, config, "sync.all", env);
    for (const ParameterSpec& p : specs_) vars_.emplace(p.name, Var(ctx_.zeros(p.shape), true, p.name));
    units_ = strategy().units({specs_.rbegin(), specs_.rend()});
  }

  // Reduces a step's gradients. Returns, as texts, the units whose bytes differ from expected_bytes().
  std::vector<std::string> step(int step) {
    std::vector<std::string> wrong;
    StepPlan plan;
    plan.step = step;
    rule_->begin_step(ctx_, {}, plan);
    for (const ParameterSpec& p : specs_) give(ctx_, vars_.at(p.name), own_of(ctx_.rank, step, p));
    for (const std::vector<std::string>& names : units_) {
      std::vector<Var> unit;
      std::vector<ParameterSpec> specs;
      for (const std::string& name : names) {
        unit.push_back(vars_.at(name));
        specs.push_back(spec(name));
      }
      comm_.clear_ledger();
      strategy().reduce(ctx_, unit);
      int64_t sent = 0, received = 0;
      for (const LedgerEntry& e : comm_.ledger()) {
        sent += e.sent;
        received += e.received;
      }
      const Traffic t = traffic(ctx_.rank, ctx_.ranks, step, specs, selection_);
      const int64_t expected = rule_->expected_bytes(t), to_come = expected_received(t);
      if (sent != expected) wrong.push_back(str("sent ", sent, " bytes for ", names[0], ", expected ", expected));
      if (own_rows_) {
        check_totals(names[0], sent, received, wrong);
        continue;
      }
      if (received != to_come)
        wrong.push_back(str("received ", received, " bytes for ", names[0], ", expected ", to_come));
    }
    return wrong;
  }

  // If a table is sent by each rank's own rows, the ranks receive unequal parts. The totals over all ranks must agree.
  void check_totals(const std::string& name, int64_t sent, int64_t received, std::vector<std::string>& wrong) {
    const double own = static_cast<double>(sent - received);
    double all = 0;
    for (const double difference : comm_.gather_numbers(std::span(&own, 1), "test")) all += difference;
    if (all != 0) wrong.push_back(str(all, " bytes were sent for ", name, " and not received"));
  }

  // The bytes received, by the formulas of all ranks. Each other rank sends its gathered data G - 1 times, once to this
  // rank. A sum receives as much as it sends: the chunks that a rank sends come back summed, and its own chunk is
  // received G - 1 times and sent G - 1 times.
  int64_t expected_received(const Traffic& own) const {
    if (own.ranks == 1) return 0;
    Traffic t = own;
    t.dense.clear();
    for (Traffic::Sparse& s : t.sparse) {
      s.union_rows = 0;  // only the gather remains
      s.owned.assign(s.owned.size(), 0);
    }
    const auto gathered = [&](int rank) {
      t.rank = rank;
      return rule_->expected_bytes(t);
    };
    int64_t bytes = rule_->expected_bytes(own) - gathered(own.rank);
    for (int r = 0; r < own.ranks; ++r)
      if (r != own.rank) bytes += gathered(r) / (own.ranks - 1);
    return bytes;
  }
  void after_step() { rule_->after_step(ctx_); }

  const ParameterSpec& spec(const std::string& name) const {
    return *std::find_if(specs_.begin(), specs_.end(), [&](const ParameterSpec& p) { return p.name == name; });
  }
  // The gradient as a dense matrix, used for comparisons only.
  std::vector<float> values(const ParameterSpec& p) {
    Var& var = vars_.at(p.name);
    const Tensor all = dense_of(ctx_, var.grad(), var.value());
    return {all.values<float>().begin(), all.values<float>().end()};
  }
  std::vector<std::vector<float>> all_values() {
    std::vector<std::vector<float>> all;
    for (const ParameterSpec& p : specs_) all.push_back(values(p));
    return all;
  }
  const Gradient& gradient(const std::string& name) const { return vars_.at(name).grad(); }
  const std::vector<std::vector<std::string>>& units() const { return units_; }
  SyncStrategy& strategy() { return *rule_->strategy(); }
  Context& ctx() { return ctx_; }

  // The states of all ranks, as they would be loaded from a checkpoint.
  std::vector<StateDict> gather_states() {
    const StateDict own = rule_->state();
    std::string keys;
    for (const auto& [key, t] : own) keys += str(key, ' ', name_of(t.dtype()), ' ', t.rank() > 1 ? t.dim(1) : 0, '\n');
    std::vector<StateDict> states;
    const std::vector<std::string> all_keys = comm_.gather_texts(keys, "test");
    for (int r = 0; r < ctx_.ranks; ++r) {
      states.emplace_back();
      std::istringstream lines(all_keys[static_cast<size_t>(r)]);
      std::string key, type;
      int64_t width = 0;
      while (lines >> key >> type >> width) states.back()[key] = sent_by(r, own, key, dtype_from_name(type), width);
    }
    return states;
  }

 private:
  // An all_gather in which only one rank sends data.
  Tensor sent_by(int rank, const StateDict& own, const std::string& key, DType type, int64_t width) {
    if (rank == ctx_.rank) return comm_.all_gather(own.at(key).clone(), "test");
    return comm_.all_gather(ctx_.empty(width ? Shape{0, width} : Shape{0}, type), "test");
  }

  Communicator& comm_;
  Context ctx_;
  std::vector<ParameterSpec> specs_;
  Selection selection_;
  bool own_rows_;
  std::unique_ptr<SyncRule> rule_;
  std::map<std::string, Var> vars_;
  std::vector<std::vector<std::string>> units_;
};

inline bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  return a.size() == b.size();
}

// 53 bits, which a double represents exactly.
inline uint64_t digest(const std::vector<std::vector<float>>& values) {
  uint64_t hash = 1469598103934665603ULL;
  for (const std::vector<float>& list : values)
    for (const float v : list) hash = (hash ^ std::bit_cast<uint32_t>(v)) * 1099511628211ULL;
  return hash >> 11;
}

// The largest error that a codec may cause in a sum of `ranks` values whose absolute values sum to `size`: one rounding
// for each value, one for each partial sum if they are added in fp16, and one for the result.
inline double tolerance(const std::string& config, int ranks, double size) {
  const auto has = [&](const char* text) { return config.find(text) != std::string::npos; };
  const double f32 = 1e-6 * size * ranks;
  if (ranks == 1) return 1e-6 * size;
  if (has("bf16")) return f32 + size * 0x1p-8 * 2.1;
  if (has("reduce: fp32")) return f32 + size * 0x1p-11 * 2.1 + (ranks + 1) * 0x1p-25 / 1000;
  if (has("kind: fp16")) return f32 + size * 0x1p-11 * (ranks + 1) + (2 * ranks + 1) * 0x1p-25 / 1024;
  return f32;
}

// The checks of every case.
class Check {
 public:
  Check(Communicator& comm, Case c) : comm_(comm), case_(std::move(c)), run_(comm, case_) {
    one_bit_ = comm.size() > 1 && case_.config.find("one_bit") != std::string::npos;
    forgets_ = case_.config.find("residual: none") != std::string::npos;
  }

  std::vector<std::string> all() {
    covers_every_parameter();
    std::unique_ptr<RankRun> resumed;
    RankRun again(comm_, case_);
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSavedStep) {
        resumed = std::make_unique<RankRun>(comm_, case_);
        resumed->strategy().load(resumed->ctx(), run_.gather_states());
      }
      for (const std::string& wrong : run_.step(step)) fail(step, wrong);
      check_step(step);
      again.step(step);
      if (!same_bits(run_.all_values(), again.all_values())) fail(step, "a second run differs");
      if (resumed) {
        resumed->step(step);
        if (!same_bits(run_.all_values(), resumed->all_values())) fail(step, "the resumed run differs");
      }
      for (RankRun* r : {&run_, &again, resumed.get()})
        if (r) r->after_step();
    }
    if (one_bit_) nothing_is_lost();
    return failures_;
  }
  uint64_t bits() const { return bits_; }

 private:
  void fail(int step, const std::string& what) {
    failures_.push_back(str(case_.strategy, " {", case_.config, "} rank ", comm_.rank(), " of ", comm_.size(), " step ",
                            step, ": ", what));
  }

  void covers_every_parameter() {
    std::multiset<std::string> seen;
    for (const auto& unit : run_.units()) seen.insert(unit.begin(), unit.end());
    for (const ParameterSpec& p : parameters())
      if (seen.count(p.name) != 1) fail(-1, str(p.name, " is in ", seen.count(p.name), " units"));
  }

  void check_step(int step) {
    const std::vector<std::vector<float>> values = run_.all_values();
    const auto own = static_cast<double>(digest(values));
    for (const double other : comm_.gather_numbers(std::span(&own, 1), "test"))
      if (other != own) fail(step, "ranks differ");
    bits_ = bits_ * 31 + digest(values);
    size_t i = 0;
    for (const ParameterSpec& p : parameters()) {
      const Reference ref = reference(comm_.size(), step, p, case_.selection());
      check_rows(step, p, ref);
      one_bit_ ? sum_up(p, ref, values[i]) : check_values(step, p, ref, values[i]);
      if (one_bit_ && forgets_ && p.sparse) check_columns(step, p, ref, values[i]);
      ++i;
    }
  }

  void check_rows(int step, const ParameterSpec& p, const Reference& ref) {
    const Gradient& g = run_.gradient(p.name);
    if (comm_.size() == 1) return;
    const bool selected = case_.selection().rows(comm_.rank(), step, p) != nullptr;
    if ((!p.sparse && !selected) || case_.strategy == "allgather_dense") {
      if (!g.dense.defined() || g.sparse()) fail(step, p.name + " has no dense gradient");
      return;
    }
    if (ref.rows.empty() && g.empty()) return;
    if (g.pieces.size() != 1 || !g.pieces[0].unique) return fail(step, p.name + " is not one unique piece");
    const std::vector<int32_t> rows(ref.rows.begin(), ref.rows.end());
    if (g.pieces[0].indices != rows) fail(step, p.name + ": not the rows that any rank has");
  }

  void check_values(int step, const ParameterSpec& p, const Reference& ref, const std::vector<float>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(static_cast<double>(values[i]) - ref.sum[i]);
      if (error <= tolerance(case_.config, comm_.size(), ref.size[i])) continue;
      return fail(step, str(p.name, '[', i, "] = ", values[i], ", the sum is ", ref.sum[i], ", tolerance ",
                            tolerance(case_.config, comm_.size(), ref.size[i])));
    }
  }

  void sum_up(const ParameterSpec& p, const Reference& ref, const std::vector<float>& values) {
    std::vector<double>&owed = owed_[p.name], &size = size_[p.name];
    owed.resize(values.size());
    size.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      owed[i] += ref.sum[i] - static_cast<double>(values[i]);
      size[i] += ref.size[i] + std::abs(static_cast<double>(values[i]));
    }
  }

  // The one-bit means preserve the sum of a column.
  void check_columns(int step, const ParameterSpec& p, const Reference& ref, const std::vector<float>& values) {
    const auto width = static_cast<size_t>(width_of(p));
    for (size_t c = 0; c < width; ++c) {
      double sum = 0, size = 0;
      for (size_t i = c; i < values.size(); i += width) {
        sum += ref.sum[i] - static_cast<double>(values[i]);
        size += ref.size[i];
      }
      if (std::abs(sum) > 1e-5 * size) fail(step, str(p.name, ": column ", c, " is off by ", sum));
    }
  }

  // Error feedback: the residuals of the ranks contain what is missing in the sums of all steps.
  void nothing_is_lost() {
    const std::vector<StateDict> states = run_.gather_states();
    for (const ParameterSpec& p : parameters()) {
      if (forgets_ && (p.sparse || case_.selection().rows(0, 0, p))) continue;
      std::vector<double>& owed = owed_[p.name];
      for (int r = 0; r < comm_.size(); ++r)
        for (const char* what : {".push", ".sum"}) take_kept(states[static_cast<size_t>(r)], p, what, r, owed);
      for (size_t i = 0; i < owed.size(); ++i)
        if (std::abs(owed[i]) > 1e-5 * (size_[p.name][i] + 1))
          return fail(kSteps, str(p.name, '[', i, "]: ", owed[i], " is lost"));
    }
  }

  // The residuals of a rank's own values are whole rows; those of sums are its part of the rows.
  void take_kept(const StateDict& state, const ParameterSpec& p, const std::string& what, int rank,
                 std::vector<double>& owed) const {
    const auto found = state.find(p.name + what), index = state.find(p.name + what + ".rows");
    if (found == state.end()) return;
    const bool table = index != state.end();
    const int64_t width = width_of(p);
    comm::Part part{0, p.shape[0], 0, width};
    if (what == ".sum")
      part =
          table ? comm::table_part(1, width, rank, comm_.size()) : comm::part_of(p.shape[0], width, rank, comm_.size());
    const auto kept = found->second.values<float>();
    for (int64_t i = 0; i < static_cast<int64_t>(kept.size()); ++i) {
      const int64_t row = table ? index->second.data<int32_t>()[i / part.columns] : part.row + i / part.columns;
      owed[static_cast<size_t>(row * width + part.column + i % part.columns)] -=
          static_cast<double>(kept[static_cast<size_t>(i)]);
    }
  }

  Communicator& comm_;
  Case case_;
  RankRun run_;
  bool one_bit_ = false, forgets_ = false;
  std::map<std::string, std::vector<double>> owed_, size_;
  std::vector<std::string> failures_;
  uint64_t bits_ = 0;
};

// `unique` and `allgather` are bit-equal, including -0.
inline std::vector<std::string> check_equal_bits(Communicator& comm) {
  std::vector<std::string> failures;
  RankRun unique(comm, {"unique", "gather: raw"}), gathered(comm, {"allgather", "codec: {kind: none}"});
  for (int step = 0; step < kSteps; ++step) {
    unique.step(step);
    gathered.step(step);
    if (!same_bits(unique.all_values(), gathered.all_values()))
      failures.push_back(
          str("rank ", comm.rank(), " of ", comm.size(), " step ", step, ": unique and allgather differ"));
  }
  return failures;
}

struct Conformance {
  std::vector<std::string> failures;
  uint64_t digest = 0;  // digest of all results: equal on every kind of group of this size
};
inline Conformance conformance(Communicator& comm) {
  Conformance all;
  all.failures = check_equal_bits(comm);
  for (const Case& c : conformance_cases()) {
    Check check(comm, c);
    for (std::string& f : check.all()) all.failures.push_back(std::move(f));
    all.digest = all.digest * 31 + check.bits();
  }
  return all;
}

}  // namespace lmx::sync_test

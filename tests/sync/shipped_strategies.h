// The shipped strategies with every codec, and their checks beyond the suite of `lmx plugins check`: exact formulas of
// bytes, the rows of `sampled_rows`, error feedback. The checks need no test framework, so that a process of an MPI job
// can run them, too.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "comm/partition.h"
#include "conformance/sync.h"
#include "lmx/plugin.h"
#include "lmx/row_sampling.h"
#include "lmx/row_sync.h"

namespace lmx::sync_test {

using app::conformance::kSteps;
using app::conformance::Observation;
using app::conformance::parameters;
using app::conformance::RankRun;
using app::conformance::Subject;
using app::conformance::Sum;
using app::conformance::sum_of;

// The indices of the k largest magnitudes among the elements begin to end - 1, in descending order; of equal magnitudes
// the first ones.
template <class T>
std::vector<size_t> largest(const std::vector<T>& v, size_t begin, size_t end, size_t k) {
  std::vector<size_t> ids(end - begin);
  std::iota(ids.begin(), ids.end(), begin);
  std::stable_sort(ids.begin(), ids.end(), [&](size_t a, size_t b) { return std::abs(v[a]) > std::abs(v[b]); });
  ids.resize(std::min(k, ids.size()));
  return ids;
}

struct Case {
  std::string strategy, config;  // the rule's keys besides its strategy, in YAML
  bool has(const char* text) const { return config.find(text) != std::string::npos; }
  bool one_bit() const { return has("one_bit") || strategy == "one_bit"; }
  bool forgets() const { return has("residual: none"); }
  bool sums() const {
    return strategy != "local_sgd" && strategy != "diloco" && strategy != "sparse_loco" && strategy != "noloco" &&
           strategy != "zero";
  }
  // Whether the residuals of a parameter contain what is missing in its sums.
  bool feedback() const {
    if (strategy == "one_bit_adam") return false;
    return one_bit() || has("kind: sign") || has("feedback: true") || has("feedback: 1") || strategy == "top_k" ||
           strategy == "random_k" || strategy == "power_sgd" || strategy == "dgc";
  }
  bool approximate() const {
    return feedback() || strategy == "qsgd" || has("quantised") || (strategy == "zero" && has("codec"));
  }
  Subject subject(Device device = {}) const {
    Node node = parse_yaml(config, "case.yaml");
    node.set("name", Node::string(strategy));
    return {Registry::instance().find(PluginKind::sync, node, "sync.all"), node, approximate(), device};
  }
};

inline std::vector<Case> conformance_cases() {
  const std::vector<std::string> codecs{"{kind: none}", "{kind: fp16}", "{kind: fp16, scale: 1000, reduce: fp32}",
                                        "{kind: bf16}"};
  const std::vector<std::string> one_bit{"{kind: one_bit}", "{kind: one_bit, residual: none}"};
  std::vector<Case> cases;
  for (const std::string& c : codecs) {
    for (const char* strategy : {"allgather", "allgather_dense"}) cases.push_back({strategy, "codec: " + c});
  }
  for (const std::string& c : codecs) {
    cases.push_back({"allreduce", "levels: 2\ncodec: " + c});
    cases.push_back({"allreduce", "levels: 2\nbucket_mb: 0\ncodec: " + c});
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
  for (const char* strategy : {"top_k", "random_k"}) cases.push_back({strategy, "keep: 0.25"});
  cases.push_back({"top_k", "keep: 0.1\nchunk: 64\nmin_size: 20"});
  cases.push_back({"qsgd", "min_size: 0"});
  cases.push_back({"qsgd", "{min_size: 20, feedback: true, bits: 3, bucket: 100, norm: max}"});
  cases.push_back({"sign_majority", "{}"});
  cases.push_back({"power_sgd", "rank: 4"});
  cases.push_back({"dgc", "{keep: 0.25, momentum: 0}"});
  cases.push_back({"demo", "{top: 8, chunk: 16}"});
  cases.push_back({"one_bit_adam", "freeze: 1"});
  cases.push_back({"one_bit_adam", "{freeze: 3, bias_correction: false, bucket_mb: 0}"});
  for (const char* strategy : {"allgather", "allgather_dense"}) cases.push_back({strategy, "codec: {kind: quantised}"});
  cases.push_back({"allreduce", "levels: 2\ncodec: {kind: quantised, bits: 4}"});
  for (const char* codec : {"{kind: quantised, bits: 2, feedback: 1}", "{kind: sign}"})
    for (const char* strategy : {"allreduce", "unique", "seeded"}) cases.push_back({strategy, str("codec: ", codec)});
  cases.push_back({"local_sgd", "every: 3"});
  cases.push_back({"diloco", "every: 4"});
  cases.push_back({"diloco", "{every: 4, codec: {kind: one_bit}}"});
  cases.push_back({"diloco", "{every: 6, fragments: 3, delay: 2, mix: 0.5, outer_momentum: 0}"});
  cases.push_back({"zero", "{}"});
  cases.push_back({"zero", "{stage: 1, bucket_mb: 0.03}"});
  cases.push_back({"zero", "codec: {kind: fp16, reduce: fp32}"});
  cases.push_back({"zero", "{bucket_mb: 0, codec: {kind: quantised, bits: 4, feedback: 1}}"});
  cases.push_back({"diloco", "{every: 4, codec: {kind: quantised, bits: 4, levels: e3m0}}"});
  for (const char* codec : {"{kind: fp16, reduce: fp32}", "{kind: bf16}", "{kind: sign, feedback: 1}",
                            "{kind: quantised, bits: 2, levels: statistical, block: 64, feedback: 0.9}"})
    cases.push_back({"diloco", str("{every: 4, codec: ", codec, "}")});
  for (const char* codec : {"{kind: bf16}", "{kind: one_bit}", "{kind: sign, feedback: 1}"})
    cases.push_back({"zero", str("{bucket_mb: 0.03, codec: ", codec, "}")});
  cases.push_back({"one_bit_adam", "{freeze: 2, codec: {kind: one_bit}}"});
  cases.push_back({"noloco", "every: 3"});
  cases.push_back({"sparse_loco", "{every: 4, fragments: 2, delay: 1, top: 8, chunk: 64}"});
  for (const char* codec : {"none", "fp16", "bf16"})
    cases.push_back({"sparse_loco", str("{every: 3, top: 8, chunk: 64, codec: {kind: ", codec, "}}")});
  const std::string selected = "{p: 20, q: 30, hidden_q: 50, embedding: 'emb|tiny', codec: ";  // row_rule()
  const std::vector<std::string> plugins{"{kind: quantised, bits: 4}", "{kind: sign}"};
  for (const std::vector<std::string>& list : {codecs, one_bit, plugins})
    for (const std::string& c : list) cases.push_back({"sampled_rows", selected + c + "}"});
  return cases;
}

// The rows that `sampled_rows` may use in conformance_cases(). No rank has a batch here, so the words are the frequent
// and the random ones.
inline RowRule row_rule() {
  return {.shares = {20, 30}, .hidden_q = 50, .softmax = "softmax", .embedding = "emb|tiny"};
}
// Null: all rows.
inline std::unique_ptr<std::set<int32_t>> sampled(int rank, int step, const ParameterSpec& p) {
  RowSelector selector(row_rule(), parameters(), RandomKey(3));
  const RowSelector::Kind kind = selector.kind(p.name);
  if (kind != RowSelector::Kind::softmax && kind != RowSelector::Kind::hidden) return nullptr;
  StepPlan plan;
  plan.step = step;
  selector.begin_step(plan, rank, 0, {}, {});
  const std::vector<int32_t> rows = selector.rows(p.name);
  return std::make_unique<std::set<int32_t>>(rows.begin(), rows.end());
}

class ShippedCheck {
 public:
  ShippedCheck(Communicator& comm, const Case& c, Device device)
      : comm_(comm), case_(c), subject_(c.subject(device)), run_(comm, subject_) {}

  std::vector<std::string> all() {
    for (step_ = 0; step_ < kSteps; ++step_) {
      run_.reduce(step_);
      if (case_.strategy == "sampled_rows") check_selection();
      size_t i = 0;
      for (const ParameterSpec& p : run_.specs()) {
        const Sum sum = sum_of(comm_.size(), step_, p, run_.selected());
        check_rows(p, sum);
        if (case_.feedback() && comm_.size() > 1) sum_up(p, sum, run_.values()[i]);
        ++i;
      }
      run_.after_step();
    }
    if (case_.feedback() && comm_.size() > 1) check_residuals();
    return failures_;
  }

 private:
  void fail(const std::string& what) {
    failures_.push_back(str(case_.strategy, " {", case_.config, "} rank ", comm_.rank(), " of ", comm_.size(), " step ",
                            step_, ": ", what));
  }

  void check_selection() {
    for (const ParameterSpec& p : parameters()) {
      const auto found = run_.selected().find(p.name);
      for (int r = 0; r < comm_.size(); ++r) {
        const auto expected = sampled(r, step_, p);
        const bool all = found == run_.selected().end();
        if (all != !expected || (!all && found->second[static_cast<size_t>(r)] != *expected))
          fail(str(p.name, ": selected_rows() of rank ", r, " are not the sampled ones"));
      }
    }
  }

  // Only `allgather_dense` makes tables dense. The others have the rows of any rank, `one_bit` as well.
  void check_rows(const ParameterSpec& p, const Sum& sum) {
    const Gradient& g = run_.gradient(p.name);
    if (comm_.size() == 1) return;
    if (case_.strategy == "allgather_dense") {
      if (!g.dense.defined()) fail(p.name + " has no dense gradient");
      return;
    }
    if (!p.sparse && !run_.selected().contains(p.name)) return;  // the suite checks these
    std::vector<int32_t> rows;
    if (g.sparse()) rows = g.pieces[0].indices;
    if (g.dense.defined() || rows != std::vector<int32_t>(sum.rows.begin(), sum.rows.end()))
      fail(p.name + ": not the rows that any rank has");
  }

  void sum_up(const ParameterSpec& p, const Sum& sum, const std::vector<float>& values) {
    std::vector<double>&owed = owed_[p.name], &size = size_[p.name];
    owed.resize(values.size());
    size.resize(values.size());
    const auto width = static_cast<size_t>(row_width(p.shape));
    std::vector<double> column(width), column_size(width);
    for (size_t i = 0; i < values.size(); ++i) {
      const double missing = sum.sum[i] - static_cast<double>(values[i]);
      owed[i] += missing;
      size[i] += sum.size[i] + std::abs(static_cast<double>(values[i]));
      column[i % width] += missing;
      column_size[i % width] += sum.size[i];
    }
    if (!case_.forgets() || !p.sparse) return;
    for (size_t c = 0; c < width; ++c)  // the one-bit means preserve the sum of a column
      if (std::abs(column[c]) > 1e-5 * column_size[c]) fail(str(p.name, ": column ", c, " is off by ", column[c]));
  }

  // Error feedback: the residuals of the ranks contain what is missing in the sums of all steps.
  void check_residuals() {
    const std::vector<StateDict> states = run_.gather_states();
    for (const ParameterSpec& p : parameters()) {
      if (case_.forgets() && (p.sparse || run_.selected().contains(p.name))) continue;
      std::vector<double>& owed = owed_[p.name];
      for (int r = 0; r < comm_.size(); ++r)
        for (const char* what : {".push", ".sum"}) subtract_residual(states[static_cast<size_t>(r)], p, what, r, owed);
      for (size_t i = 0; i < owed.size(); ++i)
        if (std::abs(owed[i]) > 1e-5 * (size_[p.name][i] + 1)) {
          fail(str(p.name, '[', i, "]: ", owed[i], " is in no residual"));
          break;
        }
    }
  }

  // The residual of a rank's own values is a block, of which that of its sums is the rank's part. A codec of vectors
  // has blocks of one column, so their shape is that of the parameter for tables only.
  void subtract_residual(const StateDict& state, const ParameterSpec& p, const std::string& what, int rank,
                         std::vector<double>& owed) const {
    const auto found = state.find(p.name + what), index = state.find(p.name + what + ".rows");
    if (found == state.end()) return;
    const bool table = index != state.end();
    const Shape block = table ? Shape{p.shape[0], row_width(p.shape)} : state.at(p.name + ".push").shape();
    const int64_t width = block[1];
    comm::Part part{0, block[0], 0, width};
    if (what == ".sum")
      part =
          table ? comm::table_part(1, width, rank, comm_.size()) : comm::part_of(block[0], width, rank, comm_.size());
    const auto kept = found->second.values<float>();
    for (int64_t i = 0; i < static_cast<int64_t>(kept.size()); ++i) {
      const int64_t row = table ? index->second.data<int32_t>()[i / part.columns] : part.row + i / part.columns;
      owed[static_cast<size_t>(row * width + part.column + i % part.columns)] -=
          static_cast<double>(kept[static_cast<size_t>(i)]);
    }
  }

  Communicator& comm_;
  Case case_;
  Subject subject_;
  RankRun run_;
  int step_ = 0;
  std::map<std::string, std::vector<double>> owed_, size_;
  std::vector<std::string> failures_;
};

// The suite of `lmx plugins check` and the checks above. `feedback`: with the checks of discard(), overflows, rescale()
// and the mean of many steps. Adds a number to `digest` that is equal on every kind of group of this size.
inline std::vector<std::string> check_case(Communicator& comm, const Case& c, bool feedback, uint64_t& digest,
                                           Device device = {}) {
  const Subject subject = c.subject(device);
  std::vector<std::string> failures;
  if (c.sums()) failures = ShippedCheck(comm, c, device).all();
  Observation seen = app::conformance::observe_steps(comm, subject);
  digest = digest * 31 + seen.digest;
  if (feedback && c.sums()) {
    app::conformance::observe_discard(comm, subject, seen);
    app::conformance::observe_overflow(comm, subject, seen);
    app::conformance::observe_rescale(comm, subject, seen);
    if (subject.approximate && !c.forgets()) app::conformance::observe_mean(comm, subject, seen);
  }
  for (const auto& [check, finding] : seen.findings)
    failures.push_back(str(c.strategy, " {", c.config, "} ", check, ": ", finding));
  return failures;
}

// `unique` and `allgather` are bit-equal, including -0.
inline std::vector<std::string> check_equal_bits(Communicator& comm, Device device = {}) {
  std::vector<std::string> failures;
  const Subject raw = Case{"unique", "gather: raw"}.subject(device),
                all = Case{"allgather", "codec: {kind: none}"}.subject(device);
  RankRun unique(comm, raw), gathered(comm, all);
  for (int step = 0; step < kSteps; ++step) {
    for (RankRun* run : {&unique, &gathered}) {
      run->reduce(step);
      run->after_step();
    }
    if (!app::conformance::same_bits(unique.values(), gathered.values()))
      failures.push_back(
          str("rank ", comm.rank(), " of ", comm.size(), " step ", step, ": unique and allgather differ"));
  }
  return failures;
}

// Whether a group of processes can do something else with the case than with another one: each strategy with messages
// of numbers and of bits, and one with half as many bytes for a number. The bytes of a codec plugin are sent as those
// of bits. Everything else is computed before a message is sent, and conformance_test.cc checks it with virtual ranks.
inline bool has_own_messages(const Case& c) {
  if (c.has("kind: fp16}")) return c.strategy == "unique" || c.has("levels");
  return !c.has("fp16") && !c.has("bf16") && !c.has("quantised") && !c.has("kind: sign") && !c.forgets();
}

struct Conformance {
  std::vector<std::string> failures;
  uint64_t digest = 0;
};
// The cases that a group of processes may exchange in its own way. On a device, 3 ranks have all of them, and other
// numbers of ranks every second one, since a case takes a second there. `every`: of these cases, every so many are
// checked.
inline Conformance conformance(Communicator& comm, Device device = {}, size_t every = 1) {
  Conformance all;
  const size_t step = (device != Device{} && comm.size() != 3 ? 2 : 1) * every;
  size_t i = static_cast<size_t>(comm.size() / 2);
  if (device == Device{} || comm.size() > 1) all.failures = check_equal_bits(comm, device);
  for (const Case& c : conformance_cases()) {
    if (!has_own_messages(c) || i++ % step) continue;
    for (std::string& f : check_case(comm, c, false, all.digest, device)) all.failures.push_back(std::move(f));
  }
  return all;
}

}  // namespace lmx::sync_test

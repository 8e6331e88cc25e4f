#include "train/loop/worker_state.h"

#include <algorithm>

#include "lmx/error.h"
#include "lmx/model.h"

namespace lmx {
namespace {

constexpr const char *kWorker = "worker", *kSchedule = "schedule", *kRates = "rates";

double count_of(const std::map<std::string, int64_t>& counts, const std::string& name) {
  const auto found = counts.find(name);
  return found == counts.end() ? 0.0 : static_cast<double>(found->second);
}

}  // namespace

std::vector<double> window_numbers(const Window& w, const std::vector<std::string>& params,
                                   const std::vector<std::string>& terms) {
  std::vector<double> all{w.nats};
  for (const int64_t count : {w.tokens, w.skipped, w.updates, w.positions, w.padded, w.overflows})
    all.push_back(static_cast<double>(count));
  for (const std::string& name : params) {
    for (const auto* counts : {&w.rows, &w.overflowed}) all.push_back(count_of(*counts, name));
  }
  for (const std::string& name : terms) all.push_back(w.terms.contains(name) ? w.terms.at(name) : 0.0);
  return all;
}

void add_window(Window& w, std::span<const double> numbers, const std::vector<std::string>& params,
                const std::vector<std::string>& terms) {
  w.nats += numbers[0];
  size_t at = 1;
  for (int64_t* count : {&w.tokens, &w.skipped, &w.updates, &w.positions, &w.padded, &w.overflows})
    *count += static_cast<int64_t>(numbers[at++]);
  for (const std::string& name : params) {
    for (auto* counts : {&w.rows, &w.overflowed})
      if (const auto n = static_cast<int64_t>(numbers[at++])) (*counts)[name] += n;
  }
  for (const std::string& name : terms) w.terms[name] += numbers[at++];
}

namespace {

// The overflows of each parameter, in the order of the names.
std::vector<double> census_numbers(const Session& s, const ScaleState& scale) {
  std::vector<double> counts;
  for (const std::string& name : s.params.names()) counts.push_back(count_of(scale.census, name));
  return counts;
}

void add_census(const Session& s, std::span<const double> counts, ScaleState& scale) {
  size_t at = 0;
  for (const std::string& name : s.params.names())
    if (const auto n = static_cast<int64_t>(counts[at++])) scale.census[name] += n;
}

// The learning rate's factor and the census of this worker, which versions up to 0.3.0 did not store.
void unpack_rates(const Session& s, const StateDict& own, Position& at) {
  const auto found = own.find(kRates);
  if (found == own.end()) return;
  const size_t needed = 1 + s.params.names().size();
  if (found->second.dtype() != DType::f64 || found->second.numel() != static_cast<int64_t>(needed))
    throw UserError(str("[resume] the checkpoint's rates of worker ", s.ctx.rank, " are ", describe(found->second),
                        ", where f64 (", needed, ") is needed"));
  const std::span<const double> n = std::as_const(found->second).values<double>();
  at.lr_scale = n[0];
  add_census(s, n.subspan(1), at.loss_scale);
}

}  // namespace

ScaleState scale_of_ranks(const Session& s, const ScaleState& own) {
  if (!s.separate_steps()) return own;
  std::vector<double> numbers{static_cast<double>(own.overflows), static_cast<double>(own.last_overflow)};
  for (const double count : census_numbers(s, own)) numbers.push_back(count);
  const std::vector<double> all = s.comm.gather_numbers(numbers, "control");
  ScaleState sum = own;
  sum.overflows = 0;
  sum.census = {};
  for (size_t i = 0; i < all.size(); i += numbers.size()) {
    sum.overflows += static_cast<int64_t>(all[i]);
    sum.last_overflow = std::max(sum.last_overflow, static_cast<int64_t>(all[i + 1]));
    add_census(s, std::span(all).subspan(i + 2, numbers.size() - 2), sum);
  }
  return sum;
}

StateDict pack_worker(const RunState& run) {
  const Session& s = run.s;
  const Position& at = run.at;
  const Worker& w = at.worker;
  const ScaleState& scale = at.loss_scale;
  std::vector<double> numbers{static_cast<double>(w.step),
                              static_cast<double>(at.updates),
                              w.pulled ? 1.0 : 0.0,
                              w.clock,
                              static_cast<double>(at.skipped_in_a_row),
                              at.window.grad_norm,
                              at.window.lr,
                              scale.scale,
                              static_cast<double>(scale.good),
                              static_cast<double>(scale.last_overflow),
                              static_cast<double>(scale.overflows)};
  for (const double number : window_numbers(at.window, s.params.names(), run.terms)) numbers.push_back(number);
  std::vector<double> rates{at.lr_scale};
  for (const double count : census_numbers(s, scale)) rates.push_back(count);
  StateDict state;
  state[kRates] = Tensor::from<double>(s.ctx.host, {static_cast<int64_t>(rates.size())}, rates);
  state[kWorker] = Tensor::from<double>(s.ctx.host, {static_cast<int64_t>(numbers.size())}, numbers);
  const std::vector<int32_t>& events = s.shared->workers.events;
  if (s.leads() && !events.empty())
    state[kSchedule] = Tensor::from<int32_t>(s.ctx.host, {static_cast<int64_t>(events.size())}, events);
  return state;
}

void unpack_worker(Session& s, const StateDict& own, Position& at) {
  const std::vector<std::string>& params = s.params.names();
  const std::vector<std::string> terms = loss_terms(*s.network.model);
  constexpr size_t kFixed = 11, kSums = 7, kByParameter = 2;
  const auto found = own.find(kWorker);
  if (found == own.end() || found->second.dtype() != DType::f64 ||
      found->second.numel() != static_cast<int64_t>(kFixed + kSums + kByParameter * params.size() + terms.size()))
    throw UserError(str("[resume] the checkpoint does not say where worker ", s.ctx.rank, " stood"));
  const std::span<const double> n = std::as_const(found->second).values<double>();
  at.worker = {static_cast<int64_t>(n[0]), n[2] != 0, n[3]};
  at.updates = static_cast<int64_t>(n[1]);
  at.skipped_in_a_row = static_cast<int64_t>(n[4]);
  at.window = {};
  at.window.grad_norm = n[5];
  at.window.lr = n[6];
  at.loss_scale = {n[7], static_cast<int64_t>(n[8]), static_cast<int64_t>(n[9]), static_cast<int64_t>(n[10]), {}};
  unpack_rates(s, own, at);
  add_window(at.window, n.subspan(kFixed), params, terms);
  const auto events = own.find(kSchedule);
  if (events == own.end()) return;
  const auto order = std::as_const(events->second).values<int32_t>();
  s.shared->workers.events.assign(order.begin(), order.end());
}

}  // namespace lmx

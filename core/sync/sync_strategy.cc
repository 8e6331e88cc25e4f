// Default implementations of a rule's functions.
#include <numeric>

#include "lmx/error.h"
#include "lmx/row_sync.h"
#include "lmx/sync.h"

namespace lmx {

TrafficModel::~TrafficModel() = default;
SyncReport::~SyncReport() = default;
SentBytes TrafficModel::sent_bytes(const Traffic& t) const {
  SentBytes sent;
  for (int to = 0; to < t.ranks; ++to) {
    if (to == t.rank) continue;
    const int64_t bytes = expected_bytes(t, to);
    sent.all += bytes;
    if (to / t.ranks_per_node != t.rank / t.ranks_per_node) sent.between_nodes += bytes;
  }
  return sent;
}
std::vector<std::vector<std::string>> SyncStrategy::units(const std::vector<ParameterSpec>& params) const {
  std::vector<std::vector<std::string>> alone;
  for (const ParameterSpec& spec : params) alone.push_back({spec.name});
  return alone;
}
void SyncRule::begin_step(Context&, std::span<const Batch>, StepPlan&) {}
const std::vector<int32_t>* SyncStrategy::selected_rows(const std::string&) const {
  return nullptr;
}
bool SyncRule::plans_rows(const std::string&) const {
  return false;
}
void SyncRule::after_step(Context&) {}
void SyncRule::discard() {}
void SyncRule::rescale(double) {}
StateDict SyncRule::state() const {
  return {};
}
void SyncRule::load(Context&, const std::vector<StateDict>& ranks) {
  for (const StateDict& state : ranks)
    if (!state.empty())
      throw UserError(
          str("[sync] the checkpoint has a state '", state.begin()->first, "', which this strategy does not keep"));
}
int64_t TrafficModel::collectives(const Traffic& t) const {
  return t.ranks == 1 ? 0 : 2 * static_cast<int64_t>(t.dense.size()) + 4 * static_cast<int64_t>(t.sparse.size());
}
void TrafficModel::plan(Traffic& unit, const ParameterSpec& spec, const TableRows& touched) const {
  const int64_t height = spec.shape[0], width = row_width(spec.shape);
  if (!spec.sparse) return unit.dense.push_back({height, width});
  const auto each = [&](int64_t n) { return std::vector<int64_t>(static_cast<size_t>(unit.ranks), n); };
  unit.sparse.push_back({height, width, each(touched.raw), each(touched.own), touched.all, {}});
}
KeptBytes TrafficModel::kept_bytes(const Traffic& t) const {
  KeptBytes kept;
  for (const Traffic::Dense& d : t.dense)
    kept.sums += 4 * d.width * (d.owned.empty() ? d.rows : std::accumulate(d.owned.begin(), d.owned.end(), int64_t{0}));
  for (const Traffic::Sparse& s : t.sparse) kept.sums += 4 * s.union_rows * s.width;
  return kept;
}
int64_t TrafficModel::moved_bytes(const Traffic& t) const {
  const KeptBytes kept = kept_bytes(t);
  return t.ranks == 1 ? 0 : 2 * sent_bytes(t).all + 2 * kept.sums + kept.gathered;
}
int64_t TrafficModel::pair_bytes() const {
  return 110;
}
std::vector<std::string> SyncReport::warnings(bool) const {
  return {};
}
std::string SyncReport::describe(int) const {
  return {};
}
std::vector<std::pair<std::string, double>> SyncReport::take_values() {
  return {};
}
std::string SyncReport::summary() const {
  return {};
}
CandidateKey SyncRule::candidate_key() const {
  return CandidateKey::left;
}
int64_t SyncRule::candidate_sets(int) const {
  return 1;
}
std::map<std::string, CodecHealth> SyncReport::take_health() {
  return {};
}

}  // namespace lmx

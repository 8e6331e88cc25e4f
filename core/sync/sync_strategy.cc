// Default implementations of a rule's functions.
#include "lmx/error.h"
#include "lmx/sync.h"

namespace lmx {

SyncReport::~SyncReport() = default;
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
StateDict SyncRule::common_state() const {
  return {};
}
void SyncRule::load_common(Context&, const StateDict& state) {
  if (!state.empty())
    throw UserError(str("[sync] the checkpoint has a state '", state.begin()->first,
                        "' of all ranks, which this strategy does not keep"));
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
SyncResult SyncRule::result() const {
  return SyncResult::sum;
}
std::map<std::string, CodecHealth> SyncReport::take_health() {
  return {};
}

std::vector<std::vector<std::string>> buckets_of(const std::vector<ParameterSpec>& params, double megabytes,
                                                 const std::function<int64_t(const ParameterSpec&)>& bytes_of) {
  std::vector<std::vector<std::string>> units;
  std::vector<std::string> bucket;
  double bytes = 0;
  for (const ParameterSpec& p : params) {
    if (p.sparse) {
      units.push_back({p.name});
      continue;
    }
    bucket.push_back(p.name);
    bytes += static_cast<double>(bytes_of(p));
    if (bytes < megabytes * 1e6) continue;
    units.push_back(std::move(bucket));
    bucket.clear();
    bytes = 0;
  }
  if (!bucket.empty()) units.push_back(std::move(bucket));
  return units;
}

}  // namespace lmx

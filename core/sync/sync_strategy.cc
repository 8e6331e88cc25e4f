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

}  // namespace lmx

#include "app/memory/estimate.h"

#include <algorithm>

#include "data/data_config.h"
#include "lmx/row_sampling.h"

namespace lmx {

using namespace train;

Shares shares_of(const Recipe& r, const BatchPlan& batch, const LossPlan& loss, int ranks) {
  const bool pairs = batch.items == Items::sub_batches;
  const int64_t sequences = (r.batch.global + ranks - 1) / ranks, length = batch.item_tokens;
  const int64_t pass = pairs ? r.batch.micro_tokens : 0;
  return {.ranks = ranks,
          .step_tokens = r.batch.global * length,
          .vocab = data::vocabulary_size(r.data),
          .sequences = sequences,
          .length = length,
          .own_tokens = sequences * length,
          .forward_tokens =
              pass > 0 ? std::min(pass, sequences * length) : forward_shape(r, ranks, batch).sequences * length,
          .samples = loss.samples,
          .pairs = pairs};
}

WordLaw zipf_law() {
  return [](int64_t tokens, int64_t vocabulary) { return expected_words(tokens, vocabulary); };
}

TableRows table_rows(const SyncRules& sync, const Network& network, const Shares& s, const ParameterSpec& spec,
                     const WordLaw& law) {
  const auto of_output = [](const ParameterSpec& p) { return p.name.starts_with("softmax"); };
  const bool tied = std::none_of(network.specs.begin(), network.specs.end(), of_output);
  const int64_t samples = tied || of_output(spec) ? s.samples : 0;  // an input table has no candidates
  const int64_t own = s.own_tokens + samples, all = s.step_tokens + sync.candidate_sets() * samples;
  return {own, law(own, spec.shape[0]), law(all, spec.shape[0]), s.own_tokens};
}

std::vector<UnitPlan> exchange_of(const SyncRules& sync, const Network& network, const Shares& s, const WordLaw& law) {
  return sync.plan(network.specs, [&](const ParameterSpec& spec) { return table_rows(sync, network, s, spec, law); });
}

}  // namespace lmx

#include "app/memory/estimate.h"

#include <algorithm>

#include "data/data_config.h"

namespace lmx {

using namespace train;

Shares shares_of(const Recipe& r, const BatchPlan& batch, int ranks) {
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
          .pairs = pairs};
}

}  // namespace lmx

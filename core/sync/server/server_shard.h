// One rank's part of a parameter server: values, optimizer, and the staleness of pushes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lmx/codec.h"
#include "lmx/optim.h"
#include "lmx/parameters.h"

namespace lmx::server {

// The number of occurrences of each staleness.
using Histogram = std::map<int64_t, int64_t>;
double mean_of(const Histogram& histogram);  // NaN if it is empty

// The part of a push for one shard and one parameter.
struct Part {
  std::string name;
  bool sparse = false;
  std::vector<int32_t> rows = {};  // sparse: ascending, counted from the shard's first row
  int64_t count = 0;               // number of rows with values
  Tensor values;                   // (count, ...), or u8: encoded
  double scale = 1;
};

class Shard {
 public:
  // `values`: views of this shard's rows. `workers`: number of ranks that pull and push. `codec`: for pushes.
  Shard(Context ctx, ParameterStore values, std::unique_ptr<Optimizer> optimizer, int workers,
        const CodecConfig& codec);
  // The parameters that have rows on this shard.
  const ParameterStore& values() const { return values_; }
  int64_t updates() const { return updates_; }
  void pulled(int worker);
  void apply(int worker, std::vector<Part> parts, double lr);
  const Codec& codec() const { return *codec_; }
  const Histogram& staleness() const { return staleness_; }
  Histogram take_staleness();  // since the last call
  StateDict state() const;
  void load(const StateDict& state);  // UserError: from another model or number of workers

 private:
  Tensor decoded(const Part& part, const Shape& shape);
  Context ctx_;
  ParameterStore values_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Codec> codec_;
  std::vector<int64_t> pulled_at_;  // by worker: number of updates at its last pull
  int64_t updates_ = 0;
  Histogram staleness_, recent_;
};

}  // namespace lmx::server

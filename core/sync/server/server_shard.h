// One rank's part of a parameter server: values, optimizer, and how stale what is pushed was.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lmx/codec.h"
#include "lmx/optim.h"
#include "lmx/parameters.h"

namespace lmx::server {

// How often each staleness was seen.
using Histogram = std::map<int64_t, int64_t>;
double mean_of(const Histogram& histogram);  // NaN when it is empty

// What a push brings a shard of one parameter.
struct Part {
  std::string name;
  bool sparse = false;
  std::vector<int32_t> rows = {};  // sparse: ascending, counted from the shard's first row
  int64_t count = 0;               // of rows that it has values for
  Tensor values;                   // (count, ...), or u8: encoded
  double scale = 1;
};

class Shard {
 public:
  // `values`: views of this shard's rows. `workers`: ranks that pull and push. `codec`: of what they push.
  Shard(Context ctx, ParameterStore values, std::unique_ptr<Optimizer> optimizer, int workers,
        const CodecConfig& codec);
  // Parameters of which it has rows.
  const ParameterStore& values() const { return values_; }
  int64_t updates() const { return updates_; }
  void pulled(int worker);
  void apply(int worker, std::vector<Part> parts, double lr);
  const Codec& codec() const { return *codec_; }
  const Histogram& staleness() const { return staleness_; }
  Histogram take_staleness();  // since the last call
  StateDict state() const;
  void load(const StateDict& state);  // UserError: of another model or number of workers

 private:
  Tensor decoded(const Part& part, const Shape& shape) const;
  Context ctx_;
  ParameterStore values_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Codec> codec_;
  std::vector<int64_t> pulled_at_;  // by worker: updates at its last pull
  int64_t updates_ = 0;
  Histogram staleness_, recent_;
};

}  // namespace lmx::server

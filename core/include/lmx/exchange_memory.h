// The memory of an exchange, from sizes alone.
#pragma once

#include <cstdint>

#include "lmx/api.h"

namespace lmx {

struct Traffic;

// Bytes of a rank for a unit of parameters beside KeptBytes (lmx/sync.h). `most`: at one time, while the unit is
// reduced. `owned`: the part of it that is the rank's own. The rest belongs to other ranks; ranks that share memory
// have one copy of it. `residuals`: kept from one step to the next, and during a step also those of the step before.
struct PassingBytes {
  int64_t most = 0, owned = 0, residuals = 0;
};

// A SyncStrategy that also derives from this class states its memory, for 2 or more ranks. For another one, a plan
// assumes that a rank receives as many bytes for a unit as it sends, and keeps its own part in addition.
class LMX_API ExchangeMemoryModel {
 public:
  virtual ~ExchangeMemoryModel();
  virtual PassingBytes passing_bytes(const Traffic& traffic) const = 0;
};

}  // namespace lmx

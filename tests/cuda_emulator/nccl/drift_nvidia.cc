#include <nccl.h>

#include "drift_table.h"

namespace nccl_drift {

Table nvidia() {
  return table();
}

}  // namespace nccl_drift

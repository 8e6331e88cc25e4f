#include "lengths.h"

#include "lmx/error.h"

namespace lmx_gloo {

void check_length(int from, int64_t sent, int rank, int64_t expected) {
  if (sent == expected) return;
  throw lmx::InternalError(
      lmx::str("[gloo] rank ", from, " sent ", sent, " bytes where rank ", rank, " expected ", expected));
}

}  // namespace lmx_gloo

// The text of the error that a call throws.
#pragma once

#include <string>

#include "lmx/error.h"

namespace lmx_test {

// The text of the UserError that `call` throws, or "no error".
template <class Call>
std::string user_error(const Call& call) {
  try {
    call();
  } catch (const lmx::UserError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace lmx_test

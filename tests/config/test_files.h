// A folder of files, and the text of the error that a call throws.
#pragma once

#include <string>

#include "lmx/error.h"
#include "temp_folder.h"

namespace lmx::test {

using lmx_test::TempFolder;

template <class Call>
std::string user_error(const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace lmx::test

// How a typed config shows itself.
#pragma once

#include <string>

#include "lmx/config.h"

namespace lmx::config {

std::string range_text(const Range& range);  // ">= 1", "in (0, 1]", or "" for any value

}  // namespace lmx::config

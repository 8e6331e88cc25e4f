// The text form of a typed config.
#pragma once

#include <string>

#include "lmx/config.h"

namespace lmx::config {

std::string range_text(const Range& range);  // ">= 1", "in (0, 1]", or "" for any value

}  // namespace lmx::config

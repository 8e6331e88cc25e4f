// The time of day, as text.
#pragma once

#include <ctime>
#include <string>

namespace lmx {

// `when` here, by strftime's format: "%Y-%m-%d %H:%M:%S". "" where the format gives nothing, or more than 255 bytes.
std::string local_time(const char* format, std::time_t when = std::time(nullptr));

}  // namespace lmx

// The time of day as text.
#pragma once

#include <ctime>
#include <string>

namespace lmx {

// `when` in local time, in strftime's format: "%Y-%m-%d %H:%M:%S". "" if the result is empty or longer than 255 bytes.
std::string local_time(const char* format, std::time_t when = std::time(nullptr));

}  // namespace lmx

// The time of day as text, and the time of the processor.
#pragma once

#include <ctime>
#include <string>

namespace lmx {

// `when` in local time, in strftime's format: "%Y-%m-%d %H:%M:%S". "" if the result is empty or longer than 255 bytes.
std::string local_time(const char* format, std::time_t when = std::time(nullptr));

// Seconds that the calling thread has computed, in user code and in the kernel.
double thread_cpu_s();

}  // namespace lmx

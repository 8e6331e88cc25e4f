// The time of day as text, times that have passed, and the time of the processor.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

namespace lmx {

// `when` in local time, in strftime's format: "%Y-%m-%d %H:%M:%S". "" if the result is empty or longer than 255 bytes.
std::string local_time(const char* format, std::time_t when = std::time(nullptr));

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Seconds that the calling thread has computed, in user code and in the kernel.
double thread_cpu_s();

}  // namespace lmx

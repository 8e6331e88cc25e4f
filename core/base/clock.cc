#include "base/clock.h"

namespace lmx {

std::string local_time(const char* format, std::time_t when) {
  std::tm local{};
  localtime_r(&when, &local);
  char text[256];
  return {text, std::strftime(text, sizeof text, format, &local)};
}

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace lmx

#include "base/clock.h"

namespace lmx {

std::string local_time(const char* format, std::time_t when) {
  std::tm local{};
  localtime_r(&when, &local);
  char text[256];
  return {text, std::strftime(text, sizeof text, format, &local)};
}

}  // namespace lmx

#include "lmx/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include "lmx/clock.h"

namespace lmx {
namespace {

struct Logger {
  std::mutex mutex;
  LogLevel threshold = LogLevel::info;
  std::ofstream file;
  bool line_open = false;  // a progress line stands on the terminal
};

Logger& logger() {
  static Logger instance;
  return instance;
}

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

}  // namespace

bool progress_enabled() {
  static const bool enabled = [] {
    const char* term = std::getenv("TERM");
    return isatty(STDERR_FILENO) && term && std::string_view(term) != "dumb";
  }();
  return enabled;
}

bool colour_enabled() {
  const char* no = std::getenv("NO_COLOR");
  return progress_enabled() && !(no && *no);
}

void log(LogLevel level, std::string_view text) {
  Logger& l = logger();
  const std::lock_guard lock(l.mutex);
  const char* name = kNames[static_cast<int>(level)];
  if (level >= l.threshold) {
    if (l.line_open) std::fputs("\r\033[K", stderr);
    l.line_open = false;
    if (level >= LogLevel::warn) std::fprintf(stderr, "%s: ", name);
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  }
  if (l.file.is_open()) l.file << local_time("%Y-%m-%d %H:%M:%S") << ' ' << name << ' ' << text << std::endl;
}

void set_log_level(LogLevel threshold) {
  const std::lock_guard lock(logger().mutex);
  logger().threshold = threshold;
}

void set_log_file(const std::string& path) {
  Logger& l = logger();
  const std::lock_guard lock(l.mutex);
  l.file.close();
  if (!path.empty()) l.file.open(path, std::ios::app);
}

void progress_line(std::string_view text) {
  if (!progress_enabled()) return;
  Logger& l = logger();
  const std::lock_guard lock(l.mutex);
  winsize size{};
  const size_t width = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
  std::fprintf(stderr, "\r\033[K%.*s", static_cast<int>(std::min(text.size(), width)), text.data());
  l.line_open = !text.empty();
}

}  // namespace lmx

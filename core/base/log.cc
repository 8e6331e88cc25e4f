#include "lmx/log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/early_log.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx {
namespace {

struct Logger {
  std::mutex mutex;
  LogLevel threshold = LogLevel::info;
  std::ofstream file;
  std::optional<std::string> early;  // the kept lines of an EarlyLog; none: there is no such object
  bool line_open = false;            // the terminal shows a progress line
  std::optional<std::chrono::steady_clock::time_point> printed;  // last progress line, if stderr is no terminal
};

Logger& logger() {
  static Logger instance;
  return instance;
}

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
constexpr const char* kColours[] = {"", "", "\033[1;33m", "\033[1;31m"};  // yellow, red

// Seconds between two progress lines if they cannot overwrite each other; 0: no progress lines.
double progress_interval() {
  const char* text = std::getenv("LMX_PROGRESS_S");
  char* end = nullptr;
  const double seconds = text ? std::strtod(text, &end) : 0;
  const bool valid = text && end != text && *end == '\0' && seconds >= 0;
  if (text && !valid)
    std::fprintf(stderr, "warning: LMX_PROGRESS_S=%s is no number of seconds; a line of progress comes every 30 s\n",
                 printable(text).c_str());
  return valid ? seconds : 30;
}

// Prints a message to stderr, folded to the width of the terminal.
void print_message(LogLevel level, const std::string& text) {
  const std::string name = level >= LogLevel::warn ? str(kNames[static_cast<int>(level)], ":") : "";
  const std::string all = folded(name.empty() ? text : str(name, " ", text), terminal_columns(STDERR_FILENO));
  const bool colour = colour_enabled() && !name.empty();
  std::fprintf(stderr, "%s%s%s%s\n", colour ? kColours[static_cast<int>(level)] : "", name.c_str(),
               colour ? "\033[0m" : "", all.c_str() + name.size());
}

// Prints a progress line at most once per interval, for stderr that is no terminal. The first one comes one interval
// after the first call.
void print_now_and_then(Logger& l, std::string_view text) {
  static const double interval = progress_interval();
  const auto now = std::chrono::steady_clock::now();
  if (!l.printed) l.printed = now;
  if (text.empty() || interval == 0 || std::chrono::duration<double>(now - *l.printed).count() < interval) return;
  l.printed = now;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

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

void log(LogLevel level, std::string_view foreign) {
  const std::string text = printable(foreign);
  Logger& l = logger();
  const std::lock_guard lock(l.mutex);
  if (level >= l.threshold) {
    if (l.line_open) std::fputs("\r\033[K", stderr);
    l.line_open = false;
    print_message(level, text);
  }
  if (!l.file.is_open() && !l.early) return;
  const std::string line = str(local_time("%Y-%m-%d %H:%M:%S"), ' ', kNames[static_cast<int>(level)], ' ', text, '\n');
  if (l.file.is_open())
    l.file << line << std::flush;
  else
    *l.early += line;
}

void set_log_level(LogLevel threshold) {
  const std::lock_guard lock(logger().mutex);
  logger().threshold = threshold;
}

void set_log_file(const std::string& path) {
  Logger& l = logger();
  const std::lock_guard lock(l.mutex);
  l.file.close();
  if (path.empty()) return;
  l.file.open(path, std::ios::app);
  if (l.early) l.file << std::exchange(*l.early, "") << std::flush;
}

EarlyLog::EarlyLog() {
  const std::lock_guard lock(logger().mutex);
  logger().early = "";
}

EarlyLog::~EarlyLog() {
  const std::lock_guard lock(logger().mutex);
  logger().early.reset();
}

void progress_line(std::string_view foreign) {
  const size_t columns = terminal_columns(STDERR_FILENO);
  const std::string text = shortened(printable(foreign), columns > 1 ? columns - 1 : 0);  // a full line would scroll
  Logger& l = logger();
  const std::lock_guard lock(l.mutex);
  if (!progress_enabled()) return print_now_and_then(l, text);
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  l.line_open = !text.empty();
}

}  // namespace lmx

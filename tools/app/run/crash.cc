#include "app/run/run.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>

#include "lmx/config.h"
#include "plugin/library.h"

namespace lmx::app {
namespace {

struct Signal {
  int number;
  const char* name;
};
constexpr std::array kSignals{Signal{SIGSEGV, "Segmentation fault"}, Signal{SIGBUS, "Bus error"},
                              Signal{SIGILL, "Illegal instruction"}, Signal{SIGFPE, "Floating point exception"},
                              Signal{SIGABRT, "Aborted"}};

// A text in a fixed buffer, because a signal handler must not allocate. Text that does not fit is dropped.
class Text {
 public:
  Text& operator<<(std::string_view part) {
    const size_t n = std::min(part.size(), sizeof bytes_ - size_);
    std::memcpy(bytes_ + size_, part.data(), n);
    size_ += n;
    return *this;
  }
  Text& number(int64_t value, int width = 1) {
    char digits[24];
    int n = 0;
    for (uint64_t rest = static_cast<uint64_t>(value < 0 ? 0 : value); rest > 0 || n < width; rest /= 10)
      digits[n++] = static_cast<char>('0' + rest % 10);
    while (n > 0) *this << std::string_view(&digits[--n], 1);
    return *this;
  }
  std::string_view view() const { return {bytes_, size_}; }

 private:
  char bytes_[2048];
  size_t size_ = 0;
};

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// Created before the crash, so that the handler only copies.
struct StatusFile {
  std::string path, temporary, host;
  const std::atomic<int64_t>* step;
};
std::atomic<const StatusFile*> g_status{nullptr};
std::atomic<pid_t> g_crashed{0};  // the first thread that crashed

// Writes a time such as "2026-11-23T06:00:00+0000". UTC needs no time zone table.
void add_time(Text& text) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(now - day);
  text.number(int(date.year()), 4) << "-";
  text.number(unsigned(date.month()), 2) << "-";
  text.number(unsigned(date.day()), 2) << "T";
  text.number(clock.hours().count(), 2) << ":";
  text.number(clock.minutes().count(), 2) << ":";
  text.number(clock.seconds().count(), 2) << "+0000";
}

void write_crash(const StatusFile& file, std::string_view reason) {
  Text text;
  text << "{\n \"host\": " << file.host << ",\n \"pid\": ";
  text.number(getpid()) << ",\n \"reason\": \"" << reason << "\",\n \"state\": \"failed\",\n \"step\": ";
  text.number(file.step->load()) << ",\n \"time\": \"";
  add_time(text);
  text << "\"\n}\n";
  unlink(file.temporary.c_str());
  const int fd = open(file.temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return;
  write_all(fd, text.view());
  fsync(fd);
  close(fd);
  rename(file.temporary.c_str(), file.path.c_str());
}

// Virtual ranks often crash together. The first thread ends the process when it has written the status; a disk that
// hangs must not keep the process alive.
void wait_for_report() {
  constexpr int kLongestS = 5;
  timespec left{.tv_sec = kLongestS, .tv_nsec = 0};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// The reason consists of literals and a plugin's name, which is an identifier, so JSON needs no escaping.
void handle(int number, siginfo_t*, void* context) {
  pid_t first = 0;
  if (g_crashed.compare_exchange_strong(first, gettid())) {
    Text reason, line;
    for (const Signal& s : kSignals)
      if (s.number == number) reason << "crashed: " << s.name;
    const CodePlace place = place_of_crash(context);
    if (place.plugin) {
      reason << " in ";
      if (place.function) reason << place.function << " of ";
      reason << "the " << place.plugin->kind << " plugin '" << place.plugin->name << "'";
    }
    line << "\nerror: " << reason.view();
    if (place.plugin) line << ", " << place.plugin->path;
    line << "\n";
    write_all(STDERR_FILENO, line.view());
    if (const StatusFile* file = g_status.load()) write_crash(*file, reason.view());
  } else if (first != gettid()) {
    wait_for_report();
  }
  std::signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void report_crashes() {
  // A separate stack for the handler: after a stack overflow the main thread has no stack left.
  static char stack[64 * 1024];
  const stack_t alternate{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const Signal& s : kSignals) {
    struct sigaction present {};
    if (sigaction(s.number, nullptr, &present) == 0 && present.sa_handler == SIG_DFL)
      sigaction(s.number, &action, nullptr);
  }
}

CrashStatus::CrashStatus(const std::string& path, const std::string& host, const std::atomic<int64_t>& step) {
  delete g_status.exchange(new StatusFile{path, path + ".crash", to_json(Node::string(host)), &step});
}

CrashStatus::~CrashStatus() {
  delete g_status.exchange(nullptr);
}

}  // namespace lmx::app

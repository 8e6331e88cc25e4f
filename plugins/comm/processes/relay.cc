#include "relay.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lmx/error.h"

namespace lmx::processes {
namespace {

void pass(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a closed terminal
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

Relay::Relay() {
  if (pipe2(ends_, O_CLOEXEC) != 0) throw RunError(str("[comm] the ranks cannot be started: ", std::strerror(errno)));
  fcntl(ends_[0], F_SETFL, O_NONBLOCK);
}

Relay::~Relay() {
  close_writer();
  close(ends_[0]);
}

void Relay::close_writer() {
  if (ends_[1] >= 0) close(ends_[1]);
  ends_[1] = -1;
}

void Relay::relay(int milliseconds) {
  pollfd event{open_ ? ends_[0] : -1, POLLIN, 0};
  if (poll(&event, 1, milliseconds) > 0) drain();
}

void Relay::drain() {
  char text[4096];
  for (ssize_t n = 0; (n = read(ends_[0], text, sizeof text)) != -1 || errno == EINTR;) {
    if (n == 0) open_ = false;
    if (n <= 0) break;
    look({text, static_cast<size_t>(n)});
    pass({text, static_cast<size_t>(n)});
  }
}

void Relay::look(std::string_view text) {
  constexpr std::string_view kError = "error: ";
  for (const char c : text) {
    if (c == '\n') {
      column_ = 0;
    } else if (column_ < kError.size() && c == kError[column_]) {
      has_error_ |= ++column_ == kError.size();
    } else {
      column_ = kError.size() + 1;
    }
  }
}

}  // namespace lmx::processes

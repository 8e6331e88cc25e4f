// The stderr output of child processes.
#pragma once

#include <cstddef>
#include <string_view>

namespace lmx::processes {

// A pipe that takes the place of the children's stderr. Forwards what they print, and looks for lines that begin with
// "error: ".
class Relay {
 public:
  Relay();  // RunError: the system has no pipe left
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int writer() const { return ends_[1]; }  // for the children
  void close_writer();                     // to be called when all children have been started
  // Waits up to `milliseconds` for output and forwards it.
  void relay(int milliseconds);
  void drain();  // forwards what there is
  bool has_error() const { return has_error_; }

 private:
  void look(std::string_view text);

  int ends_[2] = {-1, -1};
  size_t column_ = 0;  // characters of "error: " that the line matches so far
  bool open_ = true, has_error_ = false;
};

}  // namespace lmx::processes

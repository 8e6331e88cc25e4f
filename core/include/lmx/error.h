// The kinds of error that lmx distinguishes, and how their texts are composed.
//
// The core throws; only tools/lmx converts an error into an exit code. A text names the component, the values involved
// and a valid alternative: `[matmul] a (4, 5) x b (4, 7): inner sizes 5 and 4 differ`.
#pragma once

#include <concepts>
#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/api.h"

namespace lmx {

// Base class. The text is a complete message that a caller can print.
class LMX_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

// The user's input is wrong: a recipe, an argument, a file. Exit code 2, one message.
class LMX_API UserError : public Error {
 public:
  using Error::Error;
  ~UserError() override;
};

// The run failed for a reason outside the input: a full disk, divergence, a lost rank. Exit code 1.
class LMX_API RunError : public Error {
 public:
  using Error::Error;
  ~RunError() override;
};

// A broken invariant of lmx itself. Exit code 1; the text names file and line.
class LMX_API InternalError : public Error {
 public:
  using Error::Error;
  ~InternalError() override;
};

// An argument of str(). It erases the type, because thousands of calls would otherwise each compile a function of their
// own: the lengths of their literals differ.
class Streamed {
 public:
  template <class Text>
  requires std::convertible_to<const Text&, std::string_view> Streamed(const Text& text) : text_(text) {}
  template <class T>
  requires(!std::convertible_to<const T&, std::string_view>) Streamed(const T& value)
      : value_(&value), write_([](std::ostream& out, const void* v) { out << *static_cast<const T*>(v); }) {}
  LMX_API friend std::ostream& operator<<(std::ostream& out, const Streamed& argument);

 private:
  std::string_view text_;
  const void* value_ = nullptr;
  void (*write_)(std::ostream& out, const void* value) = nullptr;
};

LMX_API std::string joined_text(std::initializer_list<Streamed> arguments);

// All arguments streamed one after the other: str("[x] ", 3, " of ", shape).
template <class... Args>
std::string str(const Args&... args) {
  return joined_text({Streamed(args)...});
}

// A number with its noun: plural(1, "step") is "1 step", plural(3, "step") is "3 steps".
template <class Number>
std::string plural(Number n, const char* noun) {
  return str(n, " ", noun, n == 1 ? "" : "s");
}

[[noreturn]] LMX_API void check_failed(const char* expression, const char* file, int line, const std::string& text);

// The candidate nearest to `name` (edit distance), or "" if none is near enough.
LMX_API std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// ` (did you mean 'x'?)`, or "" if no candidate is near.
LMX_API std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lmx

// An invariant of lmx's own code. If it fails, lmx has a bug; the user made no error.
#define LMX_CHECK(condition, ...)         \
  (static_cast<bool>(condition) ? void(0) \
                                : ::lmx::check_failed(#condition, __FILE__, __LINE__, ::lmx::str(__VA_ARGS__)))

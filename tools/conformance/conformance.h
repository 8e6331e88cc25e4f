// `lmx plugins check`: what every plugin of a kind is held to, a line a check.
#pragma once

#include <functional>
#include <string>

#include "lmx/error.h"
#include "lmx/plugin.h"

namespace lmx_cli::check {

// A check was not passed; the text says what was seen and what was expected.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
template <class... Args>
[[noreturn]] void fail(const Args&... args) {
  throw Failed(lmx::str(args...));
}
// A check has nothing to look at here; the text says why.
struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Report {
 public:
  // `body` returns what was seen. A line on stdout at once, so that it is there if the next check crashes.
  void run(const std::string& name, const std::function<std::string()>& body);
  int failures() const { return failures_; }
  int passes() const { return passes_; }

 private:
  int failures_ = 0, passes_ = 0;
};

struct Subject {
  const lmx::PluginInfo& plugin;
  lmx::Node config;          // its subtree of a recipe, with `name`
  bool approximate = false;  // a strategy that does not promise the exact sum
};
void check_model(Report& report, const Subject& subject);
void check_sync(Report& report, const Subject& subject);
void check_batcher(Report& report, const Subject& subject);

// The line that tells the parent which check begins; it is not shown.
inline constexpr char kBegins = '\x01';

}  // namespace lmx_cli::check

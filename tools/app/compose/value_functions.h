// The values of an override besides a single value: a sweep, or a function of values and sweeps.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmx/config.h"

namespace lmx::config {

// A value, and its text in an override of one run: as typed, or generated if the value was computed.
struct Term {
  Node value;
  std::string text;
};

// Several values for one key: `1,2`, choice(1,2), range(3), glob(*); or all numbers of an interval: interval(0,1).
struct Sweep {
  enum class Kind { choice, glob, interval };  // a range is a choice of its numbers
  Kind kind = Kind::choice;
  std::string function;  // the function that made it; "" for `1,2`
  std::vector<Term> terms;
  std::vector<std::string> include, exclude;  // glob: over the options of a group
  double begin = 0, end = 0;                  // interval
  std::vector<std::string> tags;              // from tag(a, b, sweep): for programs that read the sweep
};

struct Parsed {
  Term term;
  std::vector<Sweep> sweep;  // one sweep, or empty for a single value
  bool is_sweep() const { return !sweep.empty(); }
};

struct Argument {
  std::string name;  // the name in `reverse=true`; "" for a positional argument
  Parsed value;
};

// int, float, str, bool, choice, range, interval, glob, sort, shuffle, tag.
const std::vector<std::string>& value_functions();
bool is_value_function(std::string_view name);

// Calls the function. Calls `fail`, which throws, with a description of the error if the call is wrong.
Parsed call_value_function(const std::string& name, const std::vector<Argument>& arguments,
                           const std::function<void(const std::string&)>& fail);

// The value as an override's text, which parses back to it.
std::string value_text(const Node& value);

// Whether `name` matches a glob pattern: `*`, `?`, [abc].
bool matches_glob(const std::string& name, const std::vector<std::string>& patterns);

}  // namespace lmx::config

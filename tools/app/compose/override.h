// Overrides of the command line, parsed: their keys, their values, and the functions and types of values.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/compose/compose.h"
#include "lmx/config.h"

namespace lmx::app {

// The values of an override besides a single value: a sweep, or a function of values and sweeps.

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

// Calls the function. Calls `fail`, which throws, with a description of the error if the call is wrong.
Parsed call_value_function(const std::string& name, const std::vector<Argument>& arguments,
                           const std::function<void(const std::string&)>& fail);

// The value as an override's text, which parses back to it.
std::string value_text(const Node& value);

// Whether `name` matches a glob pattern: `*`, `?`, [abc].
bool matches_glob(const std::string& name, const std::vector<std::string>& patterns);

struct Override {
  enum class Kind { set, add, force, remove };
  Kind kind = Kind::set;
  std::string key;                     // "a.b", or a group "model/attn"
  std::optional<std::string> package;  // of "group@package"
  std::optional<Node> value;           // absent for `~key` and for a sweep
  std::optional<Sweep> sweep;          // present if the override has several values
  std::string text;                    // as typed
  Mark mark;

  std::string body() const;                 // the text without its `+`, `++` or `~`
  std::string full_key() const;             // the prefixes, the key and the package: "+optim@enc"
  void put_at(const OverridePlace& place);  // marks the override as written in a file
};

// UserError if the override is a sweep: one run takes one value for each key.
void refuse_sweep(const Override& o);

// Parses an override. A UserError shows the override and the column of the error.
Override parse_override(const std::string& text);

// Parses a value in the grammar of overrides: 3, abc, 'a, b', [1, 2], {a: 1}, int(3.7).
Node parse_value(std::string_view value, const Mark& mark);

// Types of unquoted values on the command line, and the casts int(), float(), str(), bool().

// Converts null, booleans and numbers in Hydra's spelling (any case; inf, nan; `_` between digits) to YAML's spelling.
// Every other text becomes a string.
Node typed_scalar(const std::string& text, const Mark& mark);

// The text of a scalar's value, independent of how the value was written: 1e-4 gives 0.0001, 1_000 gives 1000, True
// gives true.
std::string text_of_value(const Node& scalar);

// Casts every scalar inside lists and maps. UserError, with the problem only, if a value cannot be cast to the type.
Node cast(const std::string& type, const Node& node);

// Returns whether two values are equal: 1e3 equals 1000.0, but the text '1' does not equal the number 1.
bool same_value(const Node& a, const Node& b);

}  // namespace lmx::app

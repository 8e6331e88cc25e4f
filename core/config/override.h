// One override of the command line, parsed: `key=value`, `+key=value`, `++key=value`, `~key`, `~key=value`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/value_functions.h"
#include "lmx/config.h"

namespace lmx::config {

struct Override {
  enum class Kind { set, add, force, remove };
  Kind kind = Kind::set;
  std::string key;                     // "a.b", or a group "model/attn"
  std::optional<std::string> package;  // of "group@package"
  std::optional<Node> value;           // absent in `~key`, and where there is a sweep
  std::optional<Sweep> sweep;          // several values
  std::string text;                    // as typed
  Mark mark;

  std::string body() const;                 // the text without its `+`, `++` or `~`
  std::string full_key() const;             // with them and the package: "+optim@enc"
  void put_at(const OverridePlace& place);  // it stands in a file
};

// UserError: one run takes one value for each key.
void refuse_sweep(const Override& o);

// UserError that shows the override and the column of the mistake.
Override parse_override(const std::string& text);

// A value in the grammar of overrides: 3, abc, 'a, b', [1, 2], {a: 1}, int(3.7).
Node parse_value(std::string_view value, const Mark& mark);

}  // namespace lmx::config

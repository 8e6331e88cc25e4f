// One override of the command line, parsed: `key=value`, `+key=value`, `++key=value`, `~key`, `~key=value`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "app/compose/compose.h"
#include "app/compose/value_functions.h"
#include "lmx/config.h"

namespace lmx::config {

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

}  // namespace lmx::config

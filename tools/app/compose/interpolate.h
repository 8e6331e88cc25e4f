// `${...}`: references to other values and resolvers such as oc.env.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/config.h"

namespace lmx::app {

// The values of `${lmx:...}`.
struct RunValues {
  std::string name;                                                        // job.name
  int64_t number = 0;                                                      // job.num
  std::string override_dirname;                                            // job.override_dirname
  std::map<std::string, std::string> choices;                              // runtime.choices.<group>
  std::function<std::optional<Node>(const std::string& path)> default_of;  // of a key that is not written; may be empty
};

// Returns the tree with every interpolation replaced. UserError: unknown name, cycle, reference to `???`, wrong syntax.
Node resolve_interpolations(const Node& root, const RunValues& run);
// Resolves one value that refers to no other value, such as ${oc.env:HOME}.
Node resolve_alone(const Node& value);

// The text of `${...}`: where it ends, its arguments, and what its reference means.

bool has_interpolation(const Node& node);
// The position after the '}' that closes the `${` at `begin`; npos if it is never closed. Braces in quotes do not
// count.
size_t end_of_interpolation(std::string_view text, size_t begin);
// Commas outside quotes, brackets and `${}` separate a resolver's arguments.
std::vector<std::string> split_arguments(std::string_view text);
// Returns whether the last character is a backslash that escapes the next character, and is not itself escaped.
bool ends_in_escape(std::string_view text);
// Replaces `\,` and the other escapes by the plain character. A backslash before any other character stays.
std::string without_escapes(std::string_view text);
// Returns the reference "a[0].b", or ".x" relative to `path`, as an absolute path such as "a.0.b"; nullopt if the
// reference leads above the root.
std::optional<std::string> absolute_path(std::string_view reference, const std::string& path);
// The node to which a single `${a.b}` at `path` refers. Null if `node` is anything else, or refers to nothing.
const Node* referred(const Node& root, const Node& node, std::string path);

// The functions that `${name:argument,...}` can call.

struct ResolverCall {
  std::vector<Node> arguments;  // scalars as written (interpolations inside them resolved); quotes removed
  Mark mark;
  std::string shown;    // "train.dir: ${oc.env:HOME}", for messages
  std::time_t now = 0;  // one value for the whole composition
  const RunValues* run = nullptr;
  // Returns the resolved node at an absolute path; null if it does not exist.
  std::function<const Node*(const std::string& path)> select;
};

// UserError if the resolver is unknown or its arguments are wrong.
Node call_resolver(const std::string& name, const ResolverCall& call);

}  // namespace lmx::app

// The text of `${...}`: where it ends, its arguments, and what its reference means.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/config.h"

namespace lmx::config {

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

}  // namespace lmx::config

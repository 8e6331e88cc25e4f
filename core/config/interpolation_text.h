// The text of `${...}`: where it ends, its arguments, and what its reference means.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/config.h"

namespace lmx::config {

bool has_interpolation(const Node& node);
// Behind the '}' that closes the `${` at `begin`; npos when it is never closed. Quotes hide braces.
size_t end_of_interpolation(std::string_view text, size_t begin);
// Commas outside quotes, brackets and `${}` separate a resolver's arguments.
std::vector<std::string> split_arguments(std::string_view text);
// Whether the last character is a backslash that escapes what follows, not one that is escaped itself.
bool ends_in_escape(std::string_view text);
// `\,` and the like as the plain character; a backslash in front of anything else stays.
std::string without_escapes(std::string_view text);
// "a[0].b", and ".x" at `path`, as "a.0.b" from the root; none above the root.
std::optional<std::string> absolute_path(std::string_view reference, const std::string& path);
// What a lone `${a.b}` at `path` stands for; null where `node` is anything else, or refers to nothing.
const Node* referred(const Node& root, const Node& node, std::string path);

}  // namespace lmx::config

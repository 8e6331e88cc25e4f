// The beginning of configuration errors, and small functions that several files of this folder share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmx/config.h"

namespace lmx::config {

// "recipes/x.yaml:12:3: model.cells: ", or "override 'model.cells=abc': " if the override already names the path.
std::string at(const Mark& mark, std::string_view path = {});

// The place of the key's value if the map has it, else that of the map.
const Mark& mark_of(const Node& map, std::string_view key);

// A map of a recipe, and its path.
struct Place {
  const Node& map;
  std::string path;
  // The beginning of a message about a key: mark_of() it, and the map's path. It names the key itself, which
  // place_of_key() puts into the path.
  std::string operator()(std::string_view key = {}) const;
};

// The place that a message about the key of `node` names.
const Mark& key_place(const Node& node);

std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");
// "model" + "cells" = "model.cells". If one of them is empty, returns the other.
std::string join_path(std::string_view parent, std::string_view child);
std::vector<std::string> split(std::string_view text, char separator);

// "a map", "a list", "null" or "'text'": describes the value that was found instead of the expected one.
std::string describe_value(const Node& node);
bool is_missing(const Node& node);  // `???`

// The shortest text that reads back to `value`, and always reads as a floating-point number ("1.0", "1e-05").
std::string double_text(double value);
// Returns whether the text is a digit string of any length, with an optional sign and single `_` between digits.
bool looks_like_int(std::string_view text);

// The text form of a typed config.

std::string range_text(const Range& range);  // ">= 1", "in (0, 1]", or "" for any value

}  // namespace lmx::config

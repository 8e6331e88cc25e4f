#include "values.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using lmx::Node;
using lmx::str;
using lmx::UserError;

constexpr int64_t kMostValues = 100'000;

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// At the commas that stand outside of brackets and quotes.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts{""};
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) {
      if (c == quote && text[i - 1] != '\\') quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else {
      depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    }
    if (c == ',' && depth == 0 && !quote && (i == 0 || text[i - 1] != '\\'))
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (std::string& part : parts) part = trimmed(part);
  return parts;
}

// What stands in the brackets of "name(...)"; nothing where it is no such call.
std::optional<std::vector<std::string>> arguments(const std::string& text, const std::string& name) {
  if (!text.starts_with(name + "(") || !text.ends_with(")")) return {};
  return split(text.substr(name.size() + 1, text.size() - name.size() - 2));
}

double number(const std::string& text, const std::string& override) {
  const auto value = lmx::parse_double(text);
  if (!value) throw UserError(str("override '", override, "': '", text, "' is no number"));
  return *value;
}

std::vector<std::string> range(const std::vector<std::string>& words, const std::string& override) {
  if (words.empty() || words.size() > 3)
    throw UserError(str("override '", override, "': range(stop), range(start,stop) or range(start,stop,step)"));
  const double start = words.size() > 1 ? number(words[0], override) : 0;
  const double stop = number(words[words.size() > 1 ? 1 : 0], override);
  const double step = words.size() > 2 ? number(words[2], override) : 1;
  if (step == 0) throw UserError(str("override '", override, "': the step of a range is not 0"));
  std::vector<std::string> values;
  for (int64_t i = 0;; ++i) {
    const double value = start + static_cast<double>(i) * step;
    if (step > 0 ? value >= stop : value <= stop) break;
    if (i >= kMostValues) throw UserError(str("override '", override, "': more than ", kMostValues, " values"));
    char text[48];
    std::snprintf(text, sizeof text, "%.12g", value);
    values.emplace_back(text);
  }
  if (values.empty()) throw UserError(str("override '", override, "': the range is empty"));
  return values;
}

Values parse(const std::string& override) {
  Values v;
  const size_t equals = override.find('=');
  v.key = override.substr(0, equals);
  v.deletes = equals == std::string::npos;
  if (v.deletes) return v;
  std::string text = trimmed(override.substr(equals + 1));
  if (const auto tagged = arguments(text, "tag")) {
    v.tags.assign(tagged->begin(), tagged->end() - 1);
    text = tagged->back();
  }
  if (const auto ends = arguments(text, "interval")) {
    if (ends->size() != 2) throw UserError(str("override '", override, "': an interval is interval(low,high)"));
    v.interval = {number((*ends)[0], override), number((*ends)[1], override)};
  } else if (const auto choices = arguments(text, "choice")) {
    v.values = *choices;
  } else if (const auto words = arguments(text, "range")) {
    v.values = range(*words, override);
  } else {
    v.values = split(text);
  }
  return v;
}

std::vector<std::string> params(const std::string& recipe_file) {
  const Node file = lmx::parse_yaml_file(recipe_file);
  const Node* map = file.at_path("sweep.params");
  std::vector<std::string> overrides;
  if (!map || map->kind == Node::Kind::null) return overrides;
  if (map->kind != Node::Kind::map)
    throw UserError(str(to_string(map->mark), ": sweep.params: expected keys with their values, such as seed: [1, 2]"));
  for (const auto& [key, value] : map->entries) {
    std::string text = value.text;
    for (const Node& item : value.items) text += (text.empty() ? "" : ",") + item.text;
    overrides.push_back(key + "=" + text);
  }
  return overrides;
}

}  // namespace

std::vector<Values> read_values(const std::string& recipe_file, const lmx::ComposeOptions& options) {
  std::vector<std::string> overrides = params(recipe_file);
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  std::vector<Values> all;
  for (const std::string& text : overrides) {
    Values v = parse(text);
    const auto same = std::find_if(all.begin(), all.end(), [&](const Values& other) { return other.key == v.key; });
    if (same == all.end())
      all.push_back(std::move(v));
    else
      *same = std::move(v);
  }
  return all;
}

}  // namespace lmx_cli::sweeps

// Finds the origin of a recipe's values from the marks of its nodes, its `provenance`, and the comments in its files.
#include "app/run/schema.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "config/messages.h"
#include "recipe/recipe.h"

namespace lmx::app {
namespace {

// Returns the comment at the end of a line: after a '#' that follows white space and is not in quotes.
std::string trailing_comment(const std::string& line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quote) {
      quote = line[i] == quote ? 0 : quote;
    } else if (line[i] == '\'' || line[i] == '"') {
      quote = line[i];
    } else if (line[i] == '#' && i > 0 && (line[i - 1] == ' ' || line[i - 1] == '\t')) {
      const size_t begin = line.find_first_not_of("# \t", i);
      return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    }
  }
  return "";
}

// Returns the first key of a line: "lr" of "  - lr: 3"; "" if the line has none.
std::string first_key(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t-{[\"'");
  const size_t end = std::min(line.find_first_of(":,}]\"' \t", begin), line.size());
  const size_t colon = line.find_first_not_of("\"' \t", end);
  if (begin == std::string::npos || colon == std::string::npos || line[colon] != ':') return "";
  return line.substr(begin, end - begin);
}

class Comments {
 public:
  // Returns the comment beside the value at `path`. A comment belongs to the first key of its line: if that is a part
  // of the recipe with several values, as in `batch: {global: 8, micro: 4}  # ...`, the comment is returned for the
  // first of them only, with the part's name.
  std::string beside(const Mark& mark, const std::string& path) {
    const std::string line = line_at(mark), comment = trailing_comment(line);
    const std::string key = first_key(line);
    const std::vector<std::string> parts = config::split(path, '.');
    const std::string content = line.substr(0, line.find(" #"));
    const size_t comma = content.find(',');
    const bool one_value = comma == std::string::npos || content.find_first_not_of(", \t", comma) == std::string::npos;
    if (comment.empty() || key.empty() || parts.back() == key || one_value) return comment;
    if (std::find(parts.begin(), parts.end(), key) == parts.end()) return "";
    return used_.insert({mark.file, mark.line}).second ? str(key, ": ", comment) : "";
  }

 private:
  std::string line_at(const Mark& mark) {
    if (mark.line < 1) return "";
    auto [it, is_new] = files_.try_emplace(mark.file);
    if (is_new) {
      std::ifstream in(mark.file);
      for (std::string line; std::getline(in, line);) it->second.push_back(line);
    }
    const auto n = static_cast<size_t>(mark.line);
    return n <= it->second.size() ? it->second[n - 1] : "";
  }

  std::map<std::string, std::vector<std::string>> files_;
  std::set<std::pair<std::string, int>> used_;  // lines whose comment was returned for a part of the recipe
};

// The order in which files and overrides apply. Later ones have larger numbers.
class Order {
 public:
  explicit Order(const std::vector<MergedFile>& files) : last_(files.size()) {
    std::map<std::string, size_t> place;
    for (size_t i = 0; i < files.size(); ++i) place[files[i].file] = i;
    for (const MergedFile& f : files) {
      size_t& turn = turns_[f.file];
      turn = std::max(turn, place[f.file]);
      for (const Mark& mark : f.chosen_by) {  // a chosen option counts as late as the override that chose it
        const auto file = place.find(mark.file);
        turn = std::max(turn, file == place.end() ? last_ : file->second);
      }
    }
  }
  size_t of(const Mark& mark) const {
    const auto turn = turns_.find(mark.file);
    return turn == turns_.end() ? last_ + 1 : turn->second;
  }

 private:
  std::map<std::string, size_t> turns_;
  size_t last_;  // number of the command line's choices of options; values on the command line come later
};

// Returns the key of `provenance`, and the remark, of the entry that names `path` or the smallest part of the recipe
// that contains it. `given`: the value as a file or an override gives it; null for a default.
std::string provenance_of(const Node& provenance, const std::string& path, const Node* given, const Order& order) {
  std::string best;
  size_t length = 0;
  for (const auto& [key, list] : provenance.entries) {
    for (const Node& item : list.items) {
      const std::string named = item.text.substr(0, item.text.find(' '));  // "checkpoint.every (an epoch)"
      const bool covers = path == named || (given && path.starts_with(named + "."));
      if (!covers || named.size() < length) continue;
      if (given && order.of(given->mark) > order.of(item.mark)) continue;  // the entry refers to an earlier value
      length = named.size();
      const size_t remark = item.text.find(' ');
      best = key + (remark == std::string::npos ? "" : item.text.substr(remark));
    }
  }
  return best;
}

class Explanation {
 public:
  Explanation(const Node& composed, const Node& full, const std::vector<MergedFile>& files)
      : composed_(composed), full_(full), order_(files) {
    if (const Node* p = composed.find("provenance")) provenance_ = *p;
  }

  std::vector<ValueOrigin> run() {
    for (const auto& [key, value] : full_.entries)
      if (key != "provenance") walk(value, key);
    return std::move(values_);
  }

 private:
  void walk(const Node& node, const std::string& path) {
    if (node.kind == Node::Kind::map && !node.entries.empty()) {
      for (const auto& [key, value] : node.entries) walk(value, config::join_path(path, key));
      return;
    }
    const Node* given = composed_.at_path(path);
    if (given && given->mark.file.empty()) given = nullptr;
    ValueOrigin v;
    v.path = path;
    v.value = text_of(node);
    v.origin = given ? to_string(given->mark) : default_of(path);
    v.provenance = provenance_of(provenance_, path, given, order_);
    v.comment = given ? comments_.beside(given->mark, path) : "";
    values_.push_back(std::move(v));
  }

  static std::string text_of(const Node& node) {
    if (node.kind != Node::Kind::scalar && !node.items.empty() && node.items[0].kind == Node::Kind::map)
      return to_json(node);
    std::string text = to_yaml(node);
    text.resize(text.find_last_not_of('\n') + 1);
    return text;
  }

  // Names the component that defines the default.
  std::string default_of(const std::string& path) const {
    const std::vector<std::string> parts = config::split(path, '.');
    const Node* part = full_.find(parts[0]);
    const Node* name = part ? part->find("name") : nullptr;
    const Node* rule = part && parts.size() > 1 ? part->find(parts[1]) : nullptr;
    if (rule && parts[0] == "sync") name = rule->find("strategy");
    if (rule && parts[0] == "optimizer" && !name) name = rule->find("name");
    if (!name || name->kind != Node::Kind::scalar) return "default of lmx";
    return str("default of ", parts[0], " ", name->text);
  }

  const Node& composed_;
  const Node& full_;
  Order order_;
  Node provenance_;
  Comments comments_;
  std::vector<ValueOrigin> values_;
};

}  // namespace

std::vector<ValueOrigin> explain_recipe(const Node& composed, const std::string& name,
                                        const std::vector<MergedFile>& files) {
  const Node full = full_recipe(composed, name);
  return Explanation(composed, full, files).run();
}

}  // namespace lmx::app

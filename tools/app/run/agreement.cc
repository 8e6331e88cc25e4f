#include "app/run/agreement.h"

#include <algorithm>
#include <optional>

#include "lmx/config.h"

namespace lmx::app {
namespace {

// Encodes as "6:recipe120:...", with lengths first, so that a text may contain anything.
std::string packed(const std::vector<Agreed>& items) {
  std::string out;
  for (const Agreed& item : items)
    for (const std::string* text : {&item.what, &item.text}) out += std::to_string(text->size()) + ":" + *text;
  return out;
}

std::vector<Agreed> unpacked(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t colon = text.find(':', at);
    const size_t length = std::stoul(text.substr(at, colon - at));
    words.push_back(text.substr(colon + 1, length));
    at = colon + 1 + length;
  }
  std::vector<Agreed> items;
  for (size_t i = 0; i + 1 < words.size(); i += 2) items.push_back({words[i], words[i + 1]});
  return items;
}

std::optional<Node> as_map(const std::string& text) {
  try {
    Node node = parse_yaml(text, "");
    if (node.kind == Node::Kind::map) return node;
  } catch (const Error&) {
  }
  return std::nullopt;
}

bool equal(const Node& a, const Node& b) {
  return to_yaml(a) == to_yaml(b);
}

// Returns a value on one line: a scalar unchanged; a list or map as JSON if it is short, otherwise by its kind.
std::string shown(const Node* node) {
  if (!node) return "not given";
  if (node->kind == Node::Kind::null) return "null";
  if (node->kind == Node::Kind::scalar) return node->text.empty() ? "''" : node->text;
  std::string text = to_json(*node);
  return text.size() <= 60 ? text : node->kind == Node::Kind::map ? "another map" : "another list";
}

// Returns the first difference, depth first: "optimizer.lr is 0.1 there, 0.2 on rank 0".
std::string difference(const Node& there, const Node& here, const std::string& path) {
  std::vector<std::string> keys = here.keys();
  for (const std::string& key : there.keys())
    if (!here.find(key)) keys.push_back(key);
  for (const std::string& key : keys) {
    const Node *a = there.find(key), *b = here.find(key);
    if (a && b && equal(*a, *b)) continue;
    const std::string place = path.empty() ? key : path + "." + key;
    if (a && b && a->kind == Node::Kind::map && b->kind == Node::Kind::map) return difference(*a, *b, place);
    return str(place, " is ", shown(a), " there, ", shown(b), " on rank 0");
  }
  return "the order of keys differs";
}

std::string difference(const std::string& there, const std::string& here) {
  const std::optional<Node> a = as_map(there), b = as_map(here);
  if (a && b) return difference(*a, *b, "");
  const auto cut = [](const std::string& text) { return text.size() <= 200 ? text : text.substr(0, 200) + "..."; };
  return str(cut(there), " there, ", cut(here), " on rank 0");
}

const Agreed* find(const std::vector<Agreed>& items, const std::string& what) {
  const auto found = std::find_if(items.begin(), items.end(), [&](const Agreed& a) { return a.what == what; });
  return found == items.end() ? nullptr : &*found;
}

// Returns the first difference; "" if there is none.
std::string compare(int rank, const std::vector<Agreed>& there, const std::vector<Agreed>& here) {
  for (const Agreed& item : here) {
    const Agreed* other = find(there, item.what);
    if (!other) return str("rank ", rank, " has no ", item.what, ", rank 0 has");
    if (other->text != item.text)
      return str("rank ", rank, " runs another ", item.what, ": ", difference(other->text, item.text));
  }
  for (const Agreed& item : there)
    if (!find(here, item.what)) return str("rank ", rank, " has a ", item.what, ", rank 0 has none");
  return "";
}

}  // namespace

void check_equal_everywhere(Communicator& comm, const std::vector<Agreed>& own) {
  const std::vector<std::string> all = comm.gather_texts(packed(own), "control");
  const std::vector<Agreed> first = unpacked(all.at(0));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::string text = compare(static_cast<int>(rank), unpacked(all[rank]), first);
    if (!text.empty())
      throw UserError(str("[comm] ", text, "; every rank must be started with the same command line, files and build"));
  }
}

}  // namespace lmx::app

#include "app/compose/sources.h"

#include <algorithm>

#include "app/compose/interpolate.h"
#include "app/compose/override.h"
#include "config/messages.h"

namespace lmx::config {
namespace {

// The child that `part` names: a map's key or a list's index. Null if it does not exist.
Node* child(Node& node, const std::string& part) {
  return part.empty() ? nullptr : node.at_path(part);
}

// The keys of a map that an override can name: a dot divides an override's key, so a key that contains one is left out.
std::vector<std::string> named_keys(const Node& parent) {
  std::vector<std::string> keys = parent.keys();
  std::erase_if(keys, [](const std::string& key) { return key.find('.') != std::string::npos; });
  return keys;
}

std::string list_of_keys(const Node& parent, const std::string& path) {
  if (parent.kind == Node::Kind::list) return str("; ", path, " has ", parent.items.size(), " items, counted from 0");
  if (parent.kind != Node::Kind::map)
    return str("; ", path, " is ", describe_value(parent), " (", to_string(parent.mark), ")");
  const std::vector<std::string> keys = named_keys(parent);
  if (keys.empty()) return "";
  return str("; keys of ", path.empty() ? "the recipe" : path, ": ", join(keys));
}

[[noreturn]] void fail_unknown(const Override& o, const std::string& key, const Node& parent, const std::string& path,
                               const std::string& part, const ApplyRules& rules) {
  std::vector<std::string> candidates = named_keys(parent);
  if (path.empty() && rules.groups) {
    const std::vector<std::string> groups = rules.groups();
    candidates.insert(candidates.end(), groups.begin(), groups.end());
  }
  const std::string near = nearest(part, candidates);
  const std::string hint = near.empty() ? "" : str(" (did you mean '", join_path(path, near), "'?)");
  const bool can_add =
      o.kind == Override::Kind::set && parent.kind != Node::Kind::list && parent.kind != Node::Kind::scalar;
  throw UserError(str(at(o.mark), "no key '", key, "'", hint, list_of_keys(parent, path),
                      can_add ? str("; +", o.body(), " adds it") : ""));
}

// The map or list that contains the last part of o.key. Missing maps on the path are created if the override may add
// keys.
Node& parent_of(Node& root, const Override& o, const std::vector<std::string>& parts, const ApplyRules& rules) {
  const bool may_create = o.kind == Override::Kind::add || o.kind == Override::Kind::force ||
                          (rules.typed && o.kind == Override::Kind::set);
  Node* node = &root;
  std::string path;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    Node* next = child(*node, parts[i]);
    const bool container = node->kind == Node::Kind::map || node->kind == Node::Kind::null;
    if (!next && may_create && container) next = &node->set(parts[i], Node::map(o.mark));
    if (!next) fail_unknown(o, o.key, *node, path, parts[i], rules);
    node = next;
    path = join_path(path, parts[i]);
  }
  const bool empty = node->kind == Node::Kind::null || is_missing(*node);
  if (empty && may_create) *node = Node::map(o.mark);
  if (node->kind != Node::Kind::map && node->kind != Node::Kind::list)
    fail_unknown(o, o.key, *node, path, parts.back(), rules);
  return *node;
}

void remove(Node& parent, const Override& o, const std::string& part) {
  const Node& there = *child(parent, part);
  if (o.value && !same_value(there, *o.value))
    throw UserError(str(at(o.mark), "'", o.key, "' is ", value_text(there), ", not ", value_text(*o.value)));
  if (parent.kind == Node::Kind::list)
    throw UserError(str(at(o.mark), "items of a list cannot be removed; set the whole list"));
  parent.erase(part);
}

// A list that replaces a map, or a map that replaces a list, is probably a mistake: an override that first sets `null`
// shows that it is intended.
void check_containers(const Node& there, const Node& value, const std::string& path) {
  const auto clash = [&](Node::Kind a, Node::Kind b) { return there.kind == a && value.kind == b; };
  if (!clash(Node::Kind::map, Node::Kind::list) && !clash(Node::Kind::list, Node::Kind::map)) return;
  throw UserError(str(at(value.mark), "'", path, "' is ", describe_value(there), " (", to_string(there.mark),
                      "), which ", describe_value(value), " cannot replace"));
}

// Without +, a map's literal may only set existing keys: `optim={lrr: 1}` must not add a key.
void check_keys(const Node& there, const Node& value, const Override& o, const std::string& path,
                const ApplyRules& rules) {
  if (there.kind != Node::Kind::map || value.kind != Node::Kind::map) return;
  for (const auto& [key, item] : value.entries) {
    const Node* known = there.find(key);
    if (!known) fail_unknown(o, join_path(path, key), there, path, key, rules);
    check_keys(*known, item, o, join_path(path, key), rules);
  }
}

}  // namespace

void merge(Node& into, const Node& from, const std::string& path, const Node* root) {
  if (root && from.kind == Node::Kind::map) {
    // A map that is merged over a single `${a}` changes a copy of the map to which the reference points.
    const Node* target = referred(*root, into, path);
    if (target && target->kind == Node::Kind::map) {
      const Mark key_mark = into.key_mark;
      into = Node(*target);
      into.key_mark = key_mark;
    }
  }
  if (into.kind == Node::Kind::map && from.kind == Node::Kind::map) {
    for (const auto& [key, value] : from.entries) {
      if (Node* there = into.find(key)) {
        merge(*there, value, join_path(path, key), root);
      } else {
        into.entries.emplace_back(key, value);
      }
    }
  } else if (!is_missing(from)) {
    check_containers(into, from, path);
    into = from;
  }
}

void merge_at(Node& root, const std::string& package, const Node& from) {
  if (package.empty()) return merge(root, from, "", &root);
  const std::vector<std::string> parts = split(package, '.');
  Node wrapped = from;  // a.b: {a: {b: from}}
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    Node outer = Node::map(from.mark);
    outer.set(*part, std::move(wrapped));
    wrapped = std::move(outer);
  }
  merge(root, wrapped, "", &root);
}

void apply_override(Node& root, const Override& o, const ApplyRules& rules) {
  const std::vector<std::string> parts = split(o.key, '.');
  Node& parent = parent_of(root, o, parts, rules);
  const std::string& last = parts.back();
  Node* there = child(parent, last);
  const std::string parent_path = join({parts.begin(), parts.end() - 1}, ".");
  const bool adds = o.kind == Override::Kind::add || o.kind == Override::Kind::force ||
                    (rules.typed && o.kind == Override::Kind::set);
  if (!there && (!adds || parent.kind == Node::Kind::list)) fail_unknown(o, o.key, parent, parent_path, last, rules);
  if (o.kind == Override::Kind::remove) return remove(parent, o, last);
  if (!there) return void(parent.set(last, *o.value));
  const bool merges = there->kind == Node::Kind::map && o.value->kind == Node::Kind::map;
  const bool free = there->kind == Node::Kind::null || is_missing(*there) || merges ||
                    (there->kind == Node::Kind::list && o.value->kind == Node::Kind::list);
  if (o.kind == Override::Kind::add && !free)
    throw UserError(str(at(o.mark), "'", o.key, "' is there already (", to_string(there->mark), "); write ", o.body(),
                        " without +, or ++", o.body(), ", which adds or overrides"));
  if (merges && !adds) check_keys(*there, *o.value, o, o.key, rules);
  if (merges) {
    merge(*there, *o.value, o.key);
  } else {
    check_containers(*there, *o.value, o.key);
    *there = *o.value;
  }
}

}  // namespace lmx::config

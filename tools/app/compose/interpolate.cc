#include "app/compose/interpolate.h"

#include <algorithm>
#include <ctime>
#include <map>

#include "app/compose/override.h"
#include "config/messages.h"

namespace lmx::app {
namespace {

constexpr size_t kMaxText = size_t{1} << 20;
constexpr size_t kMaxNodes = 500'000;
constexpr size_t kMaxBytes = size_t{64} << 20;  // of all texts together
constexpr size_t kMaxDepth = 100;               // of references to references, and of ${} inside ${}
constexpr size_t kMaxReferences = 100;          // longest chain of references

// Collects the paths of the tree, up to a limit, as candidates for a suggestion. A reference cannot name a key that
// contains a dot.
void collect_paths(const Node& node, const std::string& path, std::vector<std::string>& paths) {
  constexpr size_t kEnough = 5000;
  if (paths.size() >= kEnough) return;
  if (!path.empty()) paths.push_back(path);
  for (const auto& [key, value] : node.entries)
    if (key.find('.') == std::string::npos) collect_paths(value, config::join_path(path, key), paths);
}

class Resolution {
 public:
  Resolution(const Node& root, const RunValues& run) : root_(root), run_(run), now_(std::time(nullptr)) {}

  // `path`: the node's path, to which relative references refer.
  Node resolve(const Node& node, const std::string& path) {
    spend(1, node.text.size(), node.mark, path);
    if (has_interpolation(node)) return resolve_scalar(node, path);
    Node result;
    result.kind = node.kind;
    result.text = node.text;
    result.quoted = node.quoted;
    result.mark = node.mark;
    result.key_mark = node.key_mark;
    for (size_t i = 0; i < node.items.size(); ++i)
      result.items.push_back(resolve(node.items[i], config::join_path(path, std::to_string(i))));
    for (const auto& [key, value] : node.entries)
      result.entries.emplace_back(key, resolve(value, config::join_path(path, key)));
    return result;
  }

 private:
  // A value that is being resolved; used to find cycles and to name the place in messages.
  struct Site {
    const Node* node;
    std::string path;
  };

  // Limits the size of the result: a few lines of interpolations can expand to more than memory holds.
  void spend(size_t nodes, size_t bytes, const Mark& mark, const std::string& path) {
    nodes_ += nodes;
    bytes_ += bytes;
    if (nodes_ > kMaxNodes)
      throw UserError(str(config::at(mark, path), "interpolations expand to more than ", kMaxNodes, " values"));
    if (bytes_ > kMaxBytes)
      throw UserError(
          str(config::at(mark, path), "interpolations expand to more than ", kMaxBytes >> 20, " MiB of text"));
  }
  void spend_copy(const Node& node, const Site& site) {
    spend(1, node.text.size(), site.node->mark, site.path);
    for (const Node& item : node.items) spend_copy(item, site);
    for (const auto& entry : node.entries) spend_copy(entry.second, site);
  }

  [[noreturn]] void fail(const Site& site, const std::string& problem) const {
    throw UserError(str(config::at(site.node->mark, site.path), problem));
  }

  Node resolve_scalar(const Node& node, const std::string& path) {
    const Site site{&node, path};
    const auto again = std::find(active_.begin(), active_.end(), path);
    if (again != active_.end())
      fail(site,
           str("interpolations go round in a circle: ", config::join({again, active_.end()}, " -> "), " -> ", path));
    active_.push_back(path);
    Node result = expand(node.text, site);
    active_.pop_back();
    result.mark = node.mark;
    result.key_mark = node.key_mark;
    return result;
  }

  // Expands a text with interpolations. A text that is a single `${...}` keeps the type of the value that it refers to.
  Node expand(std::string_view text, const Site& site) {
    if (++depth_ > kMaxDepth) fail(site, str("interpolations nested deeper than ", kMaxDepth, " levels"));
    Node result = expand_at_depth(text, site);
    --depth_;
    return result;
  }

  Node expand_at_depth(std::string_view text, const Site& site) {
    if (text.starts_with("${") && end_of_interpolation(text, 0) == text.size())
      return evaluate(text.substr(2, text.size() - 3), site);
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const size_t run_end = std::min(text.find_first_not_of('\\', i), text.size());
      const size_t backslashes = run_end - i;
      if (!text.substr(run_end).starts_with("${")) {
        out.append(text.substr(i, std::max<size_t>(backslashes, 1)));
        i += std::max<size_t>(backslashes, 1);
        continue;
      }
      // Backslashes before `${` escape it, and each other.
      out.append(backslashes / 2, '\\');
      if (backslashes % 2) {
        out += "${";
        i = run_end + 2;
        continue;
      }
      const size_t end = end_of_interpolation(text, run_end);
      if (end == std::string_view::npos)
        fail(site, str("'", text.substr(run_end), "': '${' is never closed by '}'; write \\${ for the plain text"));
      out += text_of(evaluate(text.substr(run_end + 2, end - run_end - 3), site), site,
                     text.substr(run_end, end - run_end));
      if (out.size() > kMaxText) fail(site, str("interpolations make a text of more than ", kMaxText, " characters"));
      i = end;
    }
    spend(0, out.size(), site.node->mark, site.path);
    return Node::string(std::move(out), site.node->mark);
  }

  std::string text_of(const Node& value, const Site& site, std::string_view shown) const {
    if (value.kind == Node::Kind::null) return "null";
    if (value.kind == Node::Kind::scalar) return text_of_value(value);
    fail(site, str(shown, " is ", config::describe_value(value), ", which cannot be part of a text"));
  }

  // The inside of `${...}`: a resolver call or a reference.
  Node evaluate(std::string_view inside, const Site& site) {
    inside.remove_prefix(std::min(inside.find_first_not_of(' '), inside.size()));
    const size_t name_end =
        inside.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    if (name_end != std::string_view::npos && name_end > 0 && inside[name_end] == ':')
      return call(std::string(inside.substr(0, name_end)), inside.substr(name_end + 1), site, inside);
    std::string reference =
        inside.find("${") == std::string_view::npos ? std::string(inside) : text_of(expand(inside, site), site, inside);
    return refer(reference, site);
  }

  Node call(const std::string& name, std::string_view arguments, const Site& site, std::string_view inside) {
    ResolverCall call;
    call.mark = site.node->mark;
    call.shown = str(site.path, site.path.empty() ? "${" : ": ${", inside, "}");
    call.now = now_;
    call.run = &run_;
    call.select = [&](const std::string& path) { return find(absolute(path, site), site); };
    // A time format may contain commas; it is the only argument of `now`.
    const std::vector<std::string> texts =
        name == "now" ? std::vector<std::string>{std::string(arguments)} : split_arguments(arguments);
    for (const std::string& text : texts) call.arguments.push_back(argument(text, site));
    if (texts.size() == 1 && texts[0].empty()) call.arguments.clear();
    Node result = call_resolver(name, call);
    if (name == "oc.decode") result = resolve_inside(std::move(result), site);  // `${oc.env:X}` may hold a reference
    spend_copy(result, site);
    return result;
  }

  Node argument(const std::string& text, const Site& site) {
    const bool in_quotes = text.size() >= 2 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0];
    if (in_quotes || text.starts_with("[") || text.starts_with("{"))
      return resolve_inside(parse_value(text, site.node->mark), site);
    if (text.find("${") != std::string::npos) return expand(text, site);
    const std::string plain = without_escapes(text);
    return plain == text ? typed_scalar(text, site.node->mark) : Node::string(plain, site.node->mark);
  }

  // Resolves a value that was parsed from an argument, or returned by oc.decode.
  Node resolve_inside(Node node, const Site& site) {
    if (has_interpolation(node)) return expand(node.text, site);
    for (Node& item : node.items) item = resolve_inside(std::move(item), site);
    for (auto& entry : node.entries) entry.second = resolve_inside(std::move(entry.second), site);
    return node;
  }

  std::string absolute(const std::string& reference, const Site& site) const {
    const auto path = absolute_path(reference, site.path);
    if (!path) fail(site, str("${", reference, "} goes above the root of the recipe"));
    return *path;
  }

  Node refer(std::string reference, const Site& site) {
    reference.resize(reference.find_last_not_of(' ') + 1);
    if (reference.empty() || reference.find_first_of(" \t{}") != std::string::npos)
      fail(site, str("${", reference, "} is no reference; expected ${a.b} or ${resolver:argument}"));
    const std::string path = absolute(reference, site);
    const Node* target = find(path, site);
    if (!target && run_.default_of)
      if (const auto value = run_.default_of(path)) return *value;
    if (!target) {
      std::vector<std::string> paths;
      collect_paths(root_, "", paths);
      fail(site, str("${", reference, "}: no key '", path, "'", did_you_mean(path, paths)));
    }
    if (config::is_missing(*target))
      fail(site, str("${", reference, "} needs '", path, "', which is not given; set ", path, "=..."));
    spend_copy(*target, site);
    return *target;
  }

  // The resolved node at an absolute path; null if it does not exist. A value on the path is resolved first if it is
  // itself an interpolation.
  const Node* find(const std::string& path, const Site& site) {
    const Node* node = &root_;
    bool resolved = false;
    std::string walked;
    for (const std::string& part : path.empty() ? std::vector<std::string>() : config::split(path, '.')) {
      if (!resolved && has_interpolation(*node)) {
        node = &resolved_at(walked, *node);
        resolved = true;
      }
      node = part.empty() ? nullptr : node->at_path(part);
      if (!node) return nullptr;
      walked = config::join_path(walked, part);
    }
    if (resolved) return node;
    check_not_inside(walked, site);
    return &resolved_at(walked, *node);
  }

  // Each path is resolved once, however many references name it.
  const Node& resolved_at(const std::string& path, const Node& node) {
    const auto known = resolved_.find(path);
    return known != resolved_.end() ? known->second : resolved_.emplace(path, resolve(node, path)).first->second;
  }

  // `a: {b: ${a}}` would contain itself.
  void check_not_inside(const std::string& target, const Site& site) const {
    if (target.empty() || site.path.starts_with(target + "."))
      fail(site, str("refers to ", target.empty() ? "the whole recipe" : str("'", target, "'"), ", which holds it"));
  }

  const Node& root_;
  const RunValues& run_;
  std::time_t now_;
  std::vector<std::string> active_;       // paths being resolved, outermost first
  std::map<std::string, Node> resolved_;  // resolved values of references, by absolute path
  size_t nodes_ = 0, bytes_ = 0, depth_ = 0;
};

}  // namespace

Node resolve_interpolations(const Node& root, const RunValues& run) {
  return Resolution(root, run).resolve(root, "");
}

Node resolve_alone(const Node& value) {
  const Node root = Node::map(value.mark);
  const RunValues run;
  return Resolution(root, run).resolve(value, "");
}

bool ends_in_escape(std::string_view text) {
  const size_t last = text.find_last_not_of('\\');
  return (text.size() - (last == std::string_view::npos ? 0 : last + 1)) % 2 == 1;
}

bool has_interpolation(const Node& node) {
  return node.kind == Node::Kind::scalar && node.text.find("${") != std::string::npos;
}

size_t end_of_interpolation(std::string_view text, size_t begin) {
  size_t depth = 0;
  char quote = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '\'' || c == '"')
      quote = c;
    else if (c == '{' || c == '[')
      ++depth;
    else if (c == '}' || c == ']')
      --depth;
    if (c == ',' && depth == 0 && !quote) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
    if (c == '\\' && i + 1 < text.size()) parts.back() += text[++i];  // `\,` separates nothing
  }
  for (std::string& part : parts) {
    const size_t begin = std::min(part.find_first_not_of(' '), part.size());
    size_t end = part.find_last_not_of(' ') + 1;
    if (end < part.size() && ends_in_escape(std::string_view(part).substr(begin, end - begin))) ++end;
    part = part.substr(begin, end - begin);
  }
  return parts;
}

std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escapes = text[i] == '\\' && i + 1 < text.size() &&
                         std::string_view("\\()[]{}:=, \t").find(text[i + 1]) != std::string_view::npos;
    out += text[escapes ? ++i : i];
  }
  return out;
}

std::optional<std::string> absolute_path(std::string_view reference, const std::string& path) {
  std::string dotted;  // a[0].b as a.0.b; before `[a]`, and after the dots of `..[0]`, no dot is inserted
  for (const char c : reference) {
    if (c == '[' && !dotted.empty() && dotted.back() != '.') dotted += '.';
    if (c != '[' && c != ']') dotted += c;
  }
  if (!dotted.starts_with(".")) return dotted;
  const size_t dots = std::min(dotted.find_first_not_of('.'), dotted.size());
  std::vector<std::string> base = config::split(path, '.');
  if (dots > base.size()) return std::nullopt;
  base.resize(base.size() - dots);
  return config::join_path(config::join(base, "."), dotted.substr(dots));
}

const Node* referred(const Node& root, const Node& node, std::string path) {
  const Node* target = &node;
  for (size_t depth = 0; depth < kMaxReferences && has_interpolation(*target); ++depth) {
    const std::string_view text = target->text;
    const bool lone = text.starts_with("${") && end_of_interpolation(text, 0) == text.size();
    const std::string_view reference = lone ? text.substr(2, text.size() - 3) : "";
    if (reference.empty() || reference.find_first_of(":{ ") != std::string_view::npos) return nullptr;
    const auto absolute = absolute_path(reference, path);
    target = absolute ? root.at_path(*absolute) : nullptr;
    if (!target) return nullptr;
    path = *absolute;
  }
  return target == &node ? nullptr : target;
}

}  // namespace lmx::app

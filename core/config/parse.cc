// Parses YAML into nodes with yaml-cpp's event interface. yaml-cpp's own tree does not report errors that matter here:
// it keeps duplicate keys, reads a wrong indentation as a second document, and closes quotes at the end of the file.
// The builder therefore checks the events against the source text.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "base/text.h"
#include "config/messages.h"
#include "config/source_text.h"

namespace lmx {
namespace {

using config::SourceText;

constexpr size_t kMaxDepth = 100;
constexpr size_t kMaxNodes = 200'000;  // each alias counts as all nodes to which it expands

size_t count_nodes(const Node& node) {
  size_t n = 1;
  for (const Node& item : node.items) n += count_nodes(item);
  for (const auto& entry : node.entries) n += count_nodes(entry.second);
  return n;
}

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kDigits = "0123456789_";

// 12:30 and 1:02:03.5, which YAML 1.1 reads as numbers to the base 60.
bool is_base_60(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == 0 || colon == std::string_view::npos || text[0] == '0' || !all_of(text.substr(0, colon), kDigits))
    return false;
  return all_of(text.substr(colon), "0123456789:._") && text.find("::") == std::string_view::npos && text.back() != ':';
}

// Describes how readers of YAML 1.1 and 1.2 differ in an unquoted scalar; "" if they agree.
std::string ambiguity(std::string_view text) {
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "yes" || word == "on") return "true to some readers of YAML and a text to others; write true";
  if (word == "no" || word == "off") return "false to some readers of YAML and a text to others; write false";
  if (text[0] == '-' || text[0] == '+') text.remove_prefix(1);
  const bool signed_text = text.size() != word.size();
  if (text.size() > 1 && text[0] == '0' && all_of(text, kDigits))
    return "octal to some readers of YAML and decimal to others; leave out the leading zero";
  const std::string_view prefix = text.substr(0, 2), rest = text.substr(std::min<size_t>(text.size(), 2));
  if ((prefix == "0o" || prefix == "0b") && all_of(rest, kDigits))
    return "a number to some readers of YAML and a text to others; write it as a decimal";
  if (signed_text && prefix == "0x" && all_of(rest, "0123456789abcdefABCDEF"))
    return "a number to some readers of YAML and a text to others; write it as a decimal";
  if (is_base_60(text)) return "a number to the base 60 to some readers of YAML and a text to others; write the number";
  return "";
}

// Converts a hexadecimal number such as 0x1F, which all readers accept, to a decimal.
std::string without_hex(const std::string& text) {
  if (!text.starts_with("0x") || !all_of(std::string_view(text).substr(2), "0123456789abcdefABCDEF")) return text;
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + 2, end, value, 16);
  return error == std::errc() && stop == end ? std::to_string(value) : text;
}

// yaml-cpp writes "\N" (U+0085) and "\_" (U+00A0) as one byte each.
std::string with_utf8(std::string text) {
  for (size_t at; (at = find_invalid_utf8(text)) != kValidUtf8;) text.insert(at, 1, '\xC2');
  return text;
}

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const SourceText& source) : source_(source) {}

  Node take() { return std::move(root_); }

  // Begin and end of each text in quotes.
  const std::vector<std::pair<size_t, size_t>>& quotes() const { return quotes_; }

  // The position of the innermost [ or { that is still open.
  std::optional<size_t> open_bracket() const {
    for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame)
      if (const char c = source_.text()[frame->pos]; frame->flow && (c == '[' || c == '{')) return frame->pos;
    return std::nullopt;
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const size_t pos = source_.skip_properties(mark.pos);
    const bool written = source_.starts_with_null(pos);
    if (!frames_.empty() && !written) {
      Frame& frame = frames_.back();
      if (frame.flow && frame.node.kind == Node::Kind::list)
        source_.fail(pos, "an empty list item (two commas in a row?)");
      if (frame.key && !source_.colon_follows(frame.key_pos, *frame.key))
        source_.fail(frame.key_pos, str("key '", *frame.key, "' has no value: ", suggested_key(*frame.key)));
    }
    Node node;
    // The mark of an empty value points to the token after it, so the place of its key is used.
    const bool use_key = !written && !frames_.empty() && frames_.back().key;
    node.mark = source_.mark(use_key ? frames_.back().key_pos : pos);
    add(std::move(node), pos, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto pos = static_cast<size_t>(mark.pos);
    if (wants_key()) source_.fail(pos, "an alias cannot be a key");
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) source_.fail(pos, "an alias inside the value that its own anchor names");
    nodes_ += count_nodes(it->second);
    check_size(source_.mark(pos));
    Node copy = it->second;
    copy.mark = source_.mark(pos);
    attach(std::move(copy));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const size_t pos = source_.skip_properties(mark.pos);
    const bool quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!quoted) check_tag(tag, pos);
    if (!source_.quote_closes(pos)) source_.fail(pos, "this quote is never closed");
    if (quoted) quotes_.emplace_back(pos, source_.end_of_quote(pos));
    if (const std::string why = quoted || wants_key() || value.empty() ? "" : ambiguity(value); !why.empty())
      source_.fail(pos, str("'", value, "' is ", why, ", or put it in quotes if it is a text"));
    Node node = Node::scalar(quoted        ? config::with_line_ends(source_, pos, with_utf8(value))
                             : wants_key() ? value
                                           : without_hex(value),
                             source_.mark(pos));
    node.quoted = quoted;
    add(std::move(node), pos, anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(Node::Kind::list, mark, tag, anchor, style);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(Node::Kind::map, mark, tag, anchor, style);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    Node node;
    YAML::anchor_t anchor = 0;
    bool flow = false;
    size_t pos = 0;
    std::optional<std::string> key;  // the key whose value comes next
    size_t key_pos = 0;
    Mark key_mark;
    std::set<std::string> seen;  // Node::find is linear
    bool merging = false;        // `key` is <<
    std::vector<Node> merged;    // the maps of `<<`; the first one that has a key wins
  };

  bool wants_key() const {
    return !frames_.empty() && frames_.back().node.kind == Node::Kind::map && !frames_.back().key;
  }

  static std::string suggested_key(const std::string& key) {
    if (key.find_first_not_of("0123456789") == std::string::npos)  // {lr: 0,004}
      return "a decimal number has a point and no comma";
    const size_t colon = key.find(':');
    return str("write '", key.substr(0, colon), ": ", colon == std::string::npos ? "value" : key.substr(colon + 1),
               "'");
  }

  void check_tag(const std::string& tag, size_t pos) const {
    if (!tag.empty() && tag != "?" && tag != "!")
      source_.fail(pos, str("the tag '", tag, "' is not supported; remove it"));
  }

  void check_size(const Mark& mark) const {
    if (nodes_ <= kMaxNodes) return;
    throw UserError(str(config::at(mark), "more than ", kMaxNodes, " values (aliases count as what they stand for)"));
  }

  void open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YAML::EmitterStyle::value style) {
    const size_t pos = source_.skip_properties(mark.pos);
    check_tag(tag, pos);
    if (wants_key()) source_.fail(pos, "a key must be a single word or a quoted text, not a list or map");
    if (frames_.size() >= kMaxDepth) source_.fail(pos, str("nested deeper than ", kMaxDepth, " levels"));
    Frame frame;
    frame.node.kind = kind;
    frame.node.mark = source_.mark(pos);
    frame.anchor = anchor;
    frame.pos = pos;
    frame.flow = style == YAML::EmitterStyle::Flow;
    frames_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    if (!frame.merged.empty()) merge(frame);
    finish(std::move(frame.node), frame.anchor);
  }

  // `<<: *base` (YAML's merge type): the keys of the bases come first. The map's own keys override those of a base, and
  // an earlier base overrides a later one.
  static void merge(Frame& frame) {
    std::vector<std::pair<std::string, Node>> entries;
    for (Node& map : frame.merged)
      for (auto& entry : map.entries)
        if (frame.seen.insert(entry.first).second) entries.push_back(std::move(entry));
    std::move(frame.node.entries.begin(), frame.node.entries.end(), std::back_inserter(entries));
    frame.node.entries = std::move(entries);
  }

  void keep_merged(Frame& frame, Node node) {
    if (node.kind == Node::Kind::list)
      frame.merged = std::move(node.items);
    else
      frame.merged.push_back(std::move(node));
    const auto is_map = [](const Node& n) { return n.kind == Node::Kind::map; };
    if (!std::all_of(frame.merged.begin(), frame.merged.end(), is_map))
      source_.fail(frame.key_pos, "<< takes a map, or a list of maps, whose keys this map is to have: <<: *base");
    frame.merging = false;
    frame.key.reset();
  }

  void add(Node node, size_t pos, YAML::anchor_t anchor) {
    if (!wants_key()) return finish(std::move(node), anchor);
    Frame& frame = frames_.back();
    if (node.kind == Node::Kind::null)
      source_.fail(pos, "a key is missing before ':', or is null; quote it if it is meant");
    frame.merging = node.text == "<<" && !node.quoted;
    if (frame.merging && !frame.merged.empty())
      source_.fail(pos, "<< is here twice; it takes a list of maps, too: <<: [*a, *b]");
    if (node.text.size() > config::kMaxKey)
      source_.fail(pos, str("a key of ", node.text.size(), " bytes; at most ", config::kMaxKey));
    if (!frame.merging && !frame.seen.insert(node.text).second) {
      const Mark& first = frame.node.find(node.text)->key_mark;
      source_.fail(pos, str("key '", node.text, "' is here twice; the first is at line ", first.line));
    }
    frame.key = node.text;
    frame.key_pos = pos;
    frame.key_mark = node.mark;
  }

  void finish(Node node, YAML::anchor_t anchor) {
    ++nodes_;
    check_size(node.mark);
    if (anchor) {
      // Each anchor stores a copy, so a node inside several anchors counts several times.
      nodes_ += count_nodes(node) - 1;
      check_size(node.mark);
      anchors_[anchor] = node;
    }
    attach(std::move(node));
  }

  void attach(Node node) {
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == Node::Kind::list) {
      frame.node.items.push_back(std::move(node));
    } else if (frame.merging) {
      keep_merged(frame, std::move(node));
    } else {
      node.key_mark = std::move(frame.key_mark);
      frame.node.entries.emplace_back(std::move(*frame.key), std::move(node));
      frame.key.reset();
    }
  }

  const SourceText& source_;
  Node root_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Node> anchors_;
  std::vector<std::pair<size_t, size_t>> quotes_;
  size_t nodes_ = 0;
};

// A file must contain one document. The start of any further content is sufficient to report the error.
class SecondDocument : public YAML::EventHandler {
 public:
  explicit SecondDocument(const SourceText& source) : source_(source) {}
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (source_.line_at(mark.pos).starts_with("---"))
      source_.fail(mark.pos, "a second document; a recipe is one document");
    config::fail_loose(source_, static_cast<size_t>(mark.pos));
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  const SourceText& source_;
};

}  // namespace

Node parse_yaml(std::string_view text, const std::string& file) {
  const SourceText source(text, file);
  std::istringstream stream(source.text());
  TreeBuilder builder(source);
  try {
    // At most two calls: yaml-cpp 0.7 can loop forever on a third.
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      SecondDocument rest(source);
      parser.HandleNextDocument(rest);
    }
  } catch (const YAML::Exception& error) {
    config::fail_syntax(source, error, builder.open_bracket());
  }
  config::check_directives(source, builder.quotes());
  Node root = builder.take();
  if (root.mark.line == 0) root.mark = {file, 1, 1};
  return root;
}

Node parse_yaml_file(const std::string& path) {
  return parse_yaml(config::read_text(path), path);
}

}  // namespace lmx

// Hydra's override grammar. Strings that look like no other type need no quotes; `\` escapes characters that would end
// a value.
#include "app/compose/override.h"

#include "app/compose/compose.h"

#include <algorithm>

#include "app/compose/interpolate.h"
#include "base/text.h"
#include "config/messages.h"
#include "config/source_text.h"

namespace lmx::app {
namespace {

constexpr std::string_view kBlank = " \t";
constexpr std::string_view kEscapable = "\\()[]{}:=, \t\"'";
constexpr std::string_view kEnding = ",=()[]{}'\"";
constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz_";
constexpr size_t kMostLevels = 100;
constexpr size_t kMaxMade = 100'000;  // one function makes up to 10,000 values of about twelve bytes

// "column 3: ", the column after `before` on the line; columns count characters.
std::string at_column(std::string_view before) {
  return str("column ", std::count_if(before.begin(), before.end(), [](char c) { return (c & 0xC0) != 0x80; }) + 1,
             ": ");
}

class ValueParser {
 public:
  // `before`: the text that the user typed before the value; it is needed to count columns.
  ValueParser(std::string_view text, Mark mark, std::string_view before)
      : text_(text), mark_(std::move(mark)), before_(before) {}

  // One value, or a sweep of several.
  Parsed parse() {
    skip_blanks();
    if (at_end()) return {{Node::string("", mark_), ""}, {}};
    Parsed first = term(false);
    skip_blanks();
    if (at_end()) return first;
    if (peek() == ',') return simple_sweep(std::move(first));
    if (peek() == '=') fail("a bare '=' in a value: quote the value or write \\=");
    fail(str("unexpected '", peek(), "' after the value; quote the value if it is one text"));
  }

 private:
  bool at_end() const { return pos_ >= text_.size(); }
  char peek() const { return text_[pos_]; }
  void skip_blanks() { pos_ = std::min(text_.find_first_not_of(kBlank, pos_), text_.size()); }

  [[noreturn]] void fail(const std::string& problem) const {
    throw UserError(str(config::at(mark_), at_column(str(before_, text_.substr(0, pos_))), problem));
  }

  // Parses `1,2,3`; the first value is already parsed.
  Parsed simple_sweep(Parsed first) {
    Sweep sweep;
    const auto add = [&](Parsed p) {
      if (p.is_sweep()) fail(str(p.sweep[0].function, "() among other values: a sweep cannot be a value of a sweep"));
      sweep.terms.push_back(std::move(p.term));
    };
    add(std::move(first));
    while (!at_end()) {
      if (peek() != ',') fail(str("expected ',' between the values of a sweep, got '", peek(), "'"));
      ++pos_;
      skip_blanks();
      if (at_end()) fail("a value is missing after the ','");
      add(term(false));
      skip_blanks();
    }
    return {{}, {sweep}};
  }

  Node element(bool in_container) {
    Parsed p = term(in_container);
    if (p.is_sweep()) fail(str(p.sweep[0].function, "() inside a list or map; a sweep is a whole value"));
    return std::move(p.term.value);
  }

  // Parses a value and stores its source text.
  Parsed term(bool in_container) {
    if (depth_ >= kMostLevels) fail(str("nested deeper than ", kMostLevels, " levels"));
    ++depth_;
    const size_t begin = pos_;
    Parsed p = term_at_depth(in_container);
    --depth_;
    if (p.is_sweep() || !p.term.text.empty()) return p;
    const std::string_view text = text_.substr(begin, pos_ - begin);
    // A trailing blank belongs to the value only if a backslash escapes it.
    const size_t end = text.find_last_not_of(kBlank) + 1;
    p.term.text = text.substr(0, end + (ends_in_escape(text.substr(0, end)) ? 1 : 0));
    return p;
  }

  Parsed term_at_depth(bool in_container) {
    if (at_end()) fail("a value is missing");
    switch (peek()) {
      case '[':
        return {{list(), ""}, {}};
      case '{':
        return {{map(), ""}, {}};
      case '\'':
      case '"':
        return {{Node::string(quoted(), mark_), ""}, {}};
      default:
        break;
    }
    const size_t name_end = std::min(text_.find_first_not_of(kNameLetters, pos_), text_.size());
    const size_t open = text_.find_first_not_of(kBlank, name_end);
    if (name_end > pos_ && open != std::string_view::npos && text_[open] == '(') return function(name_end, open);
    return {{primitive(in_container, false), ""}, {}};
  }

  Node list() {
    Node node = Node::list({}, mark_);
    read_items(']', [&] { node.items.push_back(element(true)); });
    return node;
  }

  Node map() {
    Node node = Node::map(mark_);
    read_items('}', [&] {
      const bool is_quoted = peek() == '\'' || peek() == '"';
      const std::string key = is_quoted ? quoted() : primitive(true, true).text;
      if (key.size() > config::kMaxKey) fail(str("a key of ", key.size(), " bytes; at most ", config::kMaxKey));
      skip_blanks();
      if (at_end() || peek() != ':') fail(str("expected ':' after the key '", key, "'"));
      ++pos_;
      skip_blanks();
      if (node.find(key)) fail(str("key '", key, "' is here twice"));
      node.set(key, element(true));
    });
    return node;
  }

  // Reads comma-separated items up to `close`. pos_ must be at the opening bracket.
  template <class ReadItem>
  void read_items(char close, const ReadItem& read_item) {
    const size_t open = pos_++;
    const auto fail_open = [&] {
      pos_ = open;
      fail(str("'", text_[open], "' is never closed by '", close, "'"));
    };
    skip_blanks();
    if (!at_end() && peek() == close) return void(++pos_);
    while (true) {
      skip_blanks();
      if (at_end()) fail_open();
      read_item();
      skip_blanks();
      if (at_end()) fail_open();
      const char c = text_[pos_++];
      if (c == close) return;
      if (c != ',') {
        --pos_;
        fail(str("expected ',' or '", close, "', got '", c, "'"));
      }
    }
  }

  std::string quoted() {
    const size_t open = pos_;
    const char quote = text_[pos_++];
    std::string out;
    for (; !at_end(); ++pos_) {
      const char c = peek();
      if (c == '\\' && pos_ + 1 < text_.size() && (text_[pos_ + 1] == quote || closes_behind_backslashes(quote))) {
        out += text_[++pos_];
      } else if (c == quote) {
        ++pos_;
        return out;
      } else {
        out += c;
      }
    }
    pos_ = open;
    fail("this quote is never closed");
  }

  // `\\` counts as one backslash only in a run of backslashes that ends at the quote; elsewhere ('C:\\dir') backslashes
  // stay.
  bool closes_behind_backslashes(char quote) const {
    const size_t end = text_.find_first_not_of('\\', pos_);
    return text_[pos_ + 1] == '\\' && end != std::string_view::npos && text_[end] == quote;
  }

  // Plain text up to a character that ends it.
  Node primitive(bool in_container, bool is_key) {
    std::string out;
    size_t kept = 0;  // blanks after this length are trailing
    bool escaped = false;
    while (!at_end()) {
      const char c = peek();
      if (c == '\\' && pos_ + 1 < text_.size() && kEscapable.find(text_[pos_ + 1]) != std::string_view::npos) {
        out += text_[pos_ + 1];
        kept = out.size();
        pos_ += 2;
        escaped = true;
        continue;
      }
      if (c == '$' && text_.substr(pos_).starts_with("${")) {
        out += interpolation();
        kept = out.size();
        continue;
      }
      if (kEnding.find(c) != std::string_view::npos || (is_key && c == ':')) break;
      out += c;
      ++pos_;
      if (kBlank.find(c) == std::string_view::npos) kept = out.size();
    }
    if (kept == 0 && (at_end() || std::string_view(",]}").find(peek()) != std::string_view::npos))
      fail("a value is missing");
    if (kept == 0) fail(str("'", peek(), "' where a value begins: quote the value or write \\", peek()));
    if (!at_end() && !in_container && peek() != ',' && peek() != '=')
      fail(str("'", peek(), "' in a plain value: quote the value or write \\", peek()));
    out.resize(kept);
    return escaped || is_key ? Node::string(out, mark_) : typed_scalar(out, mark_);
  }

  // `${...}` up to the matching brace, kept as text.
  std::string interpolation() {
    const size_t begin = pos_;
    size_t depth = 0;
    for (; !at_end(); ++pos_) {
      if (peek() == '{') ++depth;
      if (peek() == '}' && --depth == 0) return std::string(text_.substr(begin, ++pos_ - begin));
    }
    pos_ = begin;
    fail("'${' is never closed by '}'");
  }

  Parsed function(size_t name_end, size_t open) {
    const std::string name(text_.substr(pos_, name_end - pos_));
    const std::vector<std::string>& known = value_functions();
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(str("unknown function '", name, "'", did_you_mean(name, known), "; quote the value if it is a text"));
    const size_t begin = pos_;
    pos_ = open;
    std::vector<Argument> arguments;
    read_items(')', [&] {
      std::string keyword = argument_name();
      arguments.push_back({std::move(keyword), term(true)});
    });
    const auto fail_call = [&](const std::string& problem) {
      pos_ = begin;
      fail(problem);
    };
    Parsed made = call_value_function(name, arguments, fail_call);
    for (const Sweep& sweep : made.sweep) made_ += sweep.terms.size();
    if (made_ > kMaxMade) fail_call(str("more than ", kMaxMade, " values, all functions together"));
    return made;
  }

  // Parses the name in `reverse=` before an argument. Returns "" if the argument has no name.
  std::string argument_name() {
    const size_t end = std::min(text_.find_first_not_of(kNameLetters, pos_), text_.size());
    const size_t equals = text_.find_first_not_of(kBlank, end);
    if (end == pos_ || equals == std::string_view::npos || text_[equals] != '=') return "";
    std::string name(text_.substr(pos_, end - pos_));
    pos_ = equals + 1;
    skip_blanks();
    return name;
  }

  std::string_view text_;
  Mark mark_;
  std::string_view before_;
  size_t pos_ = 0, depth_ = 0;
  size_t made_ = 0;  // values made by ranges and choices so far
};

// UserError if the text is not UTF-8. It would be written into the run's config.yaml, which could then not be read.
void check_utf8(std::string_view text, const Mark& mark) {
  if (const size_t bad = find_invalid_utf8(text); bad != kValidUtf8)
    throw UserError(str(config::at(mark), at_column(text.substr(0, bad)), "not UTF-8 text"));
}

void mark_all(Node& node, const Mark& mark) {
  node.mark = mark;
  for (Node& item : node.items) mark_all(item, mark);
  for (auto& entry : node.entries) mark_all(entry.second, mark);
}

size_t depth_of(const Node& node) {
  size_t most = 0;
  for (const Node& item : node.items) most = std::max(most, depth_of(item));
  for (const auto& [key, value] : node.entries) most = std::max(most, depth_of(value));
  return most + (node.kind == Node::Kind::map || node.kind == Node::Kind::list);
}

}  // namespace

std::string Override::body() const {
  return text.substr(std::min(text.find_first_not_of("+~"), text.size()));
}

std::string Override::full_key() const {
  return text.substr(0, text.find('='));
}

void Override::put_at(const OverridePlace& place) {
  mark = place.key;
  if (!value) return;
  mark_all(*value, place.value);
  value->key_mark = place.key;
}

namespace {

// Returns an override of this key; of another one if the word is rather a value or a file.
std::string example_of(std::string_view key) {
  const bool value = (key[0] >= '0' && key[0] <= '9') || key[0] == '-' || key[0] == '.';
  return value || key.find('/') != std::string_view::npos ? "optimizer.lr=0.1" : str(key, "=1");
}

}  // namespace

Override parse_override(const std::string& text) {
  Override result;
  result.text = text;
  result.mark = {str("override '", text, "'"), 0, 0};
  check_utf8(text, result.mark);
  std::string_view rest = text;
  if (rest.starts_with("++")) {
    result.kind = Override::Kind::force;
  } else if (rest.starts_with("+")) {
    result.kind = Override::Kind::add;
  } else if (rest.starts_with("~")) {
    result.kind = Override::Kind::remove;
  }
  rest.remove_prefix(result.kind == Override::Kind::force ? 2 : result.kind == Override::Kind::set ? 0 : 1);
  if (rest.starts_with("+") || rest.starts_with("~"))
    throw UserError(str(config::at(result.mark), at_column(text.substr(0, text.size() - rest.size())), "'", rest[0],
                        "' begins no key; expected key=value, +key=value, ++key=value or ~key"));
  const size_t equals = rest.find('=');
  std::string_view key = rest.substr(0, equals);
  if (key.find_first_of(kBlank) != std::string_view::npos)
    throw UserError(config::at(result.mark) + "the key contains a blank; expected key=value");
  if (const size_t odd = key.find_first_of("[](){}'\"\\:,*?"); odd != std::string_view::npos)
    throw UserError(str(config::at(result.mark), at_column(text.substr(0, text.size() - rest.size() + odd)), "'",
                        key[odd], "' in a key: expected key=value",
                        key[odd] == '[' ? "; an item of a list is key.0=value" : ""));
  for (const std::string& part : config::split(key, '.'))
    if (part.size() > config::kMaxKey)
      throw UserError(str(config::at(result.mark), "a key of ", part.size(), " bytes; at most ", config::kMaxKey));
  if (key.empty()) throw UserError(config::at(result.mark) + "the key is missing: expected key=value");
  if (equals == std::string_view::npos && result.kind != Override::Kind::remove)
    throw UserError(str(config::at(result.mark), "expected key=value without blanks, such as ", example_of(key)));
  const size_t sign = key.find('@');
  if (sign != std::string_view::npos) result.package = key.substr(sign + 1);
  result.key = key.substr(0, sign);
  const auto empty_part = [](const std::string& part) { return part.empty(); };
  const std::vector<std::string> parts = config::split(result.key, '.'), folders = config::split(result.key, '/');
  if (std::any_of(parts.begin(), parts.end(), empty_part) || std::any_of(folders.begin(), folders.end(), empty_part))
    throw UserError(str(config::at(result.mark), "the key '", result.key, "' has an empty part"));
  const std::string package = result.package.value_or("");
  const std::vector<std::string> packages = package.empty() ? std::vector<std::string>{} : config::split(package, '.');
  if (package.find('@') != std::string_view::npos || std::any_of(packages.begin(), packages.end(), empty_part))
    throw UserError(
        str(config::at(result.mark), "'@", package, "' is no package; expected names with dots between them"));
  if (equals != std::string_view::npos) {
    const std::string_view value = rest.substr(equals + 1);
    Parsed parsed =
        ValueParser(value, result.mark, std::string_view(text).substr(0, text.size() - value.size())).parse();
    if (parsed.is_sweep())
      result.sweep = std::move(parsed.sweep[0]);
    else
      result.value = std::move(parsed.term.value);
  }
  if (parts.size() + (result.value ? depth_of(*result.value) : 0) > kMostLevels)
    throw UserError(str(config::at(result.mark), "nested deeper than ", kMostLevels, " levels"));
  return result;
}

Node parse_value(std::string_view value, const Mark& mark) {
  Parsed parsed = ValueParser(value, mark, "").parse();
  if (parsed.is_sweep()) throw UserError(str(config::at(mark), "'", value, "' is a sweep; one value is expected here"));
  return std::move(parsed.term.value);
}

void refuse_sweep(const Override& o) {
  if (!o.sweep) return;
  const std::string value = o.text.substr(o.text.find('=') + 1);
  const std::string key = o.text.substr(0, o.text.find('='));
  if (!o.sweep->function.empty())
    throw UserError(
        str(config::at(o.mark), o.sweep->function, "() belongs to a sweep (multirun), which is `lmx sweep`"));
  const char quote = value.find('\'') == std::string::npos ? '\'' : '"';
  throw UserError(str(config::at(o.mark), "several values are a sweep (multirun), which is `lmx sweep`; a list is ",
                      key, "=[", value, "], a text with commas ", key, "=", quote, value, quote));
}

}  // namespace lmx::app

lmx::Node lmx::parse_option(std::string_view value, const std::string& option) {
  const Mark mark{str(option, " '", value, "'"), 0, 0};
  app::check_utf8(value, mark);
  return app::parse_value(value, mark);
}

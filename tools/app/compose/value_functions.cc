// The functions of Hydra's override grammar. Hydra keeps the bounds of a range, and its casts and sort() change those
// bounds. Here a range is the list of its numbers from the start: sort(range(0,10,3), reverse=true) is 9, 6, 3, 0.
#include "app/compose/override.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "config/messages.h"
#include "lmx/random.h"

namespace lmx::app {
namespace {

constexpr size_t kMaxTerms = 10'000;

struct Call {
  const std::string& name;
  const std::vector<Argument>& arguments;
  const std::function<void(const std::string&)>& report;

  [[noreturn]] void fail(const std::string& problem) const {
    report(str(name, "(): ", problem));
    throw UserError(problem);  // report() has thrown already
  }

  // UserError if a named argument is not among those that the function accepts.
  void allow(const std::vector<std::string>& names) const {
    for (const Argument& a : arguments)
      if (!a.name.empty() && std::find(names.begin(), names.end(), a.name) == names.end())
        fail(str("no argument '", a.name, "'", did_you_mean(a.name, names),
                 names.empty() ? "" : str("; it has ", config::join(names))));
  }
  std::vector<Parsed> positional() const {
    std::vector<Parsed> values;
    for (const Argument& a : arguments)
      if (a.name.empty()) values.push_back(a.value);
    return values;
  }
  const Parsed* named(std::string_view key) const {
    for (const Argument& a : arguments)
      if (a.name == key) return &a.value;
    return nullptr;
  }
  // The argument with that name, otherwise the one at that position; null if neither exists.
  const Parsed* argument(std::string_view key, size_t position) const {
    if (const Parsed* p = named(key)) return p;
    for (const Argument& a : arguments)
      if (a.name.empty() && position-- == 0) return &a.value;
    return nullptr;
  }
};

Parsed single(Node value) {
  std::string text = value_text(value);
  return {{std::move(value), std::move(text)}, {}};
}

Sweep choice_of(const Call& call, const std::vector<Parsed>& values) {
  Sweep sweep;
  sweep.function = call.name;
  for (const Parsed& p : values) {
    if (p.is_sweep()) call.fail("a sweep inside a sweep");
    sweep.terms.push_back(p.term);
  }
  return sweep;
}

// The arguments as one value: a single argument unchanged, or a sweep of several ones.
Parsed joined(const Call& call, const char* keyword) {
  const std::vector<Parsed> values = call.positional();
  for (const char* key : {keyword, "sweep", "list"}) {
    const Parsed* named = call.named(key);
    if (named && !values.empty()) call.fail(str("values stand by position or behind ", key, "=, not both"));
    if (named) return *named;
  }
  if (values.empty()) call.fail("a value is missing");
  if (values.size() == 1) return values[0];
  return {{}, {choice_of(call, values)}};
}

Node cast_to(const Call& call, const Node& value) {
  try {
    return cast(call.name, value);
  } catch (const UserError& e) {
    call.fail(e.what());
  }
}

Parsed cast_value(const Call& call) {
  call.allow({"value"});
  Parsed result = joined(call, "value");
  if (!result.is_sweep()) return single(cast_to(call, result.term.value));
  Sweep& sweep = result.sweep[0];
  if (sweep.kind == Sweep::Kind::glob) call.fail("the options of a glob are names");
  if (sweep.kind == Sweep::Kind::interval && call.name != "float") call.fail("an interval is one of floats");
  for (Term& term : sweep.terms) term = single(cast_to(call, term.value)).term;
  return result;
}

Parsed choice(const Call& call) {
  call.allow({});
  const std::vector<Parsed> values = call.positional();
  if (values.empty()) call.fail("it needs values to choose from");
  if (values.size() == 1 && values[0].is_sweep()) {
    Parsed result = values[0];
    if (result.sweep[0].function == "choice") call.fail("a choice inside a choice");
    result.sweep[0].function = call.name;
    return result;
  }
  return {{}, {choice_of(call, values)}};
}

// A plain decimal as digits times 10^-places, so that sums of steps are exact decimals (0.3, not 0.30000000000000004).
struct Decimal {
  int64_t digits = 0;
  int places = 0;
  bool is_int = false;
};

std::optional<Decimal> decimal(const std::string& text) {
  if (const auto i = parse_int(text)) return Decimal{*i, 0, true};
  const auto value = parse_double(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  const std::string shortest = config::double_text(*value);  // "-4.35", "1e-05", "1.5e+20"
  const size_t e = shortest.find('e');
  const int exponent = e == std::string::npos ? 0 : std::atoi(shortest.c_str() + e + 1);
  std::string digits = shortest.substr(0, e);
  const size_t point = digits.find('.');
  int places = 0;
  if (point != std::string::npos) {
    digits.erase(point, 1);
    places = static_cast<int>(digits.size() - point);
  }
  places -= exponent;
  for (; places < 0 && digits.size() < 18; ++places) digits += '0';
  constexpr size_t kMaxDigits = 16;  // without the sign
  if (places < 0 || places > 18 || digits.size() > kMaxDigits + 1) return std::nullopt;
  return Decimal{std::atoll(digits.c_str()), places, false};
}

Parsed range(const Call& call) {
  call.allow({"start", "stop", "step"});
  const auto number = [&](const char* key, size_t position) -> std::optional<Decimal> {
    const Parsed* p = call.argument(key, position);
    if (!p) return std::nullopt;
    const bool plain = !p->is_sweep() && p->term.value.kind == Node::Kind::scalar && !p->term.value.quoted;
    const auto value = plain ? decimal(p->term.value.text) : std::nullopt;
    if (!value)
      call.fail(str(key, " must be a number of at most 16 digits, got ", config::describe_value(p->term.value)));
    return value;
  };
  if (call.arguments.empty() || call.arguments.size() > 3)
    call.fail("it takes (stop), (start, stop) or (start, stop, step)");
  std::optional<Decimal> start = number("start", 0), stop = number("stop", 1), step = number("step", 2);
  if (!stop) stop = std::exchange(start, Decimal{0, 0, true});
  if (!start) start = Decimal{0, 0, true};
  if (!step) step = Decimal{1, 0, true};
  const bool ints = start->is_int && stop->is_int && step->is_int;
  const int places = std::max({start->places, stop->places, step->places});
  const auto scaled = [&](const Decimal& d) {
    const double value = static_cast<double>(d.digits) * std::pow(10.0, places - d.places);
    if (std::abs(value) > 9e15) call.fail("its numbers are too far apart in size");
    return std::llround(value);
  };
  const int64_t first = scaled(*start), last = scaled(*stop), by = scaled(*step);
  if (by == 0) call.fail("the step is 0");
  if ((by > 0) ? first >= last : first <= last)
    call.fail("it is empty: from its start no step leads to its stop, which is left out");
  if (static_cast<double>(last - first) / static_cast<double>(by) > static_cast<double>(kMaxTerms))
    call.fail(str("more than ", kMaxTerms, " values"));
  Sweep sweep;
  sweep.function = call.name;
  const Mark mark = call.arguments[0].value.term.value.mark;
  for (int64_t at = first; by > 0 ? at < last : at > last; at += by) {
    const double value = static_cast<double>(at) / std::pow(10.0, places);
    sweep.terms.push_back(single(Node::scalar(ints ? std::to_string(at) : config::double_text(value), mark)).term);
  }
  return {{}, {sweep}};
}

Parsed interval(const Call& call) {
  call.allow({"start", "end"});
  Sweep sweep;
  sweep.kind = Sweep::Kind::interval;
  sweep.function = call.name;
  const auto number = [&](const char* key, size_t position) {
    const Parsed* p = call.argument(key, position);
    const auto value = p && !p->is_sweep() ? parse_double(p->term.value.text) : std::nullopt;
    if (!value) call.fail("it takes two numbers: interval(1e-4, 1e-2)");
    return *value;
  };
  sweep.begin = number("start", 0);
  sweep.end = number("end", 1);
  if (call.arguments.size() != 2 || !(sweep.begin < sweep.end))
    call.fail("it takes two numbers, the smaller one first");
  return {{}, {sweep}};
}

std::vector<std::string> patterns(const Call& call, const Parsed* p) {
  if (!p) return {};
  const Node& node = p->term.value;
  std::vector<std::string> texts;
  if (node.kind == Node::Kind::scalar) texts.push_back(node.text);
  for (const Node& item : node.items) texts.push_back(item.text);
  if (texts.empty() || p->is_sweep())
    call.fail("it takes a pattern or a list of patterns: glob([a*,b*], exclude=*_old)");
  return texts;
}

Parsed glob(const Call& call) {
  call.allow({"include", "exclude"});
  Sweep sweep;
  sweep.kind = Sweep::Kind::glob;
  sweep.function = call.name;
  sweep.include = patterns(call, call.argument("include", 0));
  sweep.exclude = patterns(call, call.argument("exclude", 1));
  if (sweep.include.empty()) call.fail("it takes a pattern: glob(*)");
  return {{}, {sweep}};
}

void sort_values(const Call& call, std::vector<Term>& terms, bool reverse) {
  const auto is_number = [](const Term& t) {
    const auto value = t.value.quoted ? std::nullopt : parse_double(t.value.text);
    return value && !std::isnan(*value);
  };
  const bool numbers = std::all_of(terms.begin(), terms.end(), is_number);
  const bool texts = std::all_of(terms.begin(), terms.end(),
                                 [](const Term& t) { return t.value.kind == Node::Kind::scalar && t.value.quoted; });
  if (!numbers && !texts) call.fail("only numbers, or only texts, have an order");
  const auto less = [&](const Term& a, const Term& b) {
    return numbers ? *parse_double(a.value.text) < *parse_double(b.value.text) : a.value.text < b.value.text;
  };
  std::stable_sort(terms.begin(), terms.end(),
                   [&](const Term& a, const Term& b) { return reverse ? less(b, a) : less(a, b); });
}

// The same order in each call, since the seed depends on the values only: a sweep that is run again finds its earlier
// points.
void shuffle_values(const Call&, std::vector<Term>& terms, bool) {
  RandomKey key(1);
  for (const Term& term : terms) key = key.fold(term.text);
  for (size_t i = terms.size(); i > 1; --i) std::swap(terms[i - 1], terms[key.below(i, i)]);
}

Parsed reorder(const Call& call, void (*order)(const Call&, std::vector<Term>&, bool), bool reverse) {
  Parsed result = joined(call, "list");
  if (result.is_sweep()) {
    if (result.sweep[0].kind != Sweep::Kind::choice) call.fail("it takes values, a choice or a range");
    order(call, result.sweep[0].terms, reverse);
    return result;
  }
  if (result.term.value.kind != Node::Kind::list) return result;
  std::vector<Term> terms;
  for (const Node& item : result.term.value.items) terms.push_back(single(item).term);
  order(call, terms, reverse);
  Node list = Node::list({}, result.term.value.mark);
  for (const Term& term : terms) list.items.push_back(term.value);
  return single(std::move(list));
}

Parsed sort(const Call& call) {
  call.allow({"list", "sweep", "reverse"});
  const Parsed* flag = call.named("reverse");
  const auto reverse = flag ? parse_bool(flag->term.value.text) : std::optional(false);
  if (!reverse) call.fail("reverse is true or false");
  return reorder(call, sort_values, *reverse);
}

Parsed shuffle(const Call& call) {
  call.allow({"list", "sweep"});
  return reorder(call, shuffle_values, false);
}

Parsed tag(const Call& call) {
  call.allow({"sweep"});
  std::vector<Parsed> values = call.positional();
  if (const Parsed* p = call.named("sweep")) values.push_back(*p);
  if (values.empty() || !values.back().is_sweep()) call.fail("its last argument is a sweep: tag(a, b, choice(1,2))");
  Parsed result = values.back();
  values.pop_back();
  for (const Parsed& p : values) {
    if (p.is_sweep() || p.term.value.kind != Node::Kind::scalar) call.fail("tags are texts");
    result.sweep[0].tags.push_back(p.term.value.text);
  }
  return result;
}

struct Function {
  const char* name;
  Parsed (*call)(const Call&);
};
constexpr Function kFunctions[] = {
    {"int", cast_value}, {"float", cast_value}, {"str", cast_value}, {"bool", cast_value},
    {"choice", choice},  {"range", range},      {"glob", glob},      {"interval", interval},
    {"sort", sort},      {"shuffle", shuffle},  {"tag", tag},
};

// Writes the text in single quotes. Only a run of backslashes that ends at a quote is doubled (compose/override.cc).
std::string quoted_text(const std::string& text) {
  std::string out = "'";
  size_t backslashes = 0;
  const auto close_run = [&] { out.append(backslashes, '\\'); };
  for (const char c : text) {
    if (c == '\'') {
      close_run();
      out += '\\';
    }
    backslashes = c == '\\' ? backslashes + 1 : 0;
    out += c;
  }
  close_run();
  return out + "'";
}

std::string scalar_text(const Node& value) {
  if (!value.quoted) return value.text;
  const bool plain = !value.text.empty() && value.text.find_first_of(",=()[]{}'\"\\: \t") == std::string::npos &&
                     typed_scalar(value.text, {}).quoted;
  return plain ? value.text : quoted_text(value.text);
}

}  // namespace

const std::vector<std::string>& value_functions() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Function& f : kFunctions) list.emplace_back(f.name);
    return list;
  }();
  return names;
}

Parsed call_value_function(const std::string& name, const std::vector<Argument>& arguments,
                           const std::function<void(const std::string&)>& fail) {
  const auto function =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& f) { return name == f.name; });
  LMX_CHECK(function != std::end(kFunctions), name);
  return function->call({name, arguments, fail});
}

std::string value_text(const Node& value) {
  std::vector<std::string> parts;
  switch (value.kind) {
    case Node::Kind::null:
      return "null";
    case Node::Kind::scalar:
      return scalar_text(value);
    case Node::Kind::list:
      for (const Node& item : value.items) parts.push_back(value_text(item));
      return str("[", config::join(parts, ","), "]");
    case Node::Kind::map:
      for (const auto& [key, item] : value.entries)
        parts.push_back(str(scalar_text(Node::string(key)), ":", value_text(item)));
      return str("{", config::join(parts, ","), "}");
  }
  return "";
}

bool matches_glob(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return fnmatch(p.c_str(), name.c_str(), 0) == 0; });
}

}  // namespace lmx::app

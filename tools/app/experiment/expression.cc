#include "app/experiment/expression.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "app/records/half_interval.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

using Unary = double (*)(double);
const std::map<std::string, Unary>& unary_functions() {
  static const std::map<std::string, Unary> functions{
      {"ln", [](double x) { return std::log(x); }},      {"log2", [](double x) { return std::log2(x); }},
      {"log10", [](double x) { return std::log10(x); }}, {"exp", [](double x) { return std::exp(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},   {"abs", [](double x) { return std::fabs(x); }},
      {"round", [](double x) { return std::round(x); }}, {"floor", [](double x) { return std::floor(x); }},
      {"ceil", [](double x) { return std::ceil(x); }}};
  return functions;
}

const std::vector<std::string> kSampleFunctions{"slope", "exponent", "spread", "most", "least"};

std::vector<double> values_of(const std::vector<Sample>& samples) {
  std::vector<double> values;
  for (const Sample& s : samples) values.push_back(s.value);
  return values;
}

// Returns the slope of y over x (least squares).
double slope_of(const std::vector<Sample>& samples) {
  double x_mean = 0, y_mean = 0;
  const auto n = static_cast<double>(samples.size());
  for (const Sample& s : samples) {
    x_mean += s.x / n;
    y_mean += s.value / n;
  }
  double xx = 0, xy = 0;
  for (const Sample& s : samples) {
    xx += (s.x - x_mean) * (s.x - x_mean);
    xy += (s.x - x_mean) * (s.value - y_mean);
  }
  if (!(xx > 0)) throw UserError(str("a slope needs two different places, there are ", samples.size(), " values"));
  return xy / xx;
}

double sample_function(const std::string& name, std::vector<Sample> samples) {
  const auto less = [](const Sample& a, const Sample& b) { return a.value < b.value; };
  if (name == "spread") return spread(samples);
  if (name == "most") return std::max_element(samples.begin(), samples.end(), less)->value;
  if (name == "least") return std::min_element(samples.begin(), samples.end(), less)->value;
  if (name == "exponent") {
    for (Sample& s : samples) s = {std::log(s.x), std::log(s.value)};
  }
  return slope_of(samples);
}

class Parser {
 public:
  Parser(const std::string& text, const Scope& scope) : text_(text), scope_(scope) {}

  double parse() {
    const double value = sum();
    if (!at_end()) fail(str("unexpected '", text_[pos_], "'"));
    return value;
  }
  size_t position() const { return start_; }  // of the element that is being read, for the column in messages

 private:
  [[noreturn]] void fail(const std::string& problem) {
    start_ = pos_;
    throw UserError(problem);
  }
  void skip_blanks() {
    while (pos_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[pos_]))) ++pos_;
  }
  bool at_end() {
    skip_blanks();
    return pos_ >= text_.size();
  }
  bool take(char c) {
    if (at_end() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(str("expected '", c, at_end() ? "' at the end" : str("', got '", text_[pos_], "'")));
  }

  double sum() {
    double value = product();
    for (;;) {
      if (take('+')) {
        value += product();
      } else if (take('-')) {
        value -= product();
      } else {
        return value;
      }
    }
  }
  double product() {
    double value = sign();
    for (;;) {
      if (take('*')) {
        value *= sign();
      } else if (take('/')) {
        value /= sign();
      } else {
        return value;
      }
    }
  }
  double sign() { return take('-') ? -sign() : power(); }
  double power() {
    const double base = primary();
    return take('^') ? std::pow(base, sign()) : base;  // a^b^c = a^(b^c)
  }

  double primary() {
    if (++depth_ > 200) fail("nested deeper than 200 levels");
    if (at_end()) fail("a value is missing at the end");
    const char c = text_[pos_];
    double value = 0;
    if (take('(')) {
      value = sum();
      expect(')');
    } else if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') {
      value = number();
    } else if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      value = named();
    } else {
      fail(str("expected a number, a name or '(', got '", c, "'"));
    }
    --depth_;
    return value;
  }

  double number() {
    const size_t begin = pos_;
    const auto digits = [&] {
      while (pos_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_'))
        ++pos_;
    };
    digits();
    if (pos_ < text_.size() && text_[pos_] == '.') {
      ++pos_;
      digits();
    }
    if (pos_ < text_.size() && (text_[pos_] == 'e' || text_[pos_] == 'E')) {
      ++pos_;
      if (pos_ < text_.size() && (text_[pos_] == '+' || text_[pos_] == '-')) ++pos_;
      digits();
    }
    const std::string word = text_.substr(begin, pos_ - begin);
    const auto value = parse_double(word);
    if (value) return *value;
    pos_ = begin;
    fail(str("'", word, "' is no number"));
  }

  std::string name() {
    skip_blanks();
    const size_t begin = pos_;
    while (pos_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_')) ++pos_;
    if (pos_ == begin) fail("a name is missing");
    return text_.substr(begin, pos_ - begin);
  }

  double named() {
    const size_t begin = pos_;
    const std::string word = name();
    if (take('(')) return call(word, begin);
    start_ = begin;
    if (!at_end() && text_[pos_] == '[') return mean(samples(word, ""));
    return scope_.variable(word);
  }

  double call(const std::string& function, size_t begin) {
    if (function == "min" || function == "max") {
      double value = sum();
      while (take(',')) {
        const double other = sum();
        value = function == "min" ? std::min(value, other) : std::max(value, other);
      }
      expect(')');
      return value;
    }
    if (std::find(kSampleFunctions.begin(), kSampleFunctions.end(), function) != kSampleFunctions.end())
      return over_samples(function);
    const auto found = unary_functions().find(function);
    if (found == unary_functions().end()) {
      std::vector<std::string> known = kSampleFunctions;
      known.insert(known.end(), {"min", "max"});
      for (const auto& [known_name, pointer] : unary_functions()) known.push_back(known_name);
      pos_ = begin;
      fail(str("unknown function '", function, "'", did_you_mean(function, known)));
    }
    const double value = found->second(sum());
    expect(')');
    return value;
  }

  // Reads slope(measure[...], axis) or spread(measure[...]). The axis is after the measure, but the measure's selection
  // needs it first.
  double over_samples(const std::string& function) {
    skip_blanks();
    const size_t begin = pos_;
    const std::string measure = name();
    const bool fits = function == "slope" || function == "exponent";
    std::string axis = "*";
    if (fits) {
      const size_t after = pos_;
      if (take('[')) closing_bracket();
      if (!take(',')) fail(str(function, "(measure[...], axis) needs an axis"));
      axis = name();
      pos_ = after;
    }
    start_ = begin;
    const std::vector<Sample> found = samples(measure, axis);
    if (fits) {
      expect(',');
      static_cast<void>(name());
    }
    expect(')');
    return sample_function(function, found);
  }

  size_t closing_bracket() {
    const size_t end = text_.find(']', pos_);
    if (end == std::string::npos) fail("'[' without ']'");
    pos_ = end + 1;
    return end;
  }

  // Reads "[dense, G=24]", or nothing.
  std::vector<Sample> samples(const std::string& measure, const std::string& axis) {
    std::vector<std::string> selection;
    if (take('[')) {
      const size_t begin = pos_, end = closing_bracket();
      std::string words = text_.substr(begin, end - begin);
      std::erase_if(words, [](unsigned char c) { return std::isspace(c); });
      selection = config::split(words, ',');
      std::erase(selection, "");
    }
    std::vector<Sample> found = scope_.select(measure, selection, axis);
    if (found.empty()) throw UserError(str("no cell of ", measure, " is chosen"));
    return found;
  }

  const std::string& text_;
  const Scope& scope_;
  size_t pos_ = 0, start_ = 0;
  int depth_ = 0;
};

}  // namespace

std::vector<std::string> names_in(const std::string& formula) {
  const auto in_word = [&](size_t i) {
    return i < formula.size() && (std::isalnum(static_cast<unsigned char>(formula[i])) || formula[i] == '_');
  };
  std::vector<std::string> names;
  for (size_t i = 0; i < formula.size();) {
    if (formula[i] == '[') {
      i = std::min(formula.find(']', i), formula.size());
    } else if (in_word(i)) {
      const size_t begin = i;
      while (in_word(i)) ++i;
      const size_t next = std::min(formula.find_first_not_of(' ', i), formula.size());
      const bool function = next < formula.size() && formula[next] == '(';
      if (!function && !std::isdigit(static_cast<unsigned char>(formula[begin])))
        names.push_back(formula.substr(begin, i - begin));
    } else {
      ++i;
    }
  }
  return names;
}

double mean(const std::vector<Sample>& samples) {
  return samples.empty() ? NAN : mean_of(values_of(samples));
}

double spread(const std::vector<Sample>& samples) {
  return samples.size() < 2 ? 0 : deviation_of(values_of(samples));
}

double evaluate(const Node& node, const std::string& path, const Scope& scope) {
  if (node.kind != Node::Kind::scalar)
    throw FormulaError(str(to_string(node.mark), ": ", path, ": "), "expected a number or a formula");
  Parser parser(node.text, scope);
  try {
    return parser.parse();
  } catch (const UserError& e) {
    Mark place = node.mark;
    if (place.line > 0) place.column += static_cast<int>(parser.position()) + node.quoted;
    throw FormulaError(str(to_string(place), ": ", path, ": "), e.what());
  }
}

}  // namespace lmx::app::experiment

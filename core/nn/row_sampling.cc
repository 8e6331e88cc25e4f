#include "lmx/row_sampling.h"

#include <algorithm>
#include <cmath>

#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx {
namespace {

// Selection sampling (Fan et al. 1962; Knuth, volume 2, algorithm S): `count` of the remaining `left` rows are still to
// be taken, so the next row is taken with probability count / left. Needs one random number for each row, and returns
// rows in order.
class Draws {
 public:
  Draws(RandomKey key, int64_t count, int64_t left) : key_(key), count_(std::min(count, left)), left_(left) {}
  bool done() const { return count_ == 0; }
  bool take(int64_t row) {
    const auto left = static_cast<double>(left_--);
    if (!(key_.uniform(static_cast<uint64_t>(row)) * left < static_cast<double>(count_))) return false;
    --count_;
    return true;
  }

 private:
  RandomKey key_;
  int64_t count_, left_;
};

std::vector<int32_t> ascending(std::span<const int32_t> words) {
  std::vector<int32_t> rows(words.begin(), words.end());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::vector<int32_t> first_rows(int64_t count) {
  std::vector<int32_t> rows(static_cast<size_t>(count));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  return rows;
}

}  // namespace

int64_t rows_of_percent(double percent, int64_t n) {
  return std::clamp<int64_t>(std::llround(percent / 100 * static_cast<double>(n)), 0, n);
}

std::vector<int32_t> random_rows(RandomKey key, int64_t count, int64_t n) {
  return additional_rows(key, {}, count, n);
}

std::vector<int32_t> additional_rows(RandomKey key, std::span<const int32_t> taken, int64_t count, int64_t n) {
  std::vector<int32_t> rows;
  Draws draws(key, count, n - static_cast<int64_t>(taken.size()));
  auto next = taken.begin();
  for (int64_t row = 0; row < n && !draws.done(); ++row) {
    if (next != taken.end() && *next == row) {
      ++next;
      continue;
    }
    if (draws.take(row)) rows.push_back(static_cast<int32_t>(row));
  }
  return rows;
}

std::vector<int32_t> union_rows(std::span<const int32_t> a, std::span<const int32_t> b) {
  std::vector<int32_t> rows;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rows));
  return rows;
}

int64_t expected_words(int64_t n, int64_t vocabulary) {
  double harmonic = 0, words = 0;
  for (int64_t w = 1; w <= vocabulary; ++w) harmonic += 1.0 / static_cast<double>(w);
  for (int64_t w = 1; w <= vocabulary; ++w)
    words += 1 - std::exp(static_cast<double>(n) * std::log1p(-1.0 / (static_cast<double>(w) * harmonic)));
  return std::min(vocabulary, static_cast<int64_t>(words + 0.5));
}

void RowShares::fields(Fields& f) {
  const Range percent{0, 100};
  f.field("p", p, "percent of the vocabulary: the rows of the most frequent words, which are always selected", percent);
  f.field("q", q, "percent of the vocabulary drawn at random in each step, from all words", percent);
}

std::vector<int32_t> select_rows(RandomKey key, std::span<const int32_t> words, const RowShares& shares, int64_t n) {
  const std::vector<int32_t> base = ascending(words);
  LMX_CHECK(base.empty() || (base.front() >= 0 && base.back() < n), "words ", base.front(), " to ", base.back(), " of ",
            n);
  const std::vector<int32_t> frequent = union_rows(base, first_rows(rows_of_percent(shares.p, n)));
  return union_rows(frequent, random_rows(key, rows_of_percent(shares.q, n), n));
}

void RowRule::fields(Fields& f) {
  shares.fields(f);
  f.field("hidden_q", hidden_q, "percent of the rows of other matrices, drawn at random in each step", {0, 100});
  f.field("softmax", softmax,
          "pattern of the output layer's parameters, a row for each word: the step's targets, p and q select");
  f.field("embedding", embedding,
          "pattern of tables that are read by words: the rows of the step's, no others; a table that is the "
          "output layer's too (tied) gets those of `softmax` as well");
  f.field("source", source,
          "translation: pattern of the embedding tables that only source sentences read; the other tables are those of "
          "the target. If no table matches, both sides read all tables");
  f.choice(
      "draw", draw, {"rank", "step"},
      "sampling of the q percent (and of the candidates of a sampled softmax): separately on each rank, or the same "
      "for all ranks of a step");
}

void RowRule::check(const std::string& where) const {
  for (const auto& [key, text] :
       {std::pair("softmax", softmax), std::pair("embedding", embedding), std::pair("source", source)}) {
    static_cast<void>(ParamPattern(text, str(where, ".", key, ": ")));
  }
}

RowSelector::RowSelector(RowRule rule, const std::vector<ParameterSpec>& params, RandomKey key)
    : rule_(std::move(rule)), key_(key) {
  const ParamPattern softmax(rule_.softmax), embedding(rule_.embedding), source(rule_.source);
  const auto read_by_words = [&](const ParameterSpec& p) { return embedding.matches(p.name); };
  const auto of_source = [&](const ParameterSpec& p) {
    return read_by_words(p) && !p.output && source.matches(p.name);
  };
  const bool sides = std::any_of(params.begin(), params.end(), of_source);
  for (const ParameterSpec& p : params) {
    const size_t point = p.name.rfind('.');
    Selected s{Kind::whole, p.shape[0], p.name.substr(0, point == std::string::npos ? 0 : point)};
    s.inputs = read_by_words(p) && !of_source(p);
    s.source = read_by_words(p) && (!sides || of_source(p));
    if (softmax.matches(p.name) || (p.output && read_by_words(p))) {
      s.kind = Kind::softmax;
    } else if (read_by_words(p)) {
      s.kind = Kind::embedding;
    } else if (!p.sparse && p.shape.rank() > 1 && rows_of_percent(rule_.hidden_q, p.shape[0]) < p.shape[0]) {
      s.kind = Kind::hidden;
    }
    params_.emplace(p.name, std::move(s));
  }
}

void RowSelector::check(const std::string& where) const {
  const RowRule usual;
  std::vector<std::string> names;
  for (const auto& [name, p] : params_) names.push_back(name);
  const auto fits = [&](const std::string& key, const std::string& pattern, const std::string& default_pattern) {
    if (pattern != default_pattern)
      static_cast<void>(ParamPattern(pattern, str("[sync] ", where, ".", key, ": ")).select(names));
  };
  fits("softmax", rule_.softmax, usual.softmax);
  fits("embedding", rule_.embedding, usual.embedding);
  fits("source", rule_.source, usual.source);
  const auto is_output = [](const auto& p) { return p.second.kind == Kind::softmax; };
  const bool given = rule_.shares.p != usual.shares.p || rule_.shares.q != usual.shares.q;
  if (given && std::none_of(params_.begin(), params_.end(), is_output))
    throw UserError(str("[sync] ", where, ".p ", rule_.shares.p, " and q ", rule_.shares.q,
                        " select rows of the output layer's table, and the rule has none (softmax: '", rule_.softmax,
                        "'): ", config::join(names)));
}

RowSelector::Kind RowSelector::kind(const std::string& name) const {
  return params_.at(name).kind;
}

void RowSelector::begin_step(StepPlan& plan, int rank, int hidden_rank, std::span<const int32_t> inputs,
                             std::span<const int32_t> targets, std::span<const int32_t> source) {
  const auto step = static_cast<uint64_t>(plan.step);
  const RandomKey own = rule_.draw == "rank" ? key_.fold(static_cast<uint64_t>(rank)) : key_;
  const RandomKey hidden = key_.fold("hidden").fold(static_cast<uint64_t>(hidden_rank)).fold(step);
  const std::vector<int32_t> of_inputs = ascending(inputs), of_source = ascending(source),
                             of_both = union_rows(of_inputs, of_source);
  const auto read = [&](const Selected& p) -> const std::vector<int32_t>& {
    return p.inputs && p.source ? of_both : p.source ? of_source : of_inputs;
  };
  rows_.clear();
  for (const auto& [name, p] : params_) {
    if (p.kind == Kind::softmax) {
      // Tables with equally many rows use the same words, so the rows of a bias are those of its weight.
      const std::vector<int32_t>& all = plan.rows[name] =
          select_rows(own.fold("softmax").fold(step), targets, rule_.shares, p.rows);
      rows_[name] = p.inputs || p.source ? union_rows(all, read(p)) : all;
    } else if (p.kind == Kind::embedding) {
      rows_[name] = read(p);
    } else if (p.kind == Kind::hidden) {
      rows_[name] = random_rows(hidden.fold(p.layer), rows_of_percent(rule_.hidden_q, p.rows), p.rows);
    }
  }
  if (sets_candidate_key()) plan.sampler_key = plan.sampler_key.fold(static_cast<uint64_t>(rank));
}

bool RowSelector::sets_candidate_key() const {
  return rule_.draw == "rank" && std::any_of(params_.begin(), params_.end(),
                                             [](const auto& entry) { return entry.second.kind == Kind::softmax; });
}

const std::vector<int32_t>& RowSelector::rows(const std::string& name) const {
  const auto found = rows_.find(name);
  LMX_CHECK(found != rows_.end(), "no rows of '", name, "' were selected");
  return found->second;
}

std::string RowSelector::describe() const {
  std::map<Kind, std::vector<std::string>> names;
  for (const auto& [name, p] : params_) names[p.kind].push_back(name);
  std::vector<std::string> parts;
  const auto add = [&](Kind kind, const std::string& what) {
    if (!names[kind].empty()) parts.push_back(str(what, " of ", config::join(names[kind])));
  };
  add(Kind::softmax,
      str("the rows of the targets, of the ", rule_.shares.p, " % most frequent words and of ", rule_.shares.q,
          " % random ones", rule_.draw == "rank" ? ", drawn by each rank," : ", the same on all ranks,"));
  add(Kind::embedding, "the rows of the words that are read");
  add(Kind::hidden, str(rule_.hidden_q, " % of the rows"));
  add(Kind::whole, "all");
  return config::join(parts, "; ");
}

}  // namespace lmx

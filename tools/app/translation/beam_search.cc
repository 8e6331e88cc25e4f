#include <algorithm>
#include <cmath>
#include <tuple>

#include "app/translation/search.h"
#include "app/translation/translate.h"
#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "ops/losses/top_k.h"

namespace lmx::app {
namespace {

const std::vector<std::string> kPenalties{"fairseq", "wu", "none"};

// The length penalty of a hypothesis of `length` tokens, including </s>.
double penalty(const SearchOptions& o, int64_t length) {
  const auto l = static_cast<double>(length);
  if (o.length_penalty == "wu") return std::pow((5 + l) / 6, o.alpha);
  return o.length_penalty == "fairseq" ? std::pow(l, o.alpha) : 1.0;
}

// Limits that no search for a translation needs, and beyond which it would not end or need too much memory.
constexpr int64_t kMostHypotheses = 10'000;
constexpr int64_t kLongest = 1'000'000;  // of a and b in the greatest length a x + b

struct Live {
  std::vector<int32_t> ids;
  double logprob = 0;
};

struct Sentence {
  size_t index = 0;        // in the caller's order
  int64_t max_length = 0;  // tokens before </s>
  std::vector<Live> live;  // one row each
  std::vector<Hypothesis> ended;
};

// A continuation of a sentence: one of its live rows and the next token.
struct Candidate {
  double logprob;
  size_t row;  // index among the sentence's live rows
  int32_t id;
};

class Search {
 public:
  Search(const SearchOptions& options, std::span<const int64_t> source_lengths) : options_(options) {
    for (size_t i = 0; i < source_lengths.size(); ++i) {
      const double most = options.max_factor * static_cast<double>(source_lengths[i]) + options.max_offset;
      const auto length = static_cast<int64_t>(std::max(most, 0.0));
      if (options.min_length > length)
        throw UserError(str("[translate] the least length, ", options.min_length, " tokens, is above the greatest, ",
                            length, ", of a sentence of ", source_lengths[i], " tokens (--max-length)"));
      sentences_.push_back({i, length, {Live{}}, {}});
    }
    done_.resize(source_lengths.size());
  }

  bool finished() const { return sentences_.empty(); }
  std::vector<std::vector<Hypothesis>> take() { return std::move(done_); }

  // Returns the last token of each row.
  std::vector<int32_t> inputs() const {
    std::vector<int32_t> ids;
    for (const Sentence& s : sentences_)
      for (const Live& l : s.live) ids.push_back(l.ids.empty() ? Vocabulary::kEos : l.ids.back());
    return ids;
  }

  // Continues every hypothesis by one token, given logits (rows, V). Returns the previous row of each new row.
  std::vector<int64_t> advance(Context& ctx, const Tensor& logits) {
    const std::vector<ops::TopRow> rows = best_of_rows(ctx, logits);
    std::vector<int64_t> from;
    std::vector<Sentence> going_on;
    size_t row = 0;
    for (Sentence& s : sentences_) {
      const size_t before = s.live.size();
      const auto own = std::span(rows).subspan(row, before);
      const std::vector<size_t> parents = length_ >= s.max_length ? end_all(s, own) : extend(s, own);
      if (parents.empty()) {
        finish(s);
      } else {
        for (const size_t p : parents) from.push_back(static_cast<int64_t>(row + p));
        going_on.push_back(std::move(s));
      }
      row += before;
    }
    sentences_ = std::move(going_on);
    ++length_;
    return from;
  }

 private:
  std::vector<ops::TopRow> best_of_rows(Context& ctx, const Tensor& logits) const {
    std::vector<int32_t> without;
    if (!options_.write_unknown) without.push_back(Vocabulary::kUnk);
    if (length_ < options_.min_length) without.push_back(Vocabulary::kEos);
    std::vector<ops::TopRow> rows = ops::top_rows(ctx, logits, 2 * options_.beam, without, Vocabulary::kEos);
    for (const ops::TopRow& row : rows)
      if (!std::isfinite(row.log_sum_exp))
        throw RunError(str("[translate] the model's logits are no numbers at token ", length_ + 1,
                           " of a sentence; did its training diverge?"));
    return rows;
  }

  // Keeps twice as many continuations as the beam is wide: even if half of them end, the beam stays full.
  std::vector<Candidate> candidates(const Sentence& s, std::span<const ops::TopRow> rows) const {
    std::vector<Candidate> all;
    for (size_t r = 0; r < rows.size(); ++r)
      for (const ops::Entry& e : rows[r].entries)
        all.push_back({s.live[r].logprob + static_cast<double>(e.logit) - rows[r].log_sum_exp, r, e.id});
    const auto likelier = [](const Candidate& a, const Candidate& b) {
      return std::make_tuple(-a.logprob, a.row, a.id) < std::make_tuple(-b.logprob, b.row, b.id);
    };
    const size_t kept = std::min(all.size(), static_cast<size_t>(2 * options_.beam));
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(), likelier);
    all.resize(kept);
    return all;
  }

  // Replaces the live rows of `s` by their continuations. Returns the previous row of each; empty if the sentence is
  // done.
  std::vector<size_t> extend(Sentence& s, std::span<const ops::TopRow> rows) const {
    const auto beam = static_cast<size_t>(options_.beam);
    const std::vector<Candidate> all = candidates(s, rows);
    std::vector<Live> next;
    std::vector<size_t> parents;
    for (size_t i = 0; i < all.size() && next.size() < beam && s.ended.size() < beam; ++i) {
      const Candidate& c = all[i];
      if (c.id == Vocabulary::kEos) {
        if (i < beam) end(s, s.live[c.row].ids, c.logprob);
        continue;
      }
      next.push_back({s.live[c.row].ids, c.logprob});
      next.back().ids.push_back(c.id);
      parents.push_back(c.row);
    }
    if (s.ended.size() >= beam) return {};
    s.live = std::move(next);
    return parents;
  }

  std::vector<size_t> end_all(Sentence& s, std::span<const ops::TopRow> rows) const {
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto logit = static_cast<double>(rows[r].wanted);
      end(s, s.live[r].ids, s.live[r].logprob + logit - rows[r].log_sum_exp);
    }
    return {};
  }

  void end(Sentence& s, const std::vector<int32_t>& ids, double logprob) const {
    s.ended.push_back({ids, logprob, logprob / penalty(options_, static_cast<int64_t>(ids.size()) + 1)});
  }

  void finish(Sentence& s) {
    std::stable_sort(s.ended.begin(), s.ended.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    if (s.ended.size() > static_cast<size_t>(options_.beam)) s.ended.resize(static_cast<size_t>(options_.beam));
    done_[s.index] = std::move(s.ended);
  }

  const SearchOptions& options_;
  std::vector<Sentence> sentences_;  // sentences that are not translated yet
  std::vector<std::vector<Hypothesis>> done_;
  int64_t length_ = 0;  // tokens of every live hypothesis
};

bool unchanged(const std::vector<int64_t>& from, size_t rows) {
  if (from.size() != rows) return false;
  for (size_t i = 0; i < rows; ++i)
    if (from[i] != static_cast<int64_t>(i)) return false;
  return true;
}

}  // namespace

void check_search(const SearchOptions& o) {
  if (o.beam < 1) throw UserError(str("[translate] the beam must hold at least 1 hypothesis, got ", o.beam));
  if (std::find(kPenalties.begin(), kPenalties.end(), o.length_penalty) == kPenalties.end())
    throw UserError(str("[translate] no length penalty '", o.length_penalty, "'",
                        did_you_mean(o.length_penalty, kPenalties), "; there are ", config::join(kPenalties)));
  if (!std::isfinite(o.alpha)) throw UserError(str("[translate] the length penalty's exponent is ", o.alpha));
  if (o.beam > kMostHypotheses)
    throw UserError(str("[translate] the beam holds at most ", kMostHypotheses, " hypotheses, got ", o.beam));
  constexpr auto longest = static_cast<double>(kLongest);
  if (!(o.max_factor >= 0 && o.max_factor <= longest && std::abs(o.max_offset) <= longest))
    throw UserError(str("[translate] the greatest length a x + b needs a and b of at most ", kLongest,
                        ", and a >= 0, got ", o.max_factor, ",", o.max_offset));
  if (o.min_length < 0) throw UserError(str("[translate] the least length must be >= 0, got ", o.min_length));
}

void read_length_penalty(const std::string& text, SearchOptions& options) {
  const size_t colon = text.find(':');
  options.length_penalty = text.substr(0, colon);
  if (options.length_penalty == "none" && colon == std::string::npos) {
    options.alpha = 0;
    return;
  }
  const std::optional<double> alpha = colon == std::string::npos ? std::nullopt : parse_double(text.substr(colon + 1));
  if (!alpha)
    throw UserError(str("[translate] a length penalty is written fairseq:0.6, wu:0.6 or none, got '", text, "'"));
  options.alpha = *alpha;
  check_search(options);
}

std::vector<std::vector<Hypothesis>> beam_search(Context& ctx, Decoding& decoding,
                                                 const std::function<Tensor(const Tensor&)>& logits,
                                                 std::span<const int64_t> source_lengths,
                                                 const SearchOptions& options) {
  check_search(options);
  Search search(options, source_lengths);
  while (!search.finished()) {
    const std::vector<int32_t> ids = search.inputs();
    const std::vector<int64_t> from = search.advance(ctx, logits(decoding.step(ctx, ids)));
    if (!search.finished() && !unchanged(from, ids.size())) decoding.select(ctx, from);
  }
  return search.take();
}

}  // namespace lmx::app

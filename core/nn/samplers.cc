// Proposal distributions of a sampled softmax over word ids k in [0, V):
//
//   uniform      1 / V
//   log_uniform  log((k + 2) / (k + 1)) / log(V + 1): near Zipf's law for ids by falling frequency
//   unigram      max(count_k, 1)^beta / sum; a word that never occurs must have a finite log probability
#include <algorithm>
#include <cmath>

#include "lmx/error.h"
#include "lmx/loss.h"

namespace lmx {

CandidateSampler::~CandidateSampler() = default;

namespace {

class Uniform final : public CandidateSampler {
 public:
  explicit Uniform(int64_t v) : v_(v) {}
  int32_t draw(RandomKey key, uint64_t index) const override {
    return static_cast<int32_t>(key.below(index, static_cast<uint64_t>(v_)));
  }
  double probability(int32_t) const override { return 1.0 / static_cast<double>(v_); }

 private:
  int64_t v_;
};

// Inverse of P(id <= k) = log(k + 2) / log(V + 1).
class LogUniform final : public CandidateSampler {
 public:
  explicit LogUniform(int64_t v) : v_(v), log_range_(std::log(static_cast<double>(v) + 1)) {}
  int32_t draw(RandomKey key, uint64_t index) const override {
    const auto k = static_cast<int64_t>(std::exp(key.uniform(index) * log_range_)) - 1;
    return static_cast<int32_t>(std::clamp<int64_t>(k, 0, v_ - 1));  // rounding of exp at either end
  }
  double probability(int32_t id) const override { return std::log1p(1.0 / (static_cast<double>(id) + 1)) / log_range_; }

 private:
  int64_t v_;
  double log_range_;
};

// Walker's alias table: a sample selects a column, and then one of the two words in it.
class Unigram final : public CandidateSampler {
 public:
  Unigram(int64_t v, double beta, const Vocabulary* vocabulary) {
    if (!vocabulary) return;  // a dry run samples no candidates
    LMX_CHECK(vocabulary->size() == v, "a vocabulary of ", vocabulary->size(), " words for ", v);
    p_.resize(static_cast<size_t>(v));
    double sum = 0;
    for (int64_t k = 0; k < v; ++k) {
      const auto count = static_cast<double>(std::max<int64_t>(vocabulary->count(static_cast<int32_t>(k)), 1));
      sum += p_[static_cast<size_t>(k)] = std::pow(count, beta);
    }
    for (double& p : p_) p /= sum;
    build();
  }
  int32_t draw(RandomKey key, uint64_t index) const override {
    LMX_CHECK(!p_.empty(), "a unigram sampler without a vocabulary");
    const double u = key.uniform(index) * static_cast<double>(p_.size());
    const size_t column = std::min(static_cast<size_t>(u), p_.size() - 1);
    return u - static_cast<double>(column) < stay_[column] ? static_cast<int32_t>(column) : alias_[column];
  }
  double probability(int32_t id) const override {
    LMX_CHECK(!p_.empty(), "a unigram sampler without a vocabulary");
    return p_[static_cast<size_t>(id)];
  }

 private:
  void build() {
    const size_t n = p_.size();
    stay_.assign(n, 1.0);
    alias_.resize(n);
    std::vector<double> rest(n);
    std::vector<size_t> poor, rich;
    for (size_t k = 0; k < n; ++k) {
      alias_[k] = static_cast<int32_t>(k);
      rest[k] = p_[k] * static_cast<double>(n);
      (rest[k] < 1 ? poor : rich).push_back(k);
    }
    while (!poor.empty() && !rich.empty()) {
      const size_t p = poor.back(), r = rich.back();
      poor.pop_back();
      stay_[p] = rest[p];
      alias_[p] = static_cast<int32_t>(r);
      rest[r] -= 1 - rest[p];
      if (rest[r] < 1) {
        rich.pop_back();
        poor.push_back(r);
      }
    }
  }

  std::vector<double> p_, stay_;
  std::vector<int32_t> alias_;
};

}  // namespace

std::unique_ptr<CandidateSampler> make_sampler(const std::string& proposal, int64_t vocab_size, double beta,
                                               const Vocabulary* vocabulary) {
  if (vocab_size < 1) throw UserError(str("[sampler] a vocabulary of ", vocab_size, " words"));
  if (proposal == "uniform") return std::make_unique<Uniform>(vocab_size);
  if (proposal == "log_uniform") return std::make_unique<LogUniform>(vocab_size);
  if (proposal == "unigram") return std::make_unique<Unigram>(vocab_size, beta, vocabulary);
  const std::vector<std::string> known{"uniform", "log_uniform", "unigram"};
  throw UserError(str("[sampler] unknown proposal '", proposal, "'", did_you_mean(proposal, known)));
}

}  // namespace lmx

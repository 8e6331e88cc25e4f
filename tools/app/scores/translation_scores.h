// Translation metrics whose corpus score is computed from sums over sentences, with confidence intervals and
// significance tests for the difference between two systems. All results agree with sacreBLEU 2.6, including random
// numbers, which are those of NumPy's default generator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/scores/bleu.h"

namespace lmx::app {

// The contribution of each sentence to the sums: row i contains the `width` numbers of sentence i.
struct SentenceStatistics {
  size_t width = 0;
  std::vector<double> values;  // (sentences, width)
  size_t sentences() const { return width == 0 ? 0 : values.size() / width; }
  std::span<const double> of(size_t sentence) const { return {values.data() + sentence * width, width}; }
  std::vector<double> sums() const;  // (width)
};

class CorpusMetric {
 public:
  virtual ~CorpusMetric();
  virtual std::string name() const = 0;  // "BLEU", "chrF2", "TER"
  // Returns the fields after the number of references, such as "case:mixed|eff:no|tok:13a|smooth:exp".
  virtual std::string settings() const = 0;
  virtual bool lower_is_better() const { return false; }
  // `references[r]` contains one line for each line of the hypothesis. UserError: as bleu().
  virtual SentenceStatistics statistics(const Lines& hypothesis, std::span<const Lines> references) const = 0;
  // Returns the score from the `sums` of some sentences' statistics: 0 to 100 (TER: >= 0).
  virtual double score(std::span<const double> sums) const = 0;
  // Returns the text to print after the score, such as "69.1/44.9/31.0/21.8 (BP = 1.000 ...)", or "".
  virtual std::string details(std::span<const double> sums) const;
};

struct TerOptions {
  bool case_sensitive = false;
};

// UserError: a setting out of its range, or an unknown name.
std::unique_ptr<CorpusMetric> make_bleu(const BleuOptions& options);
std::unique_ptr<CorpusMetric> make_chrf(const ChrfOptions& options);
// Translation edit rate (Snover et al. 2006): 100 times the number of edits (insertions, deletions, substitutions and
// shifts of up to 10 words) over the mean length of the references, with the search heuristics of the program Tercom.
std::unique_ptr<CorpusMetric> make_ter(const TerOptions& options);

// Returns, for example, "nrefs:1|bs:1000|seed:12345|case:mixed|...|version:lmx-0.2.0". `test` is the part after the
// number of references, or "".
std::string metric_signature(const CorpusMetric& metric, size_t references, const std::string& test = "");

inline constexpr uint64_t kScoreSeed = 12345;  // as in sacreBLEU

struct ScoreInterval {
  double mean = 0;        // over the resamples
  double half_width = 0;  // half of the distance between the 2.5 % and 97.5 % quantiles
};
// Bootstrap resampling (Koehn 2004): scores `resamples` corpora, each sampled from the sentences with replacement.
// UserError: fewer than 2 resamples.
ScoreInterval bootstrap_interval(const CorpusMetric& metric, const SentenceStatistics& statistics,
                                 int64_t resamples = 1000, uint64_t seed = kScoreSeed);

struct PairedScore {
  double score = 0;
  double p_value =
      0;  // probability of a difference to the baseline at least as large, if the systems were equally good
  ScoreInterval interval, baseline_interval;  // each equals what bootstrap_interval() returns for the system
};
// Paired bootstrap (Koehn 2004): both systems on the same resamples; two-sided. REQUIRES: equal numbers of sentences.
PairedScore paired_bootstrap(const CorpusMetric& metric, const SentenceStatistics& baseline,
                             const SentenceStatistics& system, int64_t resamples = 1000, uint64_t seed = kScoreSeed);
// Approximate randomisation (Riezler and Maxwell 2005): randomly swaps the two systems' outputs of a sentence;
// two-sided. The intervals stay 0.
PairedScore paired_randomization(const CorpusMetric& metric, const SentenceStatistics& baseline,
                                 const SentenceStatistics& system, int64_t trials = 10000, uint64_t seed = kScoreSeed);

// The random numbers of numpy.random.default_rng(seed): the generator PCG64 (O'Neill 2014, XSL-RR 128/64), seeded by
// NumPy's SeedSequence. Translation scores use them for resampling, so intervals and p-values equal sacreBLEU's.

class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);
  // Generator.integers(n) and Generator.choice(n): uniform in [0, n). REQUIRES: 0 < n <= 2^32 - 1.
  uint32_t below(uint32_t n);
  // One call of Generator.integers(2, dtype=bool) takes its elements from blocks of 32 bits. A `Bits` object is one
  // such call.
  class Bits {
   public:
    explicit Bits(NumpyRandom& random) : random_(random) {}
    bool next();

   private:
    NumpyRandom& random_;
    uint32_t buffer_ = 0;
    int left_ = 0;
  };

 private:
  __extension__ using Wide = unsigned __int128;

  uint64_t next64();
  uint32_t next32();  // the low half of 64 bits, then the high half

  Wide state_ = 0, increment_ = 0;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

}  // namespace lmx::app

// Beam search over a model in which every prefix of every sentence has different random logits, compared with an
// enumeration of all translations.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "app/translation/search.h"
#include "app/translation/translate.h"
#include "lmx/error.h"
#include "lmx/parallel.h"
#include "lmx/random.h"
#include "ops/losses/top_k.h"
#include "train/fixture.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

constexpr int32_t kEos = Vocabulary::kEos, kUnk = Vocabulary::kUnk;

// Logits of the token that follows `prefix` in the translation of sentence `sentence`.
using Model = std::function<std::vector<float>(int64_t sentence, const std::vector<int32_t>& prefix)>;

Model random_model(int64_t words, float spread = 3) {
  return [=](int64_t sentence, const std::vector<int32_t>& prefix) {
    RandomKey key = RandomKey(static_cast<uint64_t>(sentence)).fold("test");
    for (const int32_t id : prefix) key = key.fold(str(id));
    std::vector<float> logits(static_cast<size_t>(words));
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = spread * static_cast<float>(key.uniform(i));
    return logits;
  };
}

// Stores the prefix of each row, as a real model stores its keys and values. The features are the logits.
class TableDecoding : public Decoding {
 public:
  TableDecoding(Model model, std::vector<int64_t> sentences) : model_(std::move(model)) {
    for (const int64_t s : sentences) rows_.push_back({s, {}});
  }
  Tensor step(Context& ctx, std::span<const int32_t> ids) override {
    EXPECT_EQ(ids.size(), rows_.size());
    std::vector<float> all;
    for (size_t i = 0; i < rows_.size(); ++i) {
      EXPECT_TRUE(!first_ || ids[i] == kEos);
      if (!first_) rows_[i].prefix.push_back(ids[i]);
      const std::vector<float> logits = model_(rows_[i].sentence, rows_[i].prefix);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    first_ = false;
    widths_.push_back(rows_.size());
    const auto n = static_cast<int64_t>(rows_.size());
    return Tensor::from<float>(ctx.allocator, {n, static_cast<int64_t>(all.size()) / n}, all);
  }
  void select(Context&, std::span<const int64_t> from) override {
    std::vector<Row> next;
    for (const int64_t i : from) next.push_back(rows_.at(static_cast<size_t>(i)));
    for (size_t i = 1; i < next.size(); ++i) EXPECT_LE(next[i - 1].sentence, next[i].sentence) << "rows out of order";
    rows_ = std::move(next);
  }
  const std::vector<size_t>& widths() const { return widths_; }  // rows of each step

 private:
  struct Row {
    int64_t sentence;
    std::vector<int32_t> prefix;
  };
  Model model_;
  std::vector<Row> rows_;
  std::vector<size_t> widths_;
  bool first_ = true;
};

using Found = std::vector<std::vector<Hypothesis>>;

Found search(const Model& model, std::vector<int64_t> sentences, const SearchOptions& options,
             std::vector<size_t>* widths = nullptr) {
  Context ctx;
  TableDecoding decoding(model, sentences);
  const std::vector<int64_t> lengths(sentences.size(), 3);
  Found found = beam_search(
      ctx, decoding, [](const Tensor& features) { return features; }, lengths, options);
  if (widths) *widths = decoding.widths();
  return found;
}

std::vector<double> log_softmax(const std::vector<float>& logits) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  std::vector<double> out;
  for (const float x : logits) out.push_back(static_cast<double>(x) - std::log(sum));
  return out;
}

double penalty(const SearchOptions& o, size_t length) {
  const auto l = static_cast<double>(length);
  return o.length_penalty == "fairseq" ? std::pow(l, o.alpha)
         : o.length_penalty == "wu"    ? std::pow((5 + l) / 6, o.alpha)
                                       : 1;
}

// Every translation from `least` to `most` tokens.
void enumerate(const Model& model, int64_t sentence, const SearchOptions& o, size_t most, Hypothesis prefix,
               std::vector<Hypothesis>& all) {
  const std::vector<double> logprobs = log_softmax(model(sentence, prefix.ids));
  for (int32_t id = 0; id < static_cast<int32_t>(logprobs.size()); ++id) {
    Hypothesis next = prefix;
    next.logprob += logprobs[static_cast<size_t>(id)];
    if (id == kEos) {
      if (prefix.ids.size() < static_cast<size_t>(o.min_length)) continue;
      next.score = next.logprob / penalty(o, prefix.ids.size() + 1);
      all.push_back(next);
    } else if ((id != kUnk || o.write_unknown) && prefix.ids.size() < most) {
      next.ids.push_back(id);
      enumerate(model, sentence, o, most, next, all);
    }
  }
}

void expect_same(const Hypothesis& a, const Hypothesis& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_NEAR(a.logprob, b.logprob, 1e-5);
  EXPECT_NEAR(a.score, b.score, 1e-5);
}

SearchOptions options(int64_t beam, const std::string& kind = "fairseq", double alpha = 0.6) {
  SearchOptions o;
  o.beam = beam;
  o.length_penalty = kind;
  o.alpha = alpha;
  o.max_factor = 0;
  o.max_offset = 4;
  return o;
}

TEST(BeamSearch, WideEnoughItFindsWhatEnumerationFinds) {
  const Model model = random_model(5);
  for (const char* kind : {"fairseq", "wu", "none"}) {
    for (const bool unknown : {false, true}) {
      for (const int64_t least : {0, 2}) {
        SearchOptions o = options(1000, kind, 1.0);
        o.write_unknown = unknown;
        o.min_length = least;
        const Found found = search(model, {1, 2, 3}, o);
        for (int64_t sentence = 1; sentence <= 3; ++sentence) {
          SCOPED_TRACE(str(kind, " unknown ", unknown, " least ", least, " sentence ", sentence));
          std::vector<Hypothesis> all;
          enumerate(model, sentence, o, 4, {}, all);
          std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
          const auto& mine = found[static_cast<size_t>(sentence - 1)];
          ASSERT_EQ(mine.size(), all.size());
          for (size_t i = 0; i < all.size(); ++i) expect_same(mine[i], all[i]);
        }
      }
    }
  }
}

TEST(BeamSearch, OneIsGreedy) {
  const Model model = random_model(30);
  for (int64_t sentence = 0; sentence < 20; ++sentence) {
    SearchOptions o = options(1);
    o.max_offset = 12;
    const Found found = search(model, {sentence}, o);
    ASSERT_EQ(found[0].size(), 1u);
    Hypothesis greedy;
    for (bool ended = false; !ended;) {
      const std::vector<double> p = log_softmax(model(sentence, greedy.ids));
      int32_t best = kEos;
      for (int32_t id = 1; id < 30 && greedy.ids.size() < 12; ++id)
        if (p[static_cast<size_t>(id)] > p[static_cast<size_t>(best)]) best = id;
      greedy.logprob += p[static_cast<size_t>(best)];
      ended = best == kEos;
      if (!ended) greedy.ids.push_back(best);
    }
    greedy.score = greedy.logprob / penalty(o, greedy.ids.size() + 1);
    expect_same(found[0][0], greedy);
  }
}

TEST(BeamSearch, AWiderBeamIsNeverWorseThanGreedyHere) {
  const Model model = random_model(12, 6);
  double narrow = 0, wide = 0;
  for (int64_t sentence = 0; sentence < 50; ++sentence) {
    narrow += search(model, {sentence}, options(1, "none"))[0][0].score;
    wide += search(model, {sentence}, options(8, "none"))[0][0].score;
  }
  EXPECT_GT(wide, narrow);
}

TEST(BeamSearch, ABatchIsTheSentencesAlone) {
  const Model words = random_model(40, 8);
  const Model model = [&](int64_t sentence, const std::vector<int32_t>& prefix) {
    std::vector<float> logits = words(sentence, prefix);
    if (static_cast<int64_t>(prefix.size()) >= sentence / 2) logits[kEos] += 7;  // sentences have different lengths
    return logits;
  };
  std::vector<int64_t> sentences(17);
  std::iota(sentences.begin(), sentences.end(), 0);
  SearchOptions o = options(4);
  o.max_offset = 15;
  std::vector<size_t> widths;
  const Found together = search(model, sentences, o, &widths);
  for (const int64_t s : sentences) {
    const Found alone = search(model, {s}, o);
    const auto& batched = together[static_cast<size_t>(s)];
    ASSERT_EQ(alone[0].size(), batched.size());
    for (size_t i = 0; i < batched.size(); ++i) {
      EXPECT_EQ(alone[0][i].ids, batched[i].ids);
      EXPECT_EQ(alone[0][i].score, batched[i].score);  // bit-equal
    }
  }
  EXPECT_EQ(widths.front(), 17u);  // one row for each sentence before hypotheses differ
  EXPECT_LE(*std::max_element(widths.begin(), widths.end()), 17u * 4);
  EXPECT_LT(widths.back(), 17u * 4) << "sentences that are done stay in the batch";
}

TEST(BeamSearch, TiesGoToTheSmallerId) {
  const Model flat = [](int64_t, const std::vector<int32_t>&) { return std::vector<float>(600, 0.5f); };
  SearchOptions o = options(3, "none");
  o.max_offset = 2;
  for (const int threads : {1, 2, 4}) {
    set_num_threads(threads);
    const Found found = search(flat, {0, 1}, o);
    ASSERT_EQ(found[0].size(), 3u);
    EXPECT_EQ(found[0][0].ids, (std::vector<int32_t>{}));
    EXPECT_EQ(found[0][1].ids, (std::vector<int32_t>{2}));
    EXPECT_EQ(found[0][2].ids, (std::vector<int32_t>{2, 2}));
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(found[1][i].ids, found[0][i].ids);
  }
}

TEST(BeamSearch, LengthsAndUnknown) {
  const Model eager = [](int64_t, const std::vector<int32_t>&) { return std::vector<float>{9, 8, 1, 0}; };
  SearchOptions o = options(1);
  EXPECT_EQ(search(eager, {0}, o)[0][0].ids.size(), 0u);  // <unk> is the most probable token, but never written
  o.min_length = 3;
  EXPECT_EQ(search(eager, {0}, o)[0][0].ids, (std::vector<int32_t>{2, 2, 2}));
  o.write_unknown = true;
  o.max_factor = 2;  // 2 * 3 source tokens + 4
  EXPECT_EQ(search(eager, {0}, o)[0][0].ids, std::vector<int32_t>(10, kUnk));
  o.max_factor = 0;
  o.max_offset = -5;
  o.min_length = 0;
  EXPECT_TRUE(search(eager, {0}, o)[0][0].ids.empty());
  o.min_length = 6;  // above the greatest length, 0
  EXPECT_THAT(user_error([&] { search(eager, {0}, o); }), Names("least length, 6", "greatest, 0"));
}

TEST(BeamSearch, NothingToTranslateAndLogitsThatAreNoNumbers) {
  EXPECT_TRUE(search(random_model(5), {}, options(4)).empty());
  for (const float wrong : {NAN, INFINITY}) {
    const Model broken = [=](int64_t, const std::vector<int32_t>& prefix) {
      return std::vector<float>{0, -5, prefix.size() == 1 ? wrong : 0, 0};
    };
    EXPECT_THAT(run_error([&] { search(broken, {0}, options(2)); }), Names("no numbers at token 2"));
  }
  const Model impossible = [](int64_t, const std::vector<int32_t>&) { return std::vector<float>(4, -INFINITY); };
  EXPECT_THAT(run_error([&] { search(impossible, {0}, options(2)); }), Names("no numbers"));
}

TEST(BeamSearch, OptionsAreChecked) {
  const auto refused = [](const std::function<void(SearchOptions&)>& change) {
    SearchOptions o;
    change(o);
    return user_error([&] { check_search(o); });
  };
  EXPECT_EQ(refused([](SearchOptions&) {}), "no error");
  EXPECT_THAT(refused([](SearchOptions& o) { o.beam = 0; }), Names("hypothesis"));
  EXPECT_THAT(refused([](SearchOptions& o) { o.length_penalty = "gnmt"; }), Names("fairseq, wu, none"));
  EXPECT_THAT(refused([](SearchOptions& o) { o.max_factor = -1; }), Names("a x + b"));
  EXPECT_THAT(refused([](SearchOptions& o) { o.max_offset = NAN; }), Names("a x + b"));
  EXPECT_THAT(refused([](SearchOptions& o) { o.min_length = -1; }), Names(">= 0"));
  // Sizes whose search would need more memory or time than there is.
  EXPECT_THAT(refused([](SearchOptions& o) { o.beam = 10'001; }), Names("at most 10000", "got 10001"));
  EXPECT_THAT(refused([](SearchOptions& o) { o.max_factor = 1e300; }), Names("a x + b", "at most 1000000", "1e+300"));
  EXPECT_THAT(refused([](SearchOptions& o) { o.max_offset = 1'000'001; }), Names("a x + b", "at most 1000000"));
  EXPECT_EQ(refused([](SearchOptions& o) { o.beam = 10'000; }), "no error");
  EXPECT_EQ(refused([](SearchOptions& o) { o.max_offset = 1'000'000; }), "no error");
  SearchOptions o;
  read_length_penalty("wu:1.5", o);
  EXPECT_EQ(o.length_penalty, "wu");
  EXPECT_EQ(o.alpha, 1.5);
  read_length_penalty("none", o);
  EXPECT_EQ(o.length_penalty, "none");
  EXPECT_THAT(user_error([&] { read_length_penalty("fairseqq:1", o); }), Names("'fairseq'?"));
  EXPECT_THAT(user_error([&] { read_length_penalty("wu", o); }), Names("fairseq:0.6"));
  EXPECT_THAT(user_error([&] { read_length_penalty("wu:x", o); }), Names("fairseq:0.6"));
}

TEST(TopK, IsTheHeadOfTheSortedRow) {
  const RandomKey key = RandomKey(7).fold("top");
  uint64_t at = 0;
  for (const int64_t n : {1, 2, 255, 256, 257, 1000, 5000}) {
    for (const int64_t k : {1, 2, 8, 300}) {
      for (const int levels : {3, 1'000'000}) {  // many ties; almost none
        std::vector<float> x(static_cast<size_t>(n));
        for (float& v : x) v = static_cast<float>(std::floor(key.uniform(at++) * levels)) / 16;
        const std::vector<int32_t> without{0, 1};
        std::vector<int32_t> order(x.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int32_t a, int32_t b) { return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)]; });
        std::erase_if(order, [](int32_t id) { return id <= 1; });
        order.resize(std::min(order.size(), static_cast<size_t>(k)));
        const ops::TopRow row = ops::top_k(x.data(), n, k, without);
        std::vector<int32_t> ids;
        for (const ops::Entry& e : row.entries) ids.push_back(e.id);
        EXPECT_EQ(ids, order) << n << " " << k << " " << levels;
        double sum = 0;
        const double top = *std::max_element(x.begin(), x.end());
        for (const float v : x) sum += std::exp(static_cast<double>(v) - top);
        EXPECT_NEAR(row.log_sum_exp, top + std::log(sum), 1e-5 * std::max(1.0, std::abs(top)));
      }
    }
  }
}

}  // namespace
}  // namespace lmx::app

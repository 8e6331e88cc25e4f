// Text through search and back, with a model that copies its source: empty and long lines, unknown words, and the order
// of lines.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "app/scores/bleu.h"
#include "app/translation/translate.h"
#include "backend/serial.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/parallel.h"
#include "train/fixture.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

constexpr int32_t kWords = 40;

// Each letter is a token; 'a' has id 2. Other characters are unknown. The letter 'z' joins words.
class LetterCodec : public TextCodec {
 public:
  std::vector<int32_t> encode(std::string_view line) const override {
    std::vector<int32_t> ids;
    for (const char c : line) {
      if (c == ' ' && ids.empty()) continue;
      ids.push_back(c == ' ' ? 2 + 25 : c >= 'a' && c < 'z' ? 2 + c - 'a' : Vocabulary::kUnk);
    }
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) const override { return "<" + decode_tokens(ids) + ">"; }
  std::string decode_tokens(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += id == 2 + 25 ? ' ' : static_cast<char>('a' + id - 2);
    return text;
  }
  const std::string& language() const override { return language_; }

 private:
  std::string language_ = "xx";
};

// Position t of the translation is position t of the source, with high probability; the next id is second.
class CopyDecoding : public Decoding {
 public:
  CopyDecoding(std::span<const int32_t> source, const std::vector<int64_t>& lengths) {
    for (size_t at = 0; const int64_t n : lengths) {
      rows_.emplace_back(source.begin() + static_cast<std::ptrdiff_t>(at),
                         source.begin() + static_cast<std::ptrdiff_t>(at + static_cast<size_t>(n)));
      at += static_cast<size_t>(n);
    }
  }
  Tensor step(Context& ctx, std::span<const int32_t> ids) override {
    EXPECT_EQ(ids.size(), rows_.size());
    const auto n = static_cast<int64_t>(rows_.size());
    Tensor logits = ctx.zeros({n, kWords});
    for (int64_t r = 0; r < n; ++r) {
      const std::vector<int32_t>& source = rows_[static_cast<size_t>(r)];
      const int32_t id = at_ < source.size() ? source[at_] : Vocabulary::kEos;
      logits.data<float>()[r * kWords + id] = 9;
      logits.data<float>()[r * kWords + (id + 1) % kWords] += 6;
    }
    ++at_;
    return logits;
  }
  void select(Context&, std::span<const int64_t> from) override {
    std::vector<std::vector<int32_t>> next;
    for (const int64_t i : from) next.push_back(rows_[static_cast<size_t>(i)]);
    rows_ = std::move(next);
  }

 private:
  std::vector<std::vector<int32_t>> rows_;
  size_t at_ = 0;
};

class CopyModel : public Model {
 public:
  explicit CopyModel(std::vector<int64_t>* batches, bool copies = true) : batches_(batches), copies_(copies) {}
  std::vector<ParameterSpec> parameters() const override { return {}; }
  bool translates() const override { return copies_; }
  std::unique_ptr<Decoding> decode(Context&, const ParameterStore&, const Tensor& source,
                                   const std::vector<int64_t>& lengths) const override {
    {
      const std::lock_guard lock(mutex_);
      batches_->push_back(static_cast<int64_t>(lengths.size()));
    }
    if (on_decode) on_decode(static_cast<int64_t>(source.numel()));
    return std::make_unique<CopyDecoding>(source.values<int32_t>(), lengths);
  }
  Var forward(Context&, const ParameterStore&, const Batch&, ModelState&) const override { return {}; }
  ModelState initial_state(Context&, int64_t) const override { return {}; }
  int64_t feature_size() const override { return kWords; }

  std::function<void(int64_t tokens)> on_decode;

 private:
  mutable std::mutex mutex_;  // batches are searched by several threads
  std::vector<int64_t>* batches_;
  bool copies_;
};

class FeaturesAreLogits : public Loss {
 public:
  std::vector<ParameterSpec> parameters() const override { return {}; }
  LossValue forward(Context&, const ParameterStore&, const Var&, const Tensor&, const StepPlan&) const override {
    return {};
  }
  Tensor evaluate(Context&, const ParameterStore&, const Tensor&, const Tensor&, const LogitsVisitor&) const override {
    return {};
  }
  Tensor logits(Context&, const ParameterStore&, const Tensor& features) const override { return features; }
  const std::string& normalize() const override { return normalize_; }

 private:
  std::string normalize_ = "token";
};

class Translate : public testing::Test {
 protected:
  Translate() {
    auto model = std::make_unique<CopyModel>(&batches_);
    model_ = model.get();
    network_.model = std::move(model);
    network_.loss = std::make_unique<FeaturesAreLogits>();
    codecs_.source = codecs_.target = std::make_shared<LetterCodec>();
  }
  std::vector<std::vector<Translation>> translate(const Lines& lines, const TranslateOptions& options = {},
                                                  int64_t vocabulary = kWords) {
    return TextTranslator({ctx_, network_, params_, codecs_, vocabulary}, options).translate(lines);
  }
  std::string best(const std::string& line, const TranslateOptions& options = {}) {
    return translate({line}, options)[0][0].text;
  }

  Context ctx_;
  Network network_;
  CopyModel* model_;
  ParameterStore params_;
  TextCodecs codecs_;
  std::vector<int64_t> batches_;
  const ThreadLimit threads_{1};
};

// Lines of 1, 2, 3... letters.
Lines growing(size_t count) {
  Lines lines;
  for (size_t i = 1; i <= count; ++i) lines.emplace_back(i, static_cast<char>('a' + i % 25));
  return lines;
}

TEST_F(Translate, KeepsTheOrderOfLinesAndEmptyOnes) {
  Lines lines;
  for (size_t i = 0; i < 70; ++i)
    lines.push_back(i % 7 == 3 ? std::string(i % 2, ' ')
                               : std::string(1 + i * 31 % 50, static_cast<char>('a' + i % 25)));
  TranslateOptions o;
  o.batch = 8;
  const auto found = translate(lines, o);
  ASSERT_EQ(found.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(found[i].size(), 1u);
    if (i % 7 == 3) {
      EXPECT_EQ(found[i][0].text, "");
      EXPECT_EQ(found[i][0].length, 0);
    } else {
      EXPECT_EQ(found[i][0].text, "<" + lines[i] + ">");
      EXPECT_EQ(found[i][0].tokens, lines[i]);
      EXPECT_EQ(found[i][0].length, static_cast<int64_t>(lines[i].size()) + 1);
      EXPECT_LT(found[i][0].logprob, 0);
    }
  }
  EXPECT_EQ(batches_, (std::vector<int64_t>{8, 8, 8, 8, 8, 8, 8, 4}));
  const TranslateOptions usual;
  EXPECT_TRUE(translate({}, usual).empty());
}

TEST_F(Translate, EachThreadSearchesABatchIfThereIsOneForEach) {
  set_num_threads(3);
  if (num_threads() < 3) GTEST_SKIP() << "ThreadSanitizer allows one thread";
  std::mutex mutex;
  std::condition_variable changed;
  int searching = 0, together = 0;
  std::vector<int> threads;
  model_->on_decode = [&](int64_t) {
    std::unique_lock lock(mutex);
    threads.push_back(num_threads());
    together = std::max(together, ++searching);
    changed.notify_all();
    // A batch waits for two others, so that all three are searched at once, if they can be.
    changed.wait_for(lock, std::chrono::seconds(5), [&] { return together == 3; });
    --searching;
  };
  TranslateOptions o;
  o.batch = 2;
  const Lines lines = growing(6);
  auto found = translate(lines, o);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(found[i][0].tokens, lines[i]);
  EXPECT_EQ(together, 3);
  EXPECT_EQ(threads, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(num_threads(), 3);
  // Two batches: all threads share the steps of one after the other.
  threads.clear();
  o.batch = 3;
  found = translate(lines, o);
  EXPECT_EQ(threads, (std::vector<int>{3, 3}));
  EXPECT_EQ(found[4][0].tokens, lines[4]);
}

TEST_F(Translate, AnErrorIsThatOfTheFirstBatchForAnyNumberOfThreads) {
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    model_->on_decode = [](int64_t tokens) {
      if (tokens == 13) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // 12 letters: the first batch
      throw RunError("a batch of " + std::to_string(tokens) + " tokens");
    };
    TranslateOptions o;
    o.batch = 1;
    EXPECT_THAT(run_error([&] { translate(growing(12), o); }), Names("a batch of 13 tokens"));
  }
}

TEST_F(Translate, NBestComeBestFirst) {
  TranslateOptions o;
  o.n_best = 4;
  const auto found = translate({"abc"}, o)[0];
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].tokens, "abc");
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_GE(found[i - 1].score, found[i].score);
    EXPECT_NE(found[i - 1].tokens, found[i].tokens);
  }
}

TEST_F(Translate, LongLinesAreTranslatedInPieces) {
  TranslateOptions o;
  o.max_source = 10;
  std::string line, pieces;
  for (int i = 0; i < 20; ++i) line += (i ? " " : "") + std::string(3, static_cast<char>('a' + i));
  const auto found = translate({"ab", line, "cd"}, o);
  EXPECT_EQ(found[1][0].tokens, line);  // no word is lost, and pieces end between words
  EXPECT_EQ(found[0][0].tokens, "ab");
  EXPECT_EQ(found[2][0].tokens, "cd");
  EXPECT_EQ(translate({std::string(35, 'q')}, o)[0][0].tokens,
            std::string(10, 'q') + " " + std::string(10, 'q') + " " + std::string(10, 'q') + " " + std::string(5, 'q'));
}

TEST_F(Translate, ALineOf100000Words) {
  std::string line;
  for (int i = 0; i < 100'000; ++i) line += i ? " ab" : "ab";
  TranslateOptions o;
  o.search.beam = 1;
  o.search.max_factor = 1;
  const auto found = translate({line}, o);
  EXPECT_EQ(found[0][0].tokens, line);
  for (const int64_t n : batches_) EXPECT_LE(n, 32 * 128 / 800);  // a batch of long pieces contains few of them
}

TEST_F(Translate, UnknownWords) {
  TranslateOptions o;
  EXPECT_EQ(best("ab X cd", o).find("X"), std::string::npos);
  EXPECT_EQ(best("ab X cd", o).find("unk"), std::string::npos);
  o.replace_unknown = "keep";
  EXPECT_EQ(best("abXcd", o), "<ab> <unk> <cd>");
  o.replace_unknown = "copy";
  EXPECT_EQ(best("abXcd ef Yg", o), "<ab> abXcd <cd ef > Yg <g>");
  EXPECT_EQ(best("X", o), "X");
  EXPECT_EQ(best("XY", o), "XY");  // two unknown letters of one word: no word is left for the second one
}

TEST_F(Translate, Refusals) {
  const auto refused = [&](const std::function<void(TranslateOptions&)>& change) {
    TranslateOptions o;
    change(o);
    return user_error([&] { translate({"a"}, o); });
  };
  EXPECT_THAT(refused([](auto& o) { o.replace_unknown = "copi"; }), Names("'copy'?"));
  EXPECT_THAT(refused([](auto& o) { o.batch = 0; }), Names("1 to 1000000 sentences, got 0"));
  EXPECT_THAT(refused([](auto& o) { o.max_source = 0; }), Names("at least 1 token"));
  EXPECT_THAT(refused([](auto& o) { o.n_best = 5; }), Names("n-best", "4", "5"));
  EXPECT_THAT(refused([](auto& o) { o.search.beam = 0; }), Names("beam"));
  const TranslateOptions plain;
  EXPECT_THAT(user_error([&] { translate({"xyx"}, plain, 20); }), Names("20 entries"));
  network_.model = std::make_unique<CopyModel>(&batches_, false);
  EXPECT_THAT(refused([](auto&) {}), Names("not translate"));
}

}  // namespace
}  // namespace lmx::app

// The fit of U = a N^b and the counting of types.
#include "app/corpora/zipf.h"
#include "app/datasets/open.h"
#include "data/dataset.h"

#include <cmath>

#include "app/corpora/corpora.h"
#include "fixture.h"
#include "names.h"
#include "temp_folder.h"

namespace lmx {
namespace {

using lmx_test::Names;
using lmx_test::user_error;

TEST(PowerLaw, ExactData) {
  std::vector<TypesAtTokens> points;
  for (int64_t n = 640; n < 3'000'000; n *= 2) points.push_back({n, 7.5 * std::pow(n, 0.64), 0});
  const PowerLaw fit = fit_power_law(points);
  EXPECT_NEAR(fit.exponent, 0.64, 1e-12);
  EXPECT_NEAR(fit.factor, 7.5, 1e-9);
  EXPECT_NEAR(fit.rms, 0, 1e-12);
  ASSERT_EQ(fit.residuals.size(), points.size());
  EXPECT_NEAR(fit.at(10'240), 7.5 * std::pow(10'240, 0.64), 1e-6);
}

TEST(PowerLaw, LeastSquaresByHand) {
  // In units of ln 1000, ln N = 0, 1, 2 and ln U = 0, 1, 1: slope 1/2, intercept 1/6, residuals -1/6, 1/3, -1/6.
  std::vector<TypesAtTokens> points{{1, 1, 0}, {1000, 1000, 0}, {1000000, 1000, 0}};
  const PowerLaw fit = fit_power_law(points);
  EXPECT_NEAR(fit.exponent, 0.5, 1e-12);
  EXPECT_NEAR(std::log(fit.factor), std::log(1000.0) / 6, 1e-9);
  EXPECT_NEAR(fit.residuals[1], std::log(1000.0) / 3, 1e-9);
  EXPECT_NEAR(fit.rms, std::log(1000.0) * std::sqrt((1.0 / 36 + 1.0 / 9 + 1.0 / 36) / 3), 1e-9);
}

TEST(PowerLaw, Errors) {
  EXPECT_THAT(user_error([] { fit_power_law({}); }), Names("two different"));
  const std::vector<TypesAtTokens> one{{10, 5, 0}}, same{{10, 5, 0}, {10, 6, 0}}, zero{{10, 0, 0}, {20, 5, 0}};
  EXPECT_THAT(user_error([&] { fit_power_law(one); }), Names("1 points"));
  EXPECT_THAT(user_error([&] { fit_power_law(same); }), Names("two different"));
  EXPECT_THAT(user_error([&] { fit_power_law(zero); }), Names("0 types", "10 tokens"));
}

TEST(CountTypes, CountsExactlyWhatItDraws) {
  // Each word occurs once, hence U = N; each sequence is one word, hence U = N / 20.
  std::vector<int32_t> all(100'000), blocks(100'000);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<int32_t>(i);
    blocks[i] = static_cast<int32_t>(i / 20);
  }
  const auto each = count_types(TokenArray::of(all), {});
  ASSERT_EQ(each.size(), 7u);  // 640 ... 40,960
  for (const TypesAtTokens& p : each) {
    EXPECT_EQ(p.types, static_cast<double>(p.tokens));
    EXPECT_EQ(p.spread, 0);
  }
  for (const TypesAtTokens& p : count_types(TokenArray::of(blocks), {}))
    EXPECT_EQ(p.types, static_cast<double>(p.tokens) / 20);
  for (const TypesAtTokens& p : count_types(TokenArray::of(all), {.sequence_length = 33})) {
    EXPECT_EQ(p.types, static_cast<double>(p.tokens));
  }
}

TEST(CountTypes, OfGivenTokens) {
  EXPECT_EQ(types_in(std::vector<int32_t>{4, 0, 4, 9, 0}), 3);
  EXPECT_EQ(types_in({}), 0);
}

TEST(CountTypes, TooShort) {
  EXPECT_THAT(user_error([] { count_types(TokenArray::of(std::vector<int32_t>(2000)), {}); }), Names("2560"));
  EXPECT_THAT(user_error([] { count_types(TokenArray(), {}); }), Names("0 tokens"));
  EXPECT_THAT(user_error([] { count_types(TokenArray::of(std::vector<int32_t>(5000)), {.sequence_length = 4000}); }),
              Names("4000 tokens", "5000"));
}

TEST(RealCorpus, GutenbergFollowsThePaper) {
  if (!getenv("LMX_DATA_DIR") || !locate(find_corpus("gutenberg")).problem.empty()) {
    GTEST_SKIP() << "gutenberg is not below LMX_DATA_DIR";
  }
  const lmx_test::TempFolder cache;
  const std::string part = locate(find_corpus("gutenberg")).directory + "/part-00.txt";
  const Dataset d = open_all_types(
      parse_yaml("name: text\nfiles: ['" + part + "']\ncache_dir: " + cache.root().string() + "\n", "r"));
  const PowerLaw fit = fit_power_law(count_types(d.train, {}));
  EXPECT_NEAR(fit.exponent, 0.64, 0.05);
}

}  // namespace
}  // namespace lmx

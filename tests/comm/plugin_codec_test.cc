// Codecs that are plugins: the levels of `quantised` against plain loops, blocks at any place, sums over ranks with
// error feedback, and the keys of a recipe.
#include <cmath>
#include <map>
#include <mutex>

#include "comm/codec/codecs.h"
#include "device.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "sync/group.h"
#include "test.h"

namespace lmx {
namespace {

using namespace lmx_test;

using Floats = std::vector<float>;

CodecConfig config_of(const std::string& yaml) {
  sync_test::make_group(1);  // adds the plugins' folders
  return read_config<CodecConfig>(parse_yaml(yaml, "r.yaml"), "sync.all.codec");
}

Floats normal(int64_t n, uint64_t seed) {
  Floats v;
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<float>(RandomKey(seed).normal(static_cast<uint64_t>(i))));
  return v;
}

Tensor tensor(const Context& ctx, Shape shape, const Floats& values) {
  return ctx.upload(Tensor::from<float>(ctx.host, shape, values));
}
Floats values_of(const Context& ctx, const Tensor& t) {
  const auto reading = ctx.read<float>(t);
  const auto values = reading.get();
  return {values.begin(), values.end()};
}

// A block that begins `at` bytes after an aligned address.
Tensor encoded(Context& ctx, const Codec& codec, const Floats& v, int64_t rows, int64_t width, int64_t at = 1) {
  const int64_t size = codec.bytes(rows, width);
  Tensor block = ctx.empty({size + at}, DType::u8).slice(at, size + at);
  codec.encode(ctx, tensor(ctx, {rows, width}, v), block);
  return block;
}
Floats there_and_back(Context& ctx, const Codec& codec, const Floats& v, int64_t at = 1) {
  const auto n = static_cast<int64_t>(v.size());
  const Tensor to = ctx.empty({n});
  codec.decode(ctx, encoded(ctx, codec, v, n, 1, at), to);
  return values_of(ctx, to);
}

// The nearest of the levels to (v - offset) / scale.
size_t nearest(double v, double offset, double scale, const std::vector<double>& levels) {
  size_t best = 0;
  for (size_t i = 0; i < levels.size(); ++i)
    if (std::abs((v - offset) / scale - levels[i]) < std::abs((v - offset) / scale - levels[best])) best = i;
  return best;
}

Floats by_scale(const Floats& v, size_t block, const std::vector<double>& levels) {
  Floats out;
  for (size_t begin = 0; begin < v.size(); begin += block) {
    const size_t end = std::min(v.size(), begin + block);
    double scale = 0;
    for (size_t i = begin; i < end; ++i) scale = std::max(scale, std::abs(static_cast<double>(v[i])));
    for (size_t i = begin; i < end; ++i)
      out.push_back(static_cast<float>(scale * levels[nearest(static_cast<double>(v[i]), 0, scale, levels)]));
  }
  return out;
}

// The signs, times the root of the mean square of the block.
Floats by_mean_square(const Floats& v, size_t block) {
  Floats out;
  for (size_t begin = 0; begin < v.size(); begin += block) {
    const size_t end = std::min(v.size(), begin + block);
    double squares = 0;
    for (size_t i = begin; i < end; ++i) squares += static_cast<double>(v[i]) * static_cast<double>(v[i]);
    for (size_t i = begin; i < end; ++i)
      out.push_back(static_cast<float>(std::copysign(std::sqrt(squares / static_cast<double>(end - begin)), v[i])));
  }
  return out;
}

// Mean and standard deviation of all values; 2^bits intervals of 6 / 2^bits deviations, and the means in them.
Floats by_deviation(const Floats& v, int bits) {
  const double n = static_cast<double>(v.size()), bins = 1 << bits;
  double mean = 0, squares = 0;
  for (const float x : v) mean += static_cast<double>(x) / n;
  for (const float x : v) squares += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean);
  std::vector<double> levels;
  for (double i = -bins / 2; i < bins / 2; ++i) levels.push_back(i * 6 / bins);
  std::map<size_t, std::pair<double, double>> found;
  std::vector<size_t> codes;
  for (const float x : v) {
    codes.push_back(nearest(static_cast<double>(x), mean, std::sqrt(squares / n), levels));
    found[codes.back()].first += static_cast<double>(x);
    ++found[codes.back()].second;
  }
  Floats out;
  for (const size_t code : codes) out.push_back(static_cast<float>(found[code].first / found[code].second));
  return out;
}

class PluginCodec : public testing::TestWithParam<Device::Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Device::Kind::cuda && load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  }
};
INSTANTIATE_TEST_SUITE_P(Cpu, PluginCodec, testing::Values(Device::Kind::cpu));
INSTANTIATE_TEST_SUITE_P(Device, PluginCodec, testing::Values(Device::Kind::cuda));

TEST_P(PluginCodec, LevelsEqualPlainLoops) {
  Context ctx = lmx_test::context_on(GetParam());
  const Floats v = normal(1000, 3);
  const auto expect = [&](const std::string& yaml, const Floats& want) {
    const Floats got = there_and_back(ctx, *make_codec(config_of(yaml)), v);
    for (size_t i = 0; i < v.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6) << yaml << ' ' << i;
  };
  std::vector<double> eight, four;
  for (int i = -127; i <= 127; ++i) eight.push_back(i / 127.0);
  for (int i = -7; i <= 7; ++i) four.push_back(i / 7.0);
  expect("{kind: quantised}", by_scale(v, 256, eight));
  expect("{kind: quantised, bits: 4, block: 7}", by_scale(v, 7, four));
  expect("{kind: quantised, bits: 2, block: 0}", by_scale(v, 1000, {-1, 0, 1}));
  std::vector<double> powers{0};
  for (int e = -6; e <= 0; ++e) {
    powers.push_back(std::ldexp(1, e));
    powers.insert(powers.begin(), -std::ldexp(1, e));
  }
  expect("{kind: quantised, bits: 4, levels: e3m0}", by_scale(v, 256, powers));
  expect("{kind: sign}", by_mean_square(v, 1000));
  expect("{kind: sign, block: 7}", by_mean_square(v, 7));
  for (const int bits : {2, 4, 8})
    expect(str("{kind: quantised, levels: statistical, block: 0, bits: ", bits, "}"), by_deviation(v, bits));
}

TEST_P(PluginCodec, BlocksAreWrittenAtRowsAndColumns) {
  Context ctx = lmx_test::context_on(GetParam());
  const auto codec = make_codec(config_of("{kind: quantised}"));
  const Floats v{1, 2, 3, 4};
  BlockPlace place(tensor(ctx, {3, 4}, Floats(12, 10)));
  place.rows = place.columns = 2;
  place.column = 1;
  place.at = ctx.upload(std::vector<int32_t>{2, 0});
  codec->decode(ctx, encoded(ctx, *codec, v, 2, 2), place);
  codec->add(ctx, encoded(ctx, *codec, v, 2, 2), place);
  const Floats got = values_of(ctx, place.tensor), want{10, 6, 8, 10, 10, 10, 10, 10, 10, 2, 4, 10};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.04) << i;
}

// The part of the error that is kept becomes the residual; the counters contain the whole error.
TEST_P(PluginCodec, FeedbackKeepsItsPartOfTheError) {
  Context ctx = lmx_test::context_on(GetParam());
  const auto codec = make_codec(config_of("{kind: quantised, bits: 2, feedback: 0.5}"));
  EXPECT_TRUE(codec->feedback());
  const Floats v = normal(100, 4), decoded = there_and_back(ctx, *codec, v);
  comm::HealthCounters counters;
  const Tensor lost = ctx.zeros({100});
  const Tensor block = ctx.empty({codec->bytes(100, 1)}, DType::u8);
  counters.encode(ctx, *codec, "w", tensor(ctx, {100}, v), block, lost);
  double error = 0;
  const Floats got = values_of(ctx, lost);
  for (size_t i = 0; i < v.size(); ++i) {
    EXPECT_NEAR(got[i], 0.5f * (v[i] - decoded[i]), 1e-6);
    error += std::pow(static_cast<double>(v[i] - decoded[i]), 2);
  }
  EXPECT_NEAR(counters.take().at("w").error, error, 1e-4 * error);
}

TEST(PluginCodecs, HaveTheirBytes) {
  const auto bytes = [](const std::string& yaml, int64_t n) { return make_codec(config_of(yaml))->bytes(n, 1); };
  EXPECT_EQ(bytes("{kind: quantised}", 1000), 4 * 4 + 1000);
  EXPECT_EQ(bytes("{kind: quantised, bits: 4, block: 7}", 1000), 143 * 4 + 500);
  EXPECT_EQ(bytes("{kind: quantised, bits: 2, block: 0}", 1001), 4 + 251);
  EXPECT_EQ(bytes("{kind: quantised, bits: 2, levels: statistical, block: 0}", 1001), 4 * 4 + 251);
  EXPECT_EQ(bytes("{kind: sign}", 1001), 4 + 126);
  EXPECT_EQ(bytes("{kind: sign, block: 100}", 1001), 11 * 4 + 126);
  EXPECT_EQ(bytes("{kind: quantised}", 0), 0);
}

// With the whole error as feedback nothing is lost: what is missing in the sums is in the residuals.
TEST(PluginCodecs, ResidualsContainWhatIsMissingInTheSums) {
  constexpr int kRanks = 3, kSteps = 4;
  constexpr int64_t kRows = 10, kWidth = 7;
  std::mutex mutex;
  std::vector<double> missing(kRows * kWidth);
  sync_test::make_group(kRanks)->run([&](Communicator& comm) {
    Context ctx = comm::rank_context(comm);
    Reducer reducer(config_of("{kind: quantised, bits: 2, feedback: 1}"), "test");
    std::vector<double> own(missing.size());
    for (uint64_t step = 0; step < kSteps; ++step) {
      const Floats v = normal(kRows * kWidth, step * kRanks + static_cast<uint64_t>(ctx.rank));
      const Floats sum = values_of(ctx, reducer.reduce(ctx, "w", tensor(ctx, {kRows, kWidth}, v)));
      reducer.commit();
      for (size_t i = 0; i < own.size(); ++i)
        own[i] += static_cast<double>(v[i]) - (ctx.rank == 0 ? static_cast<double>(sum[i]) : 0);
    }
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < own.size(); ++i) missing[i] += own[i];
    for (const auto& [key, t] : reducer.state()) {
      const auto first = static_cast<size_t>(key == "w.sum" ? chunk_begin(kRows * kWidth, ctx.rank, kRanks) : 0);
      for (int64_t i = 0; i < t.numel(); ++i)
        missing[first + static_cast<size_t>(i)] -= static_cast<double>(t.data<float>()[i]);
    }
  });
  for (const double owed : missing) EXPECT_NEAR(owed, 0, 1e-5);
}

// Four ranks have saved, and two continue: rank 1 owns the last four sums.
TEST_P(PluginCodec, TakesTheResidualsOfOtherRanks) {
  Context ctx = lmx_test::context_on(GetParam());
  ctx.rank = 1;
  ctx.ranks = 2;
  std::vector<StateDict> saved;
  for (int r = 0; r < 4; ++r) {
    const float first = 2 * static_cast<float>(r);
    saved.push_back({{"w.push", Tensor::from<float>(ctx.host, {8, 1}, Floats{1, 0, 0, 0, 0, 0, 0, first})},
                     {"w.sum", Tensor::from<float>(ctx.host, {2, 1}, Floats{first, first + 1})}});
  }
  Reducer reducer(config_of("{kind: quantised, feedback: 1}"), "test");
  reducer.load(ctx, saved);
  const StateDict own = reducer.state();
  EXPECT_EQ(values_of(ctx, own.at("w.push")), (Floats{2, 0, 0, 0, 0, 0, 0, 6}));
  EXPECT_EQ(values_of(ctx, own.at("w.sum")), (Floats{4, 5, 6, 7}));
}

// Each rank sends to every other rank the values that this one owns, encoded separately, and gets the sums of the
// values that it owns itself.
TEST(PluginCodecs, SumsOfCodedPartsAreScattered) {
  constexpr size_t kGroup = 3;
  const std::vector<std::vector<int64_t>> begins{{0, 4, 4, 9}, {0, 0, 2, 7}};
  for (const char* yaml : {"{kind: bf16}", "{kind: one_bit}", "{kind: quantised, bits: 4, feedback: 0.5}"})
    sync_test::make_group(kGroup)->run([&](Communicator& comm) {
      Context ctx = comm::rank_context(comm);
      const auto me = static_cast<size_t>(ctx.rank);
      const CodecConfig config = config_of(yaml);
      Reducer reducer(config, "test");
      const Codec& codec = reducer.codec();
      const double part = config.kind == "quantised" ? 0.5 : codec.feedback() ? 1 : 0;
      std::map<std::pair<size_t, size_t>, Floats> kept;  // of the elements of this rank, by block and rank
      for (uint64_t step = 0; step < 3; ++step) {
        const auto values_of_rank = [&](size_t b, size_t r) {
          return normal(begins[b].back(), 100 * step + 10 * b + r);
        };
        std::vector<Reducer::Divided> blocks;
        for (size_t b = 0; b < begins.size(); ++b)
          blocks.push_back({str("w", b), tensor(ctx, {begins[b].back()}, values_of_rank(b, me)), begins[b]});
        comm.clear_ledger();
        const std::vector<Tensor> sums = reducer.reduce_scatter(ctx, blocks);
        reducer.commit();
        int64_t sent = 0;
        for (size_t b = 0; b < begins.size(); ++b) {
          const auto first = static_cast<size_t>(begins[b][me]), n = static_cast<size_t>(begins[b][me + 1]) - first;
          ASSERT_EQ(sums[b].numel(), static_cast<int64_t>(n));
          std::vector<double> wanted(n);
          for (size_t r = 0; r < kGroup; ++r) {
            if (r != me) sent += codec.bytes(begins[b][r + 1] - begins[b][r], 1);
            if (n == 0) continue;
            Floats own = values_of_rank(b, r);
            own = Floats(own.begin() + static_cast<long>(first), own.begin() + static_cast<long>(first + n));
            Floats& rest = kept[{b, r}];
            rest.resize(n);
            for (size_t i = 0; i < n; ++i) own[i] += rest[i];
            const Floats got = there_and_back(ctx, codec, own, 0);  // bf16 has even addresses only
            for (size_t i = 0; i < n; ++i) {
              wanted[i] += static_cast<double>(got[i]);
              rest[i] = static_cast<float>(part) * (own[i] - got[i]);
            }
          }
          for (size_t i = 0; i < n; ++i) EXPECT_NEAR(sums[b].values<float>()[i], wanted[i], 1e-5) << yaml << step;
        }
        ASSERT_EQ(comm.ledger().size(), 1u);
        EXPECT_EQ(comm.ledger()[0].sent, sent) << yaml;
      }
    });
}

// Ranks' rows are encoded separately, so that each has a separate scale.
TEST(PluginCodecs, GatheredBlocksAreDecodedOneByOne) {
  sync_test::make_group(2)->run([](Communicator& comm) {
    Context ctx = comm::rank_context(comm);
    Reducer reducer(config_of("{kind: quantised}"), "test");
    const Floats own = ctx.rank == 0 ? Floats{1, 2, 3} : Floats{1000, 2000};
    const std::vector<int64_t> rows{3, 2};
    const Tensor all = reducer.gather(ctx, "w", tensor(ctx, {rows[static_cast<size_t>(ctx.rank)], 1}, own), rows);
    const Floats got = values_of(ctx, all), want{1, 2, 3, 1000, 2000};
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.012 * static_cast<double>(want[i]));
  });
}

std::string refused(const std::string& yaml) {
  return user_error([&] { config_of(yaml).check("r.yaml: sync.all"); });
}

TEST(PluginCodecs, KeysOfThePluginAreKeysOfTheGroup) {
  const CodecConfig config = config_of("{kind: quantised, bits: 4}");
  EXPECT_THAT(write_config(config).keys(),
              ElementsAre("kind", "residual", "bits", "levels", "block", "range", "feedback"));
  EXPECT_EQ(config.options.find("bits")->text, "4");
  EXPECT_EQ(config.options.find("block")->text, "256");
  EXPECT_FALSE(config.feedback());
  EXPECT_THAT(refused("kind: quantissed"),
              Names("r.yaml:1:7", "sync.all.codec.kind", "one_bit, quantised", "did you mean 'quantised'"));
  EXPECT_THAT(refused("{kind: quantised, bit: 4}"), Names("r.yaml:1:19", "sync.all.codec.bit", "'bits'"));
  EXPECT_THAT(refused("{kind: quantised, bits: 3}"), Names("sync.all.codec.bits", "2, 4 or 8", "got 3"));
  EXPECT_THAT(refused("{kind: quantised, levels: e3m0}"), Names("sync.all.codec.levels", "bits: 4"));
  EXPECT_THAT(refused("{kind: fp16, bits: 4}"), Names("sync.all.codec.bits", "allowed"));
  EXPECT_THAT(refused("{kind: quantised, scale: 4}"), Names("sync.all.codec.scale"));
  EXPECT_THAT(refused("{kind: quantised, residual: none}"), Names("codec.residual: none", "error feedback"));
  EXPECT_EQ(refused("{kind: quantised, residual: none, feedback: 1}"), "no error");
}

// A strategy may have a plugin as its default codec; its options hold for that plugin alone.
TEST(PluginCodecs, DefaultsOfAStrategyAreThoseOfItsCodec) {
  struct Config {
    CodecConfig codec = config_of("{kind: quantised, bits: 2}");
    void fields(Fields& f) { f.group("codec", codec, "of the values"); }
  };
  const auto read = [](const std::string& yaml) {
    return read_config<Config>(parse_yaml(yaml, "r.yaml"), "rule").codec;
  };
  EXPECT_EQ(read("{}").options.find("bits")->text, "2");
  const CodecConfig block = read("{codec: {block: 8}}");
  EXPECT_EQ(block.options.find("bits")->text, "2");
  EXPECT_EQ(block.options.find("block")->text, "8");
  EXPECT_THAT(read("{codec: {kind: fp16}}").options.entries, IsEmpty());
  EXPECT_EQ(read("{codec: {kind: fp16, scale: 8}}").scale, 8);
}

}  // namespace
}  // namespace lmx

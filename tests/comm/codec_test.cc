
#include <cmath>
#include <cstring>

#include "comm/codec/codecs.h"
#include "lmx/error.h"
#include "lmx/random.h"
#include "test.h"
#include "vector_of.h"

namespace lmx {
namespace {

using namespace lmx_test;

constexpr float kInf = INFINITY;

// Normal values of different magnitudes. Every seventh value is a zero of either sign.
std::vector<float> values(int64_t n, uint64_t seed = 1) {
  const RandomKey key(seed);
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) {
    const auto k = static_cast<uint64_t>(i);
    v.push_back(static_cast<float>(key.normal(2 * k) * std::exp(4 * key.normal(2 * k + 1))));
    if (i % 7 == 3) v.back() = i % 2 ? 0.0f : -0.0f;
  }
  return v;
}

std::unique_ptr<Codec> codec(const std::string& kind, double scale = 1024, const std::string& reduce = "fp16") {
  return make_codec({.kind = kind, .scale = scale, .reduce = reduce});
}

Tensor f32(const std::vector<float>& v, int64_t rows, int64_t width) {
  return Tensor::from<float>(Allocator::cpu(), {rows, width}, std::span(v));
}

Tensor encode(const Codec& c, const std::vector<float>& v, int64_t rows, int64_t width) {
  Context ctx;
  Tensor encoded = ctx.empty({c.bytes(rows, width)}, DType::u8);
  c.encode(ctx, f32(v, rows, width), encoded);
  return encoded;
}
std::vector<float> decode(const Codec& c, const Tensor& encoded, int64_t rows, int64_t width) {
  Context ctx;
  Tensor v = ctx.empty({rows, width});
  c.decode(ctx, encoded, v);
  return vector_of<float>(v);
}
std::vector<float> there_and_back(const Codec& c, const std::vector<float>& v, int64_t rows, int64_t width) {
  return decode(c, encode(c, v, rows, width), rows, width);
}

// The result of the compiler's own conversion.
float f16(float v) {
  return static_cast<float>(float16(v));
}

TEST(Codec, Sizes) {
  EXPECT_EQ(codec("none")->bytes(5, 3), 60);
  EXPECT_EQ(codec("fp16")->bytes(5, 3), 30);
  EXPECT_EQ(codec("bf16")->bytes(5, 3), 30);
  EXPECT_EQ(codec("one_bit")->bytes(5, 3), 2 * 3 * 4 + 2);
  EXPECT_EQ(codec("one_bit")->bytes(1000, 1), 2 * 4 + 125);
  for (const char* kind : {"none", "fp16", "bf16", "one_bit"}) EXPECT_EQ(codec(kind)->bytes(0, 3), 0) << kind;
}

TEST(Codec, NoneKeepsEveryBit) {
  const std::vector<float> v = values(100);
  EXPECT_EQ(there_and_back(*codec("none"), v, 20, 5), v);
}

// Includes lengths that are no multiple of eight, and scales that are no power of two.
TEST(Codec, Fp16RoundsToNearest) {
  for (const double scale : {1.0, 1024.0, 1000.0}) {
    for (int64_t n = 0; n < 40; ++n) {
      const std::vector<float> v = values(n), got = there_and_back(*codec("fp16", scale), v, n, 1);
      const auto f = static_cast<float>(scale);
      for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(got[i], f16(v[i] * f) * (1 / f)) << n << ' ' << i << ' ' << v[i];
    }
  }
}

TEST(Codec, Fp16OverflowIsInfiniteAndUnderflowZero) {
  const std::vector<float> v{100, -100, 1e-12f, -1e-12f, kInf, NAN, 1};
  const std::vector<float> got = there_and_back(*codec("fp16"), v, 7, 1);
  EXPECT_THAT(std::vector<float>(got.begin(), got.begin() + 5), ElementsAre(kInf, -kInf, 0, 0, kInf));
  EXPECT_TRUE(std::isnan(got[5]));
  EXPECT_EQ(got[6], 1);
}

// Each partial sum is rounded to f16 at the scale of the exchange, even where f16 has only subnormal numbers.
TEST(Codec, Fp16AddsInFp16) {
  const auto c = codec("fp16", 1000);
  const int64_t n = 2005;
  Context ctx;
  const Tensor total = ctx.zeros({n, 1});
  std::vector<float> expected(static_cast<size_t>(n));
  for (uint64_t rank = 0; rank < 9; ++rank) {
    std::vector<float> v = values(n, rank);
    for (float& x : v) x *= 1e-3f;
    c->add(ctx, encode(*c, v, n, 1), total);
    for (size_t i = 0; i < v.size(); ++i) expected[i] = f16(expected[i] + f16(v[i] * 1000));
  }
  const std::vector<float> sum = vector_of<float>(total);
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(f16(sum[i] * 1000), expected[i]) << i;
  // Encoding such a sum again causes no further error.
  EXPECT_EQ(there_and_back(*c, sum, n, 1), sum);
}

TEST(Codec, SumsInFp32AreOrdinarySums) {
  for (const auto& c : {codec("fp16", 1024, "fp32"), codec("bf16"), codec("none"), codec("one_bit")}) {
    const int64_t rows = 37, width = 11;
    Context ctx;
    const Tensor sum = ctx.zeros({rows, width});
    std::vector<float> expected(static_cast<size_t>(rows * width));
    for (uint64_t rank = 0; rank < 5; ++rank) {
      std::vector<float> v = values(rows * width, rank);
      for (float& x : v) x *= 1e-6f;  // no overflow
      const auto bytes = encode(*c, v, rows, width);
      c->add(ctx, bytes, sum);
      const std::vector<float> one = decode(*c, bytes, rows, width);
      for (size_t i = 0; i < one.size(); ++i) expected[i] += one[i];
    }
    EXPECT_EQ(vector_of<float>(sum), expected) << c->name();
  }
}

TEST(Codec, Bf16IsTheUpperHalf) {
  const std::vector<float> v = values(333), got = there_and_back(*codec("bf16"), v, 111, 3);
  for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(got[i], static_cast<float>(bfloat16(v[i])));
}

// A sum that starts from +0 never becomes -0.
TEST(Codec, SumsOfNegativeZerosArePositive) {
  for (const char* kind : {"none", "fp16", "bf16"}) {
    const auto c = codec(kind);
    Context ctx;
    const Tensor sum = ctx.zeros({9, 1});
    c->add(ctx, encode(*c, std::vector<float>(9, -0.0f), 9, 1), sum);
    for (const float s : vector_of<float>(sum)) EXPECT_FALSE(std::signbit(s)) << kind;
  }
}

TEST(Codec, ElementwiseBlocksMayBeCutAnywhere) {
  const std::vector<float> v = values(50);
  for (const char* kind : {"none", "fp16", "bf16"}) {
    const auto c = codec(kind);
    const auto whole = vector_of<uint8_t>(encode(*c, v, 10, 5));
    const auto part = vector_of<uint8_t>(encode(*c, {v.begin() + 13, v.begin() + 44}, 31, 1));
    const auto size = c->bytes(1, 1);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 13 * size)) << kind;
  }
}

TEST(OneBit, TwoMeansAColumn) {
  //                           column 0: 1, 3 | -2;  column 1: 0 | -1, -5;  column 2: none | -1, -2, -3
  const std::vector<float> v{1, -1, -1, 3, -5, -2, -2, -0.0f, -3};
  EXPECT_THAT(there_and_back(*codec("one_bit"), v, 3, 3), ElementsAre(2, -3, -2, 2, -3, -2, -2, 0, -2));
}

TEST(OneBit, Layout) {
  const auto bytes = vector_of<uint8_t>(encode(*codec("one_bit"), {1, -1, -2, 2, 3, -3, -4, 4, 5, -5}, 10, 1));
  ASSERT_EQ(bytes.size(), 10u);
  float means[2];
  std::memcpy(means, bytes.data(), 8);
  EXPECT_EQ(means[0], 3);
  EXPECT_EQ(means[1], -3);
  EXPECT_EQ(bytes[8], 0b10011001);
  EXPECT_EQ(bytes[9], 0b01);
}

// Rows that begin in the middle of a byte, columns before and after the last full vector, blocks at odd addresses.
TEST(OneBit, AnyShape) {
  const auto c = codec("one_bit");
  for (const int64_t width : {1, 3, 7, 8, 9, 16, 33}) {
    for (const int64_t rows : {1, 2, 5, 16}) {
      const std::vector<float> v = values(rows * width);
      Context ctx;
      const int64_t size = c->bytes(rows, width);
      const Tensor odd = ctx.empty({size + 1}, DType::u8).slice(1, size + 1);
      c->encode(ctx, f32(v, rows, width), odd);
      const std::vector<float> got = decode(*c, odd, rows, width);
      for (int64_t col = 0; col < width; ++col) {
        double sum[2] = {}, count[2] = {};
        for (int64_t r = 0; r < rows; ++r) {
          const float x = v[static_cast<size_t>(r * width + col)];
          sum[x >= 0] += static_cast<double>(x);
          ++count[x >= 0];
        }
        for (int64_t r = 0; r < rows; ++r) {
          const auto i = static_cast<size_t>(r * width + col);
          EXPECT_FLOAT_EQ(got[i], static_cast<float>(sum[v[i] >= 0] / count[v[i] >= 0])) << rows << " x " << width;
        }
      }
    }
  }
}

TEST(OneBit, BlocksAreColumnsOrRowsOfATensor) {
  const auto c = codec("one_bit");
  Context ctx;
  const Tensor encoded = encode(*c, {1, -2, 1, -2}, 2, 2);
  BlockPlace columns(ctx.zeros({3, 4}));
  columns.row = columns.column = 1;
  columns.rows = columns.columns = 2;
  c->decode(ctx, encoded, columns);
  EXPECT_THAT(vector_of<float>(columns.tensor), ElementsAre(0, 0, 0, 0, 0, 1, -2, 0, 0, 1, -2, 0));
  BlockPlace rows(ctx.zeros({4, 2}));
  rows.rows = 2;
  rows.at = ctx.upload(std::vector<int32_t>{3, 1});
  for (int i = 0; i < 2; ++i) c->add(ctx, encoded, rows);
  EXPECT_THAT(vector_of<float>(rows.tensor), ElementsAre(0, 0, 2, -4, 0, 0, 2, -4));
}

TEST(OneBit, WhatIsNotFiniteStaysVisible) {
  const std::vector<float> got = there_and_back(*codec("one_bit"), {1, kInf, -1, NAN}, 2, 2);
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], kInf);
  EXPECT_TRUE(std::isnan(got[3]));
}

// Encodes the values `times` times.
CodecHealth health_of(const Codec& c, const Tensor& values, const Tensor& lost = {}, int times = 1) {
  Context ctx;
  const Tensor encoded = ctx.empty({c.bytes(values.dim(0), values.dim(1))}, DType::u8);
  comm::HealthCounters counters;
  for (int i = 0; i < times; ++i) counters.encode(ctx, c, "w", values, encoded, lost);
  CodecHealth h = counters.take().at("w");
  EXPECT_TRUE(counters.take().empty());
  return h;
}

TEST(Health, CountsWhatIsLost) {
  const auto c = codec("fp16");
  const std::vector<float> v{1, 1e-12f, -100, 0, 3.001f, kInf};
  const CodecHealth h = health_of(*c, f32(v, 2, 3));
  EXPECT_EQ(h.values, 6);
  EXPECT_EQ(h.underflow, 1);
  EXPECT_EQ(h.overflow, 2);
  const double lost = static_cast<double>(3.001f - f16(3.001f * 1024) / 1024);
  EXPECT_NEAR(h.error, lost * lost, 1e-12);
  EXPECT_NEAR(h.norm, 1 + static_cast<double>(3.001f * 3.001f), 1e-5);
  const CodecHealth twice = health_of(*c, f32(v, 2, 3), {}, 2);
  EXPECT_EQ(twice.values, 12);
  EXPECT_EQ(twice.underflow, 2);
}

TEST(Health, SumsOverManyBlocks) {
  const int64_t n = 100'003;
  const std::vector<float> v = values(n);
  for (const char* kind : {"fp16", "bf16", "one_bit"}) {
    const auto c = codec(kind, 1);
    const auto bytes = encode(*c, v, n, 1);
    const std::vector<float> back = decode(*c, bytes, n, 1);
    const Tensor kept = Context().empty({n, 1});
    const CodecHealth h = health_of(*c, f32(v, n, 1), kept);
    const std::vector<float> lost = vector_of<float>(kept);
    double error = 0, norm = 0;
    int64_t under = 0, over = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      under += v[i] != 0 && back[i] == 0;
      over += !std::isfinite(back[i]);
      if (!std::isfinite(back[i])) continue;
      EXPECT_EQ(lost[i], v[i] - back[i]);
      error += std::pow(static_cast<double>(v[i] - back[i]), 2);
      norm += std::pow(static_cast<double>(v[i]), 2);
    }
    EXPECT_EQ(h.underflow, under) << kind;
    EXPECT_EQ(h.overflow, over) << kind;
    EXPECT_NEAR(h.error, error, 1e-4 * error) << kind;
    EXPECT_NEAR(h.norm, norm, 1e-4 * norm) << kind;
  }
}

// An infinite gradient makes a run skip a step. It must not stay in the residual forever.
TEST(Health, LossThatIsNotFiniteIsNotKept) {
  const auto c = codec("one_bit");
  const Tensor v = f32({1, kInf, -1, 2, 5, 3}, 3, 2);
  health_of(*c, v, v);
  EXPECT_THAT(vector_of<float>(v), ElementsAre(-2, 0, 0, 0, 2, 0));
}

TEST(Health, ReadsBackFromARecord) {
  const std::map<std::string, CodecHealth> written{
      {"embed.weight", {.values = 12, .underflow = 3, .overflow = 1, .error = 0.25, .norm = 4, .residual = 9}},
      {"all/zeros", {.values = 5}}};
  std::map<std::string, double> record{{"codec/x", 1}, {"codecs/y/entries", 2}, {"nll_nat", 3}};
  for (const auto& [key, value] : health_values(written)) record[key] = value;
  EXPECT_FALSE(record.contains("codec/all/zeros/residual_norm"));
  const auto read = health_in(record);
  ASSERT_EQ(read.size(), written.size());
  for (const auto& [name, h] : written) {
    const CodecHealth& r = read.at(name);
    EXPECT_EQ(r.values, h.values);
    EXPECT_EQ(r.underflow, h.underflow);
    EXPECT_EQ(r.overflow, h.overflow);
    EXPECT_DOUBLE_EQ(r.error, h.error);
    EXPECT_DOUBLE_EQ(r.norm, h.norm);
    EXPECT_DOUBLE_EQ(r.residual, h.residual);
  }
  CodecHealth sum = read.at("embed.weight");
  sum.add(written.at("embed.weight"));
  EXPECT_EQ(sum.values, 24);
  EXPECT_DOUBLE_EQ(sum.relative_error(), 0.25);
  EXPECT_DOUBLE_EQ(sum.residual, 18);
}

TEST(CodecConfig, Messages) {
  const auto refused = [](const std::string& yaml) {
    return user_error([&] { read_config<CodecConfig>(parse_yaml(yaml, "r.yaml"), "sync.all.codec"); });
  };
  EXPECT_THAT(refused("kind: fp61"), Names("sync.all.codec.kind", "fp16"));
  EXPECT_THAT(refused("scale: 0"), Names("sync.all.codec.scale"));
  EXPECT_THAT(refused("reduce: bf16"), Names("fp32"));
  EXPECT_THAT(refused("residual: some"), Names("rows, none"));
  EXPECT_THROW(make_codec({.kind = "zip"}), UserError);
}

}  // namespace
}  // namespace lmx

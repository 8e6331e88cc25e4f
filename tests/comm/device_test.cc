// Rows and codecs on a CUDA device against the CPU, and the time of exchanges between devices in the ledger.
#include <gtest/gtest.h>

#include <limits>

#include "autograd/gradient_sums.h"
#include "comm/codec/codecs.h"
#include "comm/residuals.h"
#include "device.h"
#include "lmx/comm.h"
#include "lmx/device_comm.h"
#include "lmx/random.h"

namespace lmx {
namespace {

using lmx_test::context_on;
using lmx_test::expect_close;
using lmx_test::values_of;

constexpr Device::Kind kCpu = Device::Kind::cpu, kCuda = Device::Kind::cuda;

// Normal values of different magnitudes, with zeros of either sign.
template <class T = float>
std::vector<T> random_values(int64_t n, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<T> v;
  for (int64_t i = 0; i < n; ++i) {
    const auto k = static_cast<uint64_t>(i);
    v.push_back(static_cast<T>(key.normal(2 * k) * std::exp(2 * key.normal(2 * k + 1))));
    if (i % 7 == 3) v.back() = i % 2 ? T(0) : -T(0);
  }
  return v;
}
template <class T>
Tensor tensor(const Context& ctx, Shape shape, const std::vector<T>& v) {
  return ctx.upload(Tensor::from<T>(ctx.host, shape, std::span(v)));
}
template <class T = float>
Tensor random_tensor(const Context& ctx, Shape shape, uint64_t seed) {
  return tensor(ctx, shape, random_values<T>(shape.numel(), seed));
}

class DeviceComm : public lmx_test::DeviceTest {};

// to = from + 0.5 plus: rows by index in another order, some missing, some columns of each; and whole blocks in place.
template <class T>
std::vector<std::vector<double>> copied(Device::Kind kind, int64_t rows, int64_t columns) {
  const Context here = context_on(kind);
  Context ctx = here;
  const int64_t width = columns + 3;
  const Tensor from = random_tensor<T>(ctx, {rows + 1, width}, 1), plus = random_tensor<T>(ctx, {rows + 1, width}, 2);
  Tensor to = random_tensor<T>(ctx, {rows + 1, width}, 3), whole = random_tensor<T>(ctx, {rows, columns}, 4);
  const Tensor whole_plus = random_tensor<T>(ctx, {rows, columns}, 5);
  std::vector<int32_t> at, missing;
  for (int64_t r = 0; r < rows; ++r) {
    at.push_back(static_cast<int32_t>(rows - r));
    missing.push_back(r % 3 == 1 ? -1 : static_cast<int32_t>(r));
  }
  const auto places = ctx.upload(at), holes = ctx.upload(missing);
  run_kernel(ctx, comm::CopyRows<T>{{from.data<T>(), width, 2, holes.data()},
                                    {plus.data<T>(), width, 1, places.data()},
                                    {to.data<T>(), width, 3, places.data()},
                                    rows,
                                    columns,
                                    T(0.5)});
  std::vector<std::vector<double>> all{values_of(ctx, to)};
  const comm::RowsAt<T> place{whole.data<T>(), columns};
  run_kernel(ctx, comm::CopyRows<T>{place, {whole_plus.data<T>(), columns}, place, rows, columns, T(0.5)});
  all.push_back(values_of(ctx, whole));
  run_kernel(ctx, comm::CopyRows<T>{{}, {}, place, rows, columns});
  all.push_back(values_of(ctx, whole));
  all.push_back(values_of(ctx, comm::gather_rows(ctx, from, holes)));
  return all;
}

const std::vector<Shape> kShapes{{0, 3}, {1, 1}, {4, 37}, {300, 5}, {65, 64}, {2, 9000}, {700, 61}};

TEST_F(DeviceComm, CopiedRowsEqualTheCpu) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(str(s));
    const auto want = copied<float>(kCpu, s[0], s[1]), got = copied<float>(kCuda, s[0], s[1]);
    const auto want64 = copied<double>(kCpu, s[0], s[1]), got64 = copied<double>(kCuda, s[0], s[1]);
    for (size_t k = 0; k < want.size(); ++k) {
      expect_close(got[k], want[k], 1e-6);
      expect_close(got64[k], want64[k], 1e-12);
    }
    if (HasFatalFailure()) return;
  }
}

// Rows in the pages of a store, scaled, measured twice and gathered.
std::vector<std::vector<double>> stored(Device::Kind kind, int64_t rows, int64_t columns) {
  Context ctx = context_on(kind);
  std::vector<Tensor> memory;
  std::vector<float*> addresses;
  for (int64_t p = 0; p * comm::kPageRows < rows; ++p) {
    memory.push_back(random_tensor(ctx, {comm::kPageRows, columns}, static_cast<uint64_t>(p)));
    addresses.push_back(memory.back().data<float>());
  }
  std::vector<int32_t> every_second;
  for (int64_t r = 0; r < rows; r += 2) every_second.push_back(static_cast<int32_t>(r));
  const auto pages = ctx.upload(addresses);
  const auto at = ctx.upload(every_second);
  const comm::RowsAt<float> all{nullptr, columns, 0, nullptr, pages.data()},
      some{nullptr, columns, 0, at.data(), pages.data()};
  run_kernel(ctx, comm::ScaleRows<float>{some, at.size(), columns, 0.25f});
  Tensor sum = ctx.zeros({1}, DType::f64);
  run_kernel(ctx, comm::SquareRows<float>{all, rows, columns, sum.data<double>()});
  run_kernel(ctx, comm::SquareRows<float>{some, at.size(), columns, sum.data<double>()});
  std::vector<std::vector<double>> values{values_of(ctx, sum)};
  for (const Tensor& page : memory) values.push_back(values_of(ctx, page));
  return values;
}

TEST_F(DeviceComm, RowsInPagesEqualTheCpu) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(str(s));
    const auto want = stored(kCpu, s[0], s[1]), got = stored(kCuda, s[0], s[1]);
    for (size_t k = 0; k < want.size(); ++k) expect_close(got[k], want[k], 1e-6);
    if (HasFatalFailure()) return;
  }
}

// A tensor's own context enqueues on the device's stream and reads back.
TEST_F(DeviceComm, AContextOfATensorComputes) {
  const Context ctx = context_on(kCuda);
  Tensor t = random_tensor(ctx, {4, 3}, 1);
  const std::vector<double> before = values_of(ctx, t);
  Context own = comm::context_of(t);
  EXPECT_EQ(own.stream, ctx.stream);
  EXPECT_EQ(own.allocator, t.allocator());
  run_kernel(own, comm::ScaleRows<float>{{t.data<float>(), 3}, 4, 3, 2.0f});
  const std::vector<double> after = values_of(own, t);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], 2 * before[i]);
}

struct Coded {
  std::vector<uint8_t> bytes;
  std::vector<double> decoded, placed, sum, lost;
  CodecHealth health;
};

// Encodes a block at an odd address if the codec allows it, decodes it, adds it twice, and measures it twice.
Coded code(Device::Kind kind, const CodecConfig& config, Shape shape, const std::vector<float>& values) {
  Context ctx = context_on(kind);
  const auto codec = make_codec(config);
  const int64_t size = codec->bytes(shape[0], shape[1]), begin = codec->columns() ? 1 : 4;
  const Tensor block = ctx.empty({size + begin}, DType::u8).slice(begin, size + begin);
  const Tensor v = tensor(ctx, shape, values);
  Coded c;
  comm::HealthCounters counters;
  Tensor lost = ctx.zeros(shape);
  counters.encode(ctx, *codec, "w", v, block, lost);
  if (size > 0) {
    const auto read = ctx.read<uint8_t>(block);
    c.bytes.assign(read.get().begin(), read.get().end());
  }
  c.lost = values_of(ctx, lost);
  Tensor decoded = ctx.empty(shape), sum = random_tensor(ctx, shape, 9);
  codec->decode(ctx, block, decoded);
  codec->add(ctx, block, sum);
  codec->add(ctx, block, sum);
  c.decoded = values_of(ctx, decoded);
  c.sum = values_of(ctx, sum);
  if (codec->columns()) {  // rows by index, some columns
    std::vector<int32_t> at;
    for (int64_t r = shape[0]; r > 0; --r) at.push_back(static_cast<int32_t>(r));
    BlockPlace place(ctx.zeros({shape[0] + 1, shape[1] + 2}));
    place.rows = shape[0];
    place.columns = shape[1];
    place.column = 1;
    place.at = ctx.upload(at);
    codec->decode(ctx, block, place);
    codec->add(ctx, block, place);
    c.placed = values_of(ctx, place.tensor);
  }
  Tensor residual = v.clone();
  counters.encode(ctx, *codec, "w", residual, block, residual);  // in place
  EXPECT_EQ(values_of(ctx, residual), c.lost);
  c.health = counters.take().at("w");
  return c;
}

void expect_equal(const Coded& got, const Coded& want) {
  expect_close(got.decoded, want.decoded, 1e-6);
  expect_close(got.placed, want.placed, 1e-6);
  expect_close(got.sum, want.sum, 1e-6);
  expect_close(got.lost, want.lost, 1e-6);
  EXPECT_EQ(got.health.values, want.health.values);
  EXPECT_EQ(got.health.underflow, want.health.underflow);
  EXPECT_EQ(got.health.overflow, want.health.overflow);
  EXPECT_NEAR(got.health.error, want.health.error, 1e-5 * want.health.error);
  EXPECT_NEAR(got.health.norm, want.health.norm, 1e-5 * want.health.norm);
}

const std::vector<CodecConfig> kCodecs{{.kind = "none"},
                                       {.kind = "bf16"},
                                       {.kind = "fp16", .scale = 1024},
                                       {.kind = "fp16", .scale = 1000, .reduce = "fp32"},
                                       {.kind = "one_bit"}};

TEST_F(DeviceComm, CodecsEqualTheCpu) {
  for (const CodecConfig& config : kCodecs) {
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(str(config.kind, ' ', config.reduce, ' ', s));
      const std::vector<float> values = random_values(s.numel(), 3);
      const Coded want = code(kCpu, config, s, values), got = code(kCuda, config, s, values);
      EXPECT_EQ(got.bytes.size(), want.bytes.size());
      if (config.kind != "one_bit") {
        EXPECT_EQ(got.bytes, want.bytes);
      } else if (s.numel() > 0) {  // the bits; means may be rounded differently
        const auto means = 8 * s[1];
        EXPECT_TRUE(std::equal(got.bytes.begin() + means, got.bytes.end(), want.bytes.begin() + means));
      }
      expect_equal(got, want);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeviceComm, WhatIsNotFiniteOrTooSmallIsCountedAsOnTheCpu) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{1, kInfinite, -1, kNan, 1e-12f, -kInfinite, 1e5f, -1e-12f, 0, -0.0f};
  for (const CodecConfig& config : kCodecs) {
    SCOPED_TRACE(config.kind);
    for (const Shape& s : std::vector<Shape>{{10, 1}, {1, 10}, {2, 5}})
      expect_equal(code(kCuda, config, s, values), code(kCpu, config, s, values));
  }
}

// The time of exchanges between devices in the ledger.

// Rank 0 of two, which have equal tensors. An exchange is a kernel.
class Twins final : public Communicator, public DeviceMoves {
 public:
  explicit Twins(const Context& ctx) : Communicator(ctx.host), ctx_(ctx) { use_device(ctx.allocator, ctx.host); }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void join(Device) override {}

 protected:
  Tensor do_all_gather(const Tensor& own, const RankRows& rows) override {
    Context ctx = ctx_;
    if (own.device() == Device{}) ctx = Context();
    Tensor all = ctx.empty({rows.total()});
    fill(ctx, all, 1);
    return all;
  }
  std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows&, const RankRows&) override { return {own, own}; }
  Tensor do_broadcast(const Tensor& t, int) override { return t; }
  void do_barrier() override {}

 private:
  Context ctx_;
};

class DeviceLedger : public lmx_test::DeviceTest {};

TEST_F(DeviceLedger, SecondsAreThoseOfTheDevice) {
  const Context ctx = lmx_test::context_on(Device::Kind::cuda);
  Twins comm(ctx);
  const auto gather = [&](const Tensor& own) { return comm.all_gather(own, RankRows::same(2, own.dim(0)), "test"); };
  const Tensor host = Tensor::zeros(ctx.host, {3}, DType::f32);
  gather(host);
  const Tensor all = gather(ctx.zeros({3}));
  std::vector<double> enqueuing, measured;
  for (const LedgerEntry& line : comm.ledger()) enqueuing.push_back(line.seconds);
  lmx_test::values_of(ctx, all);  // the host waits
  comm.measure_exchanges();
  for (const LedgerEntry& line : comm.ledger()) measured.push_back(line.seconds);
  EXPECT_EQ(measured[0], enqueuing[0]);
  EXPECT_NE(measured[1], enqueuing[1]);
  EXPECT_GT(measured[1], 0);
  comm.clear_ledger();
  comm.measure_exchanges();
  EXPECT_TRUE(comm.ledger().empty());
}

TEST_F(DeviceLedger, AnExchangeThatIsNotDoneIsMeasuredLater) {
  const Context ctx = lmx_test::context_on(Device::Kind::cuda);
  Twins comm(ctx);
  const Tensor all = comm.all_gather(ctx.zeros({3}), RankRows::same(2, 3), "test");
  const double enqueuing = comm.ledger()[0].seconds;
  comm.measure_exchanges();  // an emulated device has done nothing so far
  const double before = comm.ledger()[0].seconds;
  lmx_test::values_of(ctx, all);
  comm.measure_exchanges();
  EXPECT_TRUE(before == enqueuing || before == comm.ledger()[0].seconds);
  EXPECT_NE(comm.ledger()[0].seconds, enqueuing);
}

}  // namespace

}  // namespace lmx

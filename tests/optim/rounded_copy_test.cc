// The rounded copies of parameters that products read. On a device an optimizer of elements writes them with its
// update; every other writer of a parameter discards them, so that the next product rounds the value again.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "device.h"
#include "lmx/optim.h"
#include "nn/state_dict.h"
#include "ops/common.h"
#include "optim/configs.h"

namespace lmx {
namespace {

using lmx_test::optimizer;
using lmx_test::rules;

class DeviceRoundedCopy : public lmx_test::DeviceTest {};

constexpr Device::Kind kGpu = Device::Kind::cuda;

std::vector<uint16_t> bits_of(const Tensor& t) {
  const Tensor host = copy_to(t, Allocator::cpu());
  const auto* bits = static_cast<const uint16_t*>(host.raw());
  return {bits, bits + host.numel()};
}

// A matrix whose rounded copy exists, and a vector that no product reads.
struct Parameters {
  Parameters(Device::Kind kind, DType compute) : ctx(lmx_test::context_on(kind, compute)) {
    params.add(ctx, {"w", {61, 130}, {"normal", 1.0}}, RandomKey(1));
    params.add(ctx, {"b", {130}, {"constant", 0.5}}, RandomKey(1));
    (void)ops::compute_copy(ctx, w());
  }
  Var& w() { return params.at("w"); }
  Var& b() { return params.at("b"); }
  Tensor random(Shape shape, uint64_t seed) {
    Tensor t = Tensor::empty(Allocator::cpu(), shape, DType::f32, MemClass::gradients);
    initialise(t, {"normal", 1.0}, RandomKey(7).fold(seed));
    return copy_to(t, ctx.allocator);
  }
  // One update of w and b, with a gradient of all rows of w or of some.
  void update(Optimizer& o, int64_t number, bool rows = false) {
    params.clear_gradients();
    const auto seed = static_cast<uint64_t>(number);
    if (rows)
      w().grad().pieces.push_back({{60, 3}, random({2, 130}, seed), true});
    else
      w().grad().dense = random(w().shape(), seed);
    b().grad().dense = random(b().shape(), seed);
    const std::vector<ParameterUpdate> updates{{&w()}, {&b()}};
    o.update_all(ctx, updates, 0.1, number);
  }
  int64_t conversions(const std::function<void()>& work) const {
    const auto all = [] {
      const auto launches = cuda_device(0).counts().launches;
      const auto found = launches.find("convert");
      return found == launches.end() ? int64_t{0} : found->second;
    };
    const int64_t before = all();
    work();
    return all() - before;
  }
  // The copy that products read has the bits of a rounded value.
  void expect_equal_copy() { EXPECT_EQ(bits_of(ops::compute_copy(ctx, w())), bits_of(to_compute(ctx, w().value()))); }

  Context ctx;
  ParameterStore params;
};

const char* const kWriteCopies[] = {
    "name: sgd", "{name: sgd, momentum: 0.9}", "name: adagrad", "name: adam", "name: adamw", "name: lion"};
const char* const kDiscardCopies[] = {"name: lamb", "name: lars", "name: adafactor", "name: schedule_free"};

TEST_F(DeviceRoundedCopy, IsWrittenWithAnUpdate) {
  for (const DType compute : {DType::bf16, DType::f16}) {
    for (const char* config : kWriteCopies) {
      SCOPED_TRACE(str(config, ' ', name_of(compute)));
      Parameters p(kGpu, compute);
      const auto o = optimizer(config);
      for (int64_t number = 1; number <= 4; ++number) {
        const auto before = bits_of(ops::compute_copy(p.ctx, p.w()));
        EXPECT_EQ(p.conversions([&] {
          p.update(*o, number, number % 2 == 0);
          (void)ops::compute_copy(p.ctx, p.w());
        }),
                  0);
        p.expect_equal_copy();
        EXPECT_NE(bits_of(ops::compute_copy(p.ctx, p.w())), before);
      }
      EXPECT_FALSE(ops::stored_copy(p.ctx, p.b()).defined()) << "no product reads b";
      if (HasFailure()) return;
    }
  }
}

// A copy in another type than that of the update's products is discarded.
TEST_F(DeviceRoundedCopy, OfAnotherTypeIsDiscarded) {
  Parameters p(kGpu, DType::f16);
  p.ctx.compute = DType::bf16;
  p.update(*optimizer("name: adam"), 1);
  p.expect_equal_copy();
  p.ctx.compute = DType::f16;
  p.expect_equal_copy();
}

// An update that the device skips, because the gradient is not finite, changes neither the value nor the copy.
TEST_F(DeviceRoundedCopy, OfASkippedUpdateIsUnchanged) {
  Parameters p(kGpu, DType::bf16);
  const auto before = bits_of(ops::compute_copy(p.ctx, p.w()));
  p.w().grad().dense = p.random(p.w().shape(), 1);
  Tensor g = Tensor::empty(Allocator::cpu(), {130}, DType::f32);
  initialise(g, {"constant", std::numeric_limits<double>::infinity()}, RandomKey(1));
  p.b().grad().dense = copy_to(g, p.ctx.allocator);
  const GradientMeasure measure(p.ctx, p.params, rules("1"));
  const std::vector<ParameterUpdate> updates{{&p.w(), measure.scale("w")}, {&p.b(), measure.scale("b")}};
  optimizer("name: adam")->update_all(p.ctx, updates, 0.1, 1);
  EXPECT_EQ(bits_of(ops::compute_copy(p.ctx, p.w())), before);
  p.expect_equal_copy();
}

// The writers of parameters, each after an update that has written the copy. The strategies of a parameter server and
// of resumed runs are compared with the CPU in tests/golden and tests/train.
TEST_F(DeviceRoundedCopy, NoWriterLeavesAnOldOne) {
  for (const char* config : kDiscardCopies) {
    SCOPED_TRACE(config);
    Parameters p(kGpu, DType::bf16);
    const auto o = optimizer(config);
    for (int64_t number = 1; number <= 2; ++number) {
      p.update(*o, number);
      p.expect_equal_copy();
    }
    o->evaluate(p.ctx, p.params, true);
    p.expect_equal_copy();
    o->evaluate(p.ctx, p.params, false);
    p.expect_equal_copy();
  }
  Parameters p(kGpu, DType::bf16);
  const auto o = optimizer("name: adam");
  const auto then = [&](const std::function<void()>& write) {
    p.update(*o, 1);
    write();
    p.expect_equal_copy();
  };
  Ema ema(p.params, 0.5, ParamPattern(".*"));
  const std::vector<const Var*> all{&p.w(), &p.b()};
  ema.before_update(p.ctx, all);
  ema.count_update();
  then([&] { ema.swap(p.ctx, p.params); });
  ema.swap(p.ctx, p.params);
  p.expect_equal_copy();
  const StateDict values = parameter_values(Parameters(kGpu, DType::bf16).params);
  then([&] { load_parameters(p.params, values, "a checkpoint"); });
}

// A replica reads the copy of its parameter, and an update of one serves both.
TEST_F(DeviceRoundedCopy, IsSharedByReplicas) {
  Parameters p(kGpu, DType::bf16);
  const Var replica = p.w().replica();
  p.update(*optimizer("name: adam"), 1);
  EXPECT_EQ(p.conversions([&] { (void)ops::compute_copy(p.ctx, replica); }), 0);
  EXPECT_EQ(bits_of(ops::compute_copy(p.ctx, replica)), bits_of(to_compute(p.ctx, p.w().value())));
}

// The CPU has no kernels that write operands.
TEST(RoundedCopy, IsDiscardedByAnUpdateOfTheCpu) {
  Parameters p(Device::Kind::cpu, DType::bf16);
  EXPECT_TRUE(ops::stored_copy(p.ctx, p.w()).defined());
  p.update(*optimizer("name: adam"), 1);
  EXPECT_FALSE(ops::stored_copy(p.ctx, p.w()).defined());
  p.expect_equal_copy();
}

}  // namespace
}  // namespace lmx

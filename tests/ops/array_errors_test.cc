// Array and attention ops name every shape of operands that do not fit, and the value that is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lmx/array_ops.h"
#include "lmx/loss.h"
#include "lmx/ops.h"
#include "names.h"
#include "ops/messages.h"

namespace lmx::testing {
namespace {

using Vars = std::vector<Var>;
using lmx_test::Names;
using ::testing::HasSubstr;

Tensor ids(Shape shape, std::vector<int32_t> v) {
  return Tensor::from<int32_t>(Allocator::cpu(), shape, v);
}

std::string concat_error(const Vars& parts, int dim) {
  return message([&](Context& c) { concat(c, parts, dim); });
}
std::string stack_error(const Vars& parts, int dim) {
  return message([&](Context& c) { stack(c, parts, dim); });
}
std::string split_error(const Var& x, const std::vector<int64_t>& sizes, int dim) {
  return message([&](Context& c) { split(c, x, sizes, dim); });
}

TEST(ArrayErrors, Shapes) {
  const Var x = zeros({2, 3});
  EXPECT_THAT(message([&](Context& c) { slice(c, x, 2, 0, 1); }), Names("[slice] dimension 2", "(2, 3)", "[-2, 2)"));
  EXPECT_THAT(message([&](Context& c) { slice(c, x, 1, 1, 4); }), Names("[slice] [1, 4)", "(2, 3)", "[0, 3]"));
  EXPECT_THAT(message([&](Context& c) { slice(c, x, -1, 2, 1); }), Names("[slice] [2, 1)"));
  EXPECT_THAT(split_error(x, {1, 1}, 1), Names("[split]", "(2, 3)", "2: 3"));
  EXPECT_THAT(split_error(x, {4, -1}, 1), Names("[split]"));
  EXPECT_THAT(concat_error({x, zeros({2, 4}), zeros({3, 3})}, 1),
              Names("[concat] part 0 (2, 3)", "part 2 (3, 3)", "dimension 1"));
  EXPECT_THAT(concat_error({}, 0), Names("[concat]", "parts"));
  EXPECT_THAT(concat_error({x, zeros({2, 3}, DType::f64)}, 0), Names("part 1 (2, 3) f64", "types"));
  EXPECT_THAT(stack_error({x, zeros({3, 2})}, 0), Names("part 1 (3, 2)"));
  EXPECT_THAT(stack_error({x, x}, 4), Names("[stack]", "dimension 4", "[-3, 2]"));
  EXPECT_THAT(stack_error({zeros({1, 1, 1, 1, 1, 1})}, 0), Names("[stack]", "6"));
  EXPECT_THAT(message([&](Context& c) { transpose(c, x, 0, 5); }), Names("[transpose] dimension 5"));
  EXPECT_THAT(message([&](Context& c) { permute(c, x, {0, 0}); }), Names("[permute]", "(2, 3)"));
  EXPECT_THAT(message([&](Context& c) { permute(c, x, {0}); }), Names("[permute] 1 dimensions"));
  EXPECT_THAT(message([&](Context& c) { broadcast_to(c, x, {2, 4}); }), Names("[broadcast_to] x (2, 3)", "(2, 4)"));
  EXPECT_THAT(message([&](Context& c) { broadcast_to(c, x, {3}); }), Names("(3)"));
}

TEST(ArrayErrors, Arithmetic) {
  EXPECT_THAT(message([](Context& c) {
                divide(c, zeros({2, 3}), zeros({2}));
              }),
              Names("[divide] a (2, 3)", "b (2)", "3 and 2"));
  EXPECT_THAT(message([](Context& c) {
                matmul(c, zeros({2, 3}), zeros({2, 3}));
              }),
              Names("[matmul] a (2, 3)", "b (2, 3)", "3 and 2"));
  EXPECT_THAT(message([](Context& c) {
                matmul(c, zeros({2, 3}), zeros({2, 4}), true);
              }),
              Names("[matmul]", "transposed"));
  EXPECT_THAT(message([](Context& c) { matmul(c, zeros({3}), zeros({3, 2})); }), Names("[matmul]", "two dimensions"));
  EXPECT_THAT(message([](Context& c) {
                matmul(c, zeros({2, 3, 4}), zeros({3, 4, 5}));
              }),
              Names("[matmul]", "batch", "2 and 3"));
}

TEST(ArrayErrors, ReductionsAndNorms) {
  const Var x = zeros({2, 3});
  EXPECT_THAT(message([&](Context& c) { sum(c, x, {}); }), Names("[sum]", "x (2, 3)"));
  EXPECT_THAT(message([&](Context& c) { mean(c, x, {1, -1}); }), Names("[mean] dimension -1"));
  EXPECT_THAT(message([&](Context& c) { mean(c, zeros({2, 0}), {1}); }), Names("(2, 0)"));
  EXPECT_THAT(message([&](Context& c) { max(c, zeros({2, 0}), 1); }), Names("[max] dimension 1", "x (2, 0)"));
  EXPECT_THAT(message([&](Context& c) { softmax(c, x, 2); }), Names("[softmax] dimension 2"));
  EXPECT_THAT(message([&](Context& c) { rms_norm(c, x, zeros({2})); }), Names("[rms_norm] x (2, 3)", "gain (2)"));
  EXPECT_THAT(message([&](Context& c) { rms_norm(c, x, zeros({3}), -1); }), Names("eps -1"));
}

TEST(ArrayErrors, Indices) {
  const Var x = zeros({2, 3});
  EXPECT_THAT(message([&](Context& c) {
                gather(c, x, 1, ids({2, 1}, {0, 3}));
              }),
              Names("[gather] index (2, 1) i32", "dimension 1", "x (2, 3)", "element 1", "3", "[0, 3)"));
  EXPECT_THAT(message([&](Context& c) { gather(c, x, 0, ids({2}, {0, 1})); }), Names("[gather]", "dimensions"));
  EXPECT_THAT(message([&](Context& c) { gather(c, x, 1, ids({3, 1}, {0, 0, 0})); }), Names("dimension 0"));
  EXPECT_THAT(message([&](Context& c) { gather(c, x, 1, zeros({2, 1}).value()); }), Names("[gather]", "i32"));
  EXPECT_THAT(message([&](Context& c) {
                scatter_add(c, x, 1, ids({2, 1}, {0, 0}), zeros({1, 2}));
              }),
              Names("[scatter_add] source (1, 2)", "index (2, 1)"));
  EXPECT_THAT(message([&](Context& c) {
                where(c, zeros({2, 3}).value(), x, x);
              }),
              HasSubstr("[where] condition (2, 3) f32"));
}

TEST(ArrayErrors, HeadsAndPositions) {
  const Segments two = Segments::of(std::vector<int64_t>{2});
  const auto attend = [&](int64_t heads, int64_t kv_heads, Shape bias) {
    return message([&](Context& c) {
      AttentionOptions o;
      o.heads = heads;
      o.kv_heads = kv_heads;
      o.bias = zeros(bias);
      attention(c, {zeros({2, 4 * heads}), zeros({2, 4 * kv_heads}), zeros({2, 4 * kv_heads}), two, two}, o);
    });
  };
  EXPECT_THAT(attend(4, 3, {2, 2}), Names("4 heads", "3"));
  EXPECT_THAT(attend(4, 2, {2, 1}), Names("bias (2, 1)", "2 queries", "2 keys"));
  EXPECT_THAT(attend(4, 2, {3, 2, 2}), HasSubstr("bias (3, 2, 2)"));
  EXPECT_THAT(attend(4, 2, {2, 4, 2, 2}), HasSubstr("1 sequences"));
  EXPECT_EQ(attend(4, 2, {5, 2}), "no error");
  RopeOptions o;
  o.heads = 2;
  const std::vector<int64_t> places{0, 1};
  EXPECT_THAT(message([&](Context& c) {
                rope(c, zeros({2, 6}), places, o);
              }),
              Names("[rope] x (2, 6)", "2 heads", "even"));
  EXPECT_THAT(message([&](Context& c) { rope(c, zeros({3, 8}), places, o); }), Names("2 positions", "x (3, 8)"));
  o.base = 0;
  EXPECT_THAT(message([&](Context& c) { rope(c, zeros({2, 8}), places, o); }), Names("base 0"));
}

TEST(ArrayErrors, LossTerms) {
  LossTerms terms({"balance", "entropy"});
  const auto add_term = [&](const char* name, Shape shape) {
    return message([&](Context& c) { terms.add(c, name, zeros(shape)); });
  };
  EXPECT_THAT(add_term("balanse", {1}), Names("'balanse'", "'balance'"));
  EXPECT_THAT(add_term("balance", {2}), Names("'balance'", "(2)", "one element"));
  EXPECT_EQ(add_term("balance", {1}), "no error");
  EXPECT_EQ(terms.values(Context()), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace lmx::testing

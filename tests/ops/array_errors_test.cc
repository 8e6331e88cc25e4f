// Array and attention ops name every shape of operands that do not fit, and the value that is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lmx/array_ops.h"
#include "lmx/attention.h"
#include "lmx/loss_terms.h"
#include "ops/messages.h"

namespace lmx::testing {
namespace {

using Vars = std::vector<Var>;
using ::testing::AllOf;
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
  EXPECT_THAT(message([&](Context& c) { slice(c, x, 2, 0, 1); }),
              AllOf(HasSubstr("[slice] dimension 2"), HasSubstr("(2, 3)"), HasSubstr("[-2, 2)")));
  EXPECT_THAT(message([&](Context& c) { slice(c, x, 1, 1, 4); }),
              AllOf(HasSubstr("[slice] [1, 4)"), HasSubstr("(2, 3)"), HasSubstr("[0, 3]")));
  EXPECT_THAT(message([&](Context& c) { slice(c, x, -1, 2, 1); }), HasSubstr("[slice] [2, 1)"));
  EXPECT_THAT(split_error(x, {1, 1}, 1), AllOf(HasSubstr("[split]"), HasSubstr("(2, 3)"), HasSubstr("add up to 2: 3")));
  EXPECT_THAT(split_error(x, {4, -1}, 1), HasSubstr("[split]"));
  EXPECT_THAT(concat_error({x, zeros({2, 4}), zeros({3, 3})}, 1),
              AllOf(HasSubstr("[concat] part 0 (2, 3) and part 2 (3, 3)"), HasSubstr("dimension 1")));
  EXPECT_THAT(concat_error({}, 0), HasSubstr("[concat] no parts"));
  EXPECT_THAT(concat_error({x, zeros({2, 3}, DType::f64)}, 0),
              AllOf(HasSubstr("part 1 (2, 3) f64"), HasSubstr("types differ")));
  EXPECT_THAT(stack_error({x, zeros({3, 2})}, 0), HasSubstr("part 1 (3, 2)"));
  EXPECT_THAT(stack_error({x, x}, 4), AllOf(HasSubstr("[stack] a new dimension 4"), HasSubstr("[-3, 2]")));
  EXPECT_THAT(stack_error({zeros({1, 1, 1, 1, 1, 1})}, 0), HasSubstr("at most 6"));
  EXPECT_THAT(message([&](Context& c) { transpose(c, x, 0, 5); }), HasSubstr("[transpose] dimension 5"));
  EXPECT_THAT(message([&](Context& c) { permute(c, x, {0, 0}); }), AllOf(HasSubstr("[permute]"), HasSubstr("(2, 3)")));
  EXPECT_THAT(message([&](Context& c) { permute(c, x, {0}); }), HasSubstr("[permute] 1 dimensions"));
  EXPECT_THAT(message([&](Context& c) {
                broadcast_to(c, x, {2, 4});
              }),
              AllOf(HasSubstr("[broadcast_to] x (2, 3)"), HasSubstr("(2, 4)")));
  EXPECT_THAT(message([&](Context& c) { broadcast_to(c, x, {3}); }), HasSubstr("(3)"));
}

TEST(ArrayErrors, Arithmetic) {
  EXPECT_THAT(message([](Context& c) {
                divide(c, zeros({2, 3}), zeros({2}));
              }),
              AllOf(HasSubstr("[divide] a (2, 3) and b (2)"), HasSubstr("sizes 3 and 2")));
  EXPECT_THAT(message([](Context& c) {
                matmul(c, zeros({2, 3}), zeros({2, 3}));
              }),
              AllOf(HasSubstr("[matmul] a (2, 3) and b (2, 3)"), HasSubstr("3 and 2")));
  EXPECT_THAT(message([](Context& c) { matmul(c, zeros({2, 3}), zeros({2, 4}), true); }), HasSubstr("transposed"));
  EXPECT_THAT(message([](Context& c) { matmul(c, zeros({3}), zeros({3, 2})); }), HasSubstr("two dimensions"));
  EXPECT_THAT(message([](Context& c) {
                matmul(c, zeros({2, 3, 4}), zeros({3, 4, 5}));
              }),
              AllOf(HasSubstr("[matmul]"), HasSubstr("batch"), HasSubstr("sizes 2 and 3")));
}

TEST(ArrayErrors, ReductionsAndNorms) {
  const Var x = zeros({2, 3});
  EXPECT_THAT(message([&](Context& c) { sum(c, x, {}); }), HasSubstr("[sum] no dimensions of x (2, 3)"));
  EXPECT_THAT(message([&](Context& c) { mean(c, x, {1, -1}); }), HasSubstr("[mean] dimension -1"));
  EXPECT_THAT(message([&](Context& c) { mean(c, zeros({2, 0}), {1}); }), HasSubstr("(2, 0)"));
  EXPECT_THAT(message([&](Context& c) { max(c, zeros({2, 0}), 1); }), HasSubstr("[max] dimension 1 of x (2, 0)"));
  EXPECT_THAT(message([&](Context& c) { softmax(c, x, 2); }), HasSubstr("[softmax] dimension 2"));
  EXPECT_THAT(message([&](Context& c) { rms_norm(c, x, zeros({2})); }), HasSubstr("[rms_norm] x (2, 3) and gain (2)"));
  EXPECT_THAT(message([&](Context& c) { rms_norm(c, x, zeros({3}), -1); }), HasSubstr("eps -1"));
}

TEST(ArrayErrors, Indices) {
  const Var x = zeros({2, 3});
  EXPECT_THAT(message([&](Context& c) {
                gather(c, x, 1, ids({2, 1}, {0, 3}));
              }),
              AllOf(HasSubstr("[gather] index (2, 1) i32 along dimension 1 of x (2, 3)"), HasSubstr("element 1 is 3"),
                    HasSubstr("[0, 3)")));
  EXPECT_THAT(message([&](Context& c) { gather(c, x, 0, ids({2}, {0, 1})); }), HasSubstr("as many dimensions"));
  EXPECT_THAT(message([&](Context& c) {
                gather(c, x, 1, ids({3, 1}, {0, 0, 0}));
              }),
              HasSubstr("dimension 0 is larger"));
  EXPECT_THAT(message([&](Context& c) { gather(c, x, 1, zeros({2, 1}).value()); }), HasSubstr("i32 expected"));
  EXPECT_THAT(message([&](Context& c) {
                scatter_add(c, x, 1, ids({2, 1}, {0, 0}), zeros({1, 2}));
              }),
              HasSubstr("[scatter_add] source (1, 2) and index (2, 1)"));
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
  EXPECT_THAT(attend(4, 3, {2, 2}), AllOf(HasSubstr("4 heads of queries and 3"), HasSubstr("divide")));
  EXPECT_THAT(attend(4, 2, {2, 1}), AllOf(HasSubstr("bias (2, 1)"), HasSubstr("2 queries and 2 keys")));
  EXPECT_THAT(attend(4, 2, {3, 2, 2}), HasSubstr("bias (3, 2, 2)"));
  EXPECT_THAT(attend(4, 2, {2, 4, 2, 2}), HasSubstr("1 sequences"));
  EXPECT_EQ(attend(4, 2, {5, 2}), "no error");
  RopeOptions o;
  o.heads = 2;
  const std::vector<int64_t> places{0, 1};
  EXPECT_THAT(message([&](Context& c) {
                rope(c, zeros({2, 6}), places, o);
              }),
              AllOf(HasSubstr("[rope] x (2, 6) of 2 heads"), HasSubstr("even size")));
  EXPECT_THAT(message([&](Context& c) { rope(c, zeros({3, 8}), places, o); }), HasSubstr("2 positions for x (3, 8)"));
  o.base = 0;
  EXPECT_THAT(message([&](Context& c) { rope(c, zeros({2, 8}), places, o); }), HasSubstr("base 0"));
}

TEST(ArrayErrors, LossTerms) {
  LossTerms terms({"balance", "entropy"});
  const auto add_term = [&](const char* name, Shape shape) {
    return message([&](Context& c) { terms.add(c, name, zeros(shape)); });
  };
  EXPECT_THAT(add_term("balanse", {1}), AllOf(HasSubstr("'balanse'"), HasSubstr("'balance'")));
  EXPECT_THAT(add_term("balance", {2}), AllOf(HasSubstr("'balance' (2)"), HasSubstr("one element")));
  EXPECT_EQ(add_term("balance", {1}), "no error");
  EXPECT_EQ(terms.values(Context()), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace lmx::testing

// What an op says to operands that do not fit: every shape involved, and what would be right.
#include "lmx/array_ops.h"
#include "lmx/loss.h"
#include "lmx/ops.h"
#include "ops/messages.h"

namespace lmx::testing {
namespace {

Tensor ids(std::vector<int32_t> v) {
  return Tensor::from<int32_t>(Allocator::cpu(), {static_cast<int64_t>(v.size())}, v);
}

TEST(OpErrors, Pointwise) {
  EXPECT_EQ(message([](Context& c) {
              add(c, zeros({2, 3}), zeros({3, 2}));
            }),
            "[add] a (2, 3) and b (3, 2): sizes 3 and 2 do not broadcast; from the last dimension on they must be "
            "equal or 1");
  EXPECT_EQ(message([](Context& c) { multiply(c, zeros({2}), zeros({2}, DType::f64)); }),
            "[multiply] a (2) f32 and b (2) f64: types differ");
  EXPECT_EQ(message([](Context& c) { tanh(c, zeros({2}, DType::bf16)); }),
            "[tanh] values (2) bf16: f32 or f64 expected");
  EXPECT_EQ(message([](Context& c) {
              reshape(c, zeros({2, 3}), {4, -1});
            }),
            "[reshape] x (2, 3) to (4, -1): 6 elements do not fit");
  EXPECT_EQ(message([](Context& c) {
              reshape(c, zeros({2, 3}), {7});
            }),
            "[reshape] x (2, 3) to (7): 6 elements do not fit");
  EXPECT_EQ(message([](Context& c) {
              reshape(c, zeros({2, 3}), {-1, -1});
            }),
            "[reshape] x (2, 3) to (-1, -1): 6 elements do not fit");
  EXPECT_EQ(message([](Context& c) { dropout(c, zeros({2}), 1.0, RandomKey(1)); }),
            "[dropout] probability 1: must be in [0, 1)");
  EXPECT_EQ(message([](Context& c) {
              dropout(c, zeros({2, 3}), -0.5, RandomKey(1), {0, 1});
            }),
            "[dropout] probability -0.5: must be in [0, 1)");
  EXPECT_EQ(message([](Context& c) {
              dropout(c, zeros({2, 3, 4}), 0.5, RandomKey(1), {0, 1});
            }),
            "[dropout] 2 row ids for x (2, 3, 4): one for each of its 6 rows expected");
}

TEST(OpErrors, Embedding) {
  EXPECT_EQ(message([](Context& c) {
              embedding(c, zeros({5, 4}), ids({0, 5}));
            }),
            "[embedding] ids[1] = 5 for table (5, 4): must be in [0, 5)");
  EXPECT_EQ(message([](Context& c) {
              embedding(c, zeros({5, 4}), ids({-1}));
            }),
            "[embedding] ids[0] = -1 for table (5, 4): must be in [0, 5)");
  EXPECT_EQ(message([](Context& c) { embedding(c, zeros({5}), ids({0})); }), "[embedding] table (5): (V, D) expected");
  EXPECT_EQ(message([](Context& c) {
              embedding(c, zeros({5, 4}), zeros({2}).value());
            }),
            "[embedding] ids (2) f32: i32 expected");
}

TEST(OpErrors, LinearAndLayerNorm) {
  EXPECT_EQ(message([](Context& c) {
              linear(c, zeros({2, 3, 5}), zeros({4, 6}), Var());
            }),
            "[linear] x (2, 3, 5) and w (4, 6): the last sizes must be equal");
  EXPECT_EQ(message([](Context& c) {
              linear(c, zeros({2, 6}), zeros({4, 6}), zeros({6}));
            }),
            "[linear] b (6) for w (4, 6): (4) expected");
  EXPECT_EQ(message([](Context& c) {
              linear(c, zeros({2, 6}), zeros({6}), Var());
            }),
            "[linear] w (6): (N, K) expected");
  EXPECT_EQ(message([](Context& c) {
              layer_norm(c, zeros({2, 4}), zeros({3}), zeros({4}));
            }),
            "[layer_norm] x (2, 4), gain (3), bias (4): gain and bias must be (4)");
  EXPECT_EQ(message([](Context& c) {
              layer_norm(c, zeros({2, 4}), zeros({4}), zeros({4}), -1);
            }),
            "[layer_norm] eps -1: must not be negative");
}

TEST(OpErrors, FeedForward) {
  const auto with = [](const FeedForwardWeights& w, double p = 0) {
    return message([&](Context& c) { feed_forward(c, zeros({2, 6}), w, p, RandomKey(1), {1}); });
  };
  EXPECT_EQ(with({zeros({8, 5}), {}, zeros({6, 8}), {}}),
            "[feed_forward] x (2, 6) and up (8, 5): the last sizes must be equal");
  EXPECT_EQ(with({zeros({8, 6}), {}, zeros({6, 7}), {}}),
            "[feed_forward] units (2, 8) and down (6, 7): the last sizes must be equal");
  EXPECT_EQ(with({zeros({8, 6}), zeros({6}), zeros({6, 8}), {}}),
            "[feed_forward] up_bias (6) for up (8, 6): (8) expected");
  EXPECT_EQ(with({zeros({8, 6}), {}, zeros({6, 8}), zeros({8})}),
            "[feed_forward] down_bias (8) for down (6, 8): (6) expected");
  EXPECT_EQ(with({zeros({8, 6}), {}, zeros({6, 8}, DType::f64), {}}),
            "[feed_forward] up (8, 6) f32 and down (6, 8) f64: types differ");
  EXPECT_EQ(with({zeros({8, 6}), {}, zeros({6, 8}), {}}, 1), "[feed_forward] probability 1: must be in [0, 1)");
  EXPECT_EQ(with({zeros({8, 6}), {}, zeros({6, 8}), {}}, 0.5),
            "[feed_forward] 1 row ids for x (2, 6): one for each of its 2 rows expected");
  EXPECT_EQ(with({zeros({8, 6}), {}, zeros({6, 8}), {}}), "no error");  // without dropout the ids are not read
  EXPECT_EQ(with({zeros({8, 6}), {}, zeros({6, 4}), {}, Activation::swiglu}), "no error");
  EXPECT_EQ(with({zeros({8, 6}), {}, zeros({6, 8}), {}, Activation::swiglu}),
            "[feed_forward] units (2, 4) and down (6, 8): the last sizes must be equal");
  EXPECT_EQ(with({zeros({7, 6}), {}, zeros({6, 3}), {}, Activation::swiglu}),
            "[feed_forward] up (7, 6): with swiglu (2 F, K) expected, F gates and F values");
  EXPECT_EQ(with({zeros({8, 6}), {}, zeros({6, 8}), {}, Activation::gelu_tanh}, 0.5),
            "[feed_forward] probability 0.5: only units of relu can be dropped");
}

TEST(OpErrors, ResidualNorm) {
  const auto with = [](const ResidualInputs& in, double p = 0) {
    return message([&](Context& c) { residual_norm(c, in, p, RandomKey(1), {1}); });
  };
  const Var x = zeros({2, 6}), d = zeros({6}), b = zeros({6});
  EXPECT_EQ(with({x, {zeros({2, 5})}, d, b}),
            "[residual_norm] x (2, 6) and product (2, 5): equal shapes (..., D) expected, D >= 1");
  EXPECT_EQ(with({x, {x}, d, zeros({5})}), "[residual_norm] x (2, 6), gain (6), bias (5): gain and bias must be (6)");
  EXPECT_EQ(with({x, {x, zeros({2})}, d, b}), "[residual_norm] branch bias (2) for product (2, 6): (6) expected");
  EXPECT_EQ(with({x, {x}, d, d}), "[residual_norm] gain, bias and branch bias must be different variables");
  EXPECT_EQ(with({x, {x, b}, d, b}), "[residual_norm] gain, bias and branch bias must be different variables");
  EXPECT_EQ(with({x, {x}, d, b, -1}), "[residual_norm] eps -1: must not be negative");
  EXPECT_EQ(with({x, {x}, zeros({6}, DType::f64), b}), "[residual_norm] x (2, 6) f32 and gain (6) f64: types differ");
  EXPECT_EQ(with({x, {x}, d, b}, 1), "[residual_norm] probability 1: must be in [0, 1)");
  EXPECT_EQ(with({x, {x}, d, b}, 0.5), "[residual_norm] 1 row ids for x (2, 6): one for each of its 2 rows expected");
  EXPECT_EQ(with({x, {x}, d, b}), "no error");  // without dropout the ids are not read
  EXPECT_EQ(with({x, {x}, {}, b}), "[residual_norm] x (2, 6), gain none, bias (6): gain and bias must be (6)");
  EXPECT_EQ(with({x, {}, d, b}), "[residual_norm] x (2, 6): a branch and a gain expected");
  EXPECT_EQ(message([&](Context& c) {
              residual_sum(c, {x, {}, {}, {}}, true);
            }),
            "[residual_sum] x (2, 6): a branch or a gain expected");
  EXPECT_EQ(message([&](Context& c) {
              linear_branch(c, x, zeros({4, 5}), {});
            }),
            "[linear_branch] x (2, 6) and w (4, 5): the last sizes must be equal");
}

TEST(OpErrors, Losses) {
  EXPECT_EQ(message([](Context& c) {
              cross_entropy(c, zeros({2, 4}), ids({0}), Tensor());
            }),
            "[cross_entropy] targets (1) i32: (2) expected, one for each row");
  EXPECT_EQ(message([](Context& c) {
              cross_entropy(c, zeros({1, 4}), ids({4}), Tensor());
            }),
            "[cross_entropy] targets[0] = 4 for logits (1, 4): must be in [0, 4)");
  EXPECT_EQ(message([](Context& c) {
              cross_entropy(c, zeros({2, 4}), ids({0, 1}), zeros({3}).value());
            }),
            "[cross_entropy] weights (3) f32: (2) f32 expected, one for each target");
  EXPECT_EQ(message([](Context& c) {
              full_softmax_loss(c, {zeros({1, 3}), zeros({4, 2}), Var(), ids({0})});
            }),
            "[full_softmax_loss] h (1, 3) and w (4, 2): (n, D) and (V, D) expected");
  EXPECT_EQ(message([](Context& c) {
              full_softmax_loss(c, {zeros({1, 2}), zeros({4, 2}), zeros({3}), ids({0})});
            }),
            "[full_softmax_loss] b (3) for w (4, 2): (4) expected");
  EXPECT_EQ(message([](Context& c) {
              full_softmax_nll(c, zeros({1, 2}).value(), zeros({4, 2}).value(), Tensor(), ids({-2}));
            }),
            "[full_softmax_nll] targets[0] = -2 for w (4, 2): must be in [0, 4)");
}

TEST(OpErrors, SampledSoftmax) {
  const auto with = [](const Candidates& candidates) {
    return message([&](Context& c) {
      sampled_softmax_loss(c, {zeros({1, 2}), zeros({4, 2}), Var(), ids({0})}, candidates);
    });
  };
  EXPECT_EQ(with({}), "[sampled_softmax_loss] no candidates");
  EXPECT_EQ(with({{1, 4}, {0, 0}, {0}}), "[sampled_softmax_loss] candidate 1 = 4 for w (4, 2): must be in [0, 4)");
  EXPECT_EQ(with({{1, 3}, {0}, {0}}),
            "[sampled_softmax_loss] expected counts of 1 candidates and 1 targets, for 2 and 1");
  EXPECT_EQ(with({{1, 3}, {}, {}, false}), "no error");  // without the correction no counts are needed
}

// Array and attention ops name every shape of operands that do not fit, and the value that is wrong.

using Vars = std::vector<Var>;
using namespace lmx_test;

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
  o.rotated = 3;
  EXPECT_THAT(message([&](Context& c) { rope(c, zeros({2, 8}), places, o); }), Names("3 rotated heads of 2"));
  o.rotated = 1;
  o.frequencies = {1};
  EXPECT_THAT(message([&](Context& c) { rope(c, zeros({2, 8}), places, o); }), Names("1 frequencies", "size 4"));
  const auto other = [&](DType type, int64_t size) {
    return message([&](Context& c) { rope(c, zeros({2, 8}), rotations_of(c, places, size, {}, type), o); });
  };
  EXPECT_THAT(other(DType::f32, 6), Names("cosines (2, 3)", "x (2, 8)", "(2, 2)"));
  EXPECT_THAT(other(DType::f64, 4), Names("[rope]", "types differ"));
  EXPECT_THAT(other(DType::f32, 3), Names("size 3", "even"));
  o.frequencies.clear();
  o.base = 0;
  EXPECT_THAT(message([&](Context& c) { rope(c, zeros({2, 8}), places, o); }), Names("base 0"));
  EXPECT_THAT(message([&](Context& c) { swiglu(c, zeros({2, 5})); }), Names("[swiglu] x (2, 5)", "2 F"));
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

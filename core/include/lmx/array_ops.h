// Differentiable array operations that models compose freely: shapes, broadcast arithmetic, batched products,
// elementwise functions, reductions and indexing. Where PyTorch has the function, semantics are PyTorch's.
//
// Values are f32 or f64. matmul() rounds its inputs to ctx.compute, as linear() does. Sums are accumulated in double.
// Tensors are dense and row-major, so an op that moves elements copies them. A negative dimension counts from the last
// one. "Broadcasting" aligns shapes at the last dimension and repeats sizes of 1. Errors are UserErrors that print the
// shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"

namespace lmx {

// ---- shapes

// x[..., begin:end, ...] along `dim`; a negative begin or end counts from the end of the dimension.   grads: x
LMX_API Var slice(Context& ctx, const Var& x, int dim, int64_t begin, int64_t end);
// Consecutive parts of the given sizes along `dim`; the sizes must add up to the dimension.   grads: x
LMX_API std::vector<Var> split(Context& ctx, const Var& x, const std::vector<int64_t>& sizes, int dim);
// Concatenates the parts along `dim`; all other sizes are equal.   grads: each part
LMX_API Var concat(Context& ctx, const std::vector<Var>& parts, int dim);
// Parts of one shape along a new dimension: n parts (A, B), dim 1 -> (A, n, B).   grads: each part
LMX_API Var stack(Context& ctx, const std::vector<Var>& parts, int dim);
// Exchanges two dimensions.   grads: x
LMX_API Var transpose(Context& ctx, const Var& x, int first, int second);
// Dimension i of the result is dimension order[i] of x.   grads: x
LMX_API Var permute(Context& ctx, const Var& x, const std::vector<int>& order);
// x repeated to `shape` by broadcasting.   grads: x
LMX_API Var broadcast_to(Context& ctx, const Var& x, const Shape& shape);

// ---- arithmetic; add() and multiply() are in lmx/ops.h and broadcast as well

// a - b, a / b with broadcasting.   grads: a, b
LMX_API Var subtract(Context& ctx, const Var& a, const Var& b);
LMX_API Var divide(Context& ctx, const Var& a, const Var& b);
// x + constant, elementwise.   grads: x
LMX_API Var add_scalar(Context& ctx, const Var& x, double constant);
// Matrix product of the last two dimensions; the other dimensions broadcast: a (..., M, K), b (..., K, N) -> (..., M,
// N). If `transpose_b` is set, b is (..., N, K).   grads: a, b
LMX_API Var matmul(Context& ctx, const Var& a, const Var& b, bool transpose_b = false);

// ---- elementwise functions                                                          grads: x

LMX_API Var exp(Context& ctx, const Var& x);
LMX_API Var log(Context& ctx, const Var& x);  // natural
LMX_API Var sqrt(Context& ctx, const Var& x);
LMX_API Var pow(Context& ctx, const Var& x, double exponent);  // x^exponent; NaN for a negative x and a fraction
LMX_API Var silu(Context& ctx, const Var& x);                  // x sigmoid(x) (Elfwing et al. 2017), "swish"
LMX_API Var gelu(Context& ctx, const Var& x);                  // x Phi(x) (Hendrycks and Gimpel 2016), Phi by erf
LMX_API Var gelu_tanh(Context& ctx, const Var& x);             // tanh approximation of the same paper, as in GPT-2
// silu(gate) * value (Shazeer 2020)   x (..., 2 F), each row the gates, then the values -> (..., F)
LMX_API Var swiglu(Context& ctx, const Var& x);

// ---- over dimensions; the reduced ones vanish, or have size 1 if `keep` is set     grads: x

LMX_API Var sum(Context& ctx, const Var& x, const std::vector<int>& dims, bool keep = false);
LMX_API Var mean(Context& ctx, const Var& x, const std::vector<int>& dims, bool keep = false);
// The largest element along `dim`. If several are equal, the gradient flows to the first. NaN if an element is NaN.
LMX_API Var max(Context& ctx, const Var& x, int dim, bool keep = false);
// exp(x_i) / sum_j exp(x_j) along `dim`, and its logarithm. The result is NaN if all elements are -Inf.
LMX_API Var softmax(Context& ctx, const Var& x, int dim = -1);
LMX_API Var log_softmax(Context& ctx, const Var& x, int dim = -1);
// x / sqrt(mean(x^2) + eps) * gain over the last dimension (Zhang and Sennrich 2019)   x (..., D), gain (D)
// grads: x, gain
LMX_API Var rms_norm(Context& ctx, const Var& x, const Var& gain, double eps = 1e-6);

// ---- by index

// y[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on. `index` is i32, in the host's memory, and has x's rank;
// except along `dim`, no size of it is larger than x's. The result has the shape of `index`.   grads: x
LMX_API Var gather(Context& ctx, const Var& x, int dim, const Tensor& index);
// x with source[i][j][k] written to [index[i][j][k]][j][k] for dim 0, and so on. If an index is repeated, the last
// element in row-major order is kept. `source` has the shape of `index`.   grads: x, source
LMX_API Var scatter(Context& ctx, const Var& x, int dim, const Tensor& index, const Var& source);
// Like scatter(), but adds the elements to those of x; repeated indices add up.   grads: x, source
LMX_API Var scatter_add(Context& ctx, const Var& x, int dim, const Tensor& index, const Var& source);
// a where the condition (u8, of the host or the device) is not 0, else b. All three broadcast.   grads: a, b
LMX_API Var where(Context& ctx, const Tensor& condition, const Var& a, const Var& b);
// The value of x, through which no gradient flows.
LMX_API Var stop_gradient(Context& ctx, const Var& x);

}  // namespace lmx

// Calls of the array and attention ops with small operands: for gradient checks in f64 and, under the same names, for
// comparison with PyTorch (tools/dev/parity/array_ops.py).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lmx/array_ops.h"
#include "lmx/error.h"
#include "lmx/ops.h"
#include "ops/gradcheck.h"

namespace lmx::testing {

using Vars = std::vector<Var>;

struct OpCase {
  std::string op, name;  // the op that it checks; the case's own name
  std::function<Var(Context&, const Vars&)> result;
  std::vector<Shape> inputs;
  bool positive = false;  // the inputs are positive, for log, sqrt, pow and division
};

inline Tensor i32_tensor(Shape shape, const std::vector<int32_t>& values) {
  return Tensor::from<int32_t>(Allocator::cpu(), shape, values);
}

inline std::vector<OpCase> shape_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const char* op, const char* name, auto f, std::vector<Shape> inputs) {
    cases.push_back({op, name, f, std::move(inputs)});
  };
  add("slice", "slice_rows", [](Context& c, const Vars& v) { return slice(c, v[0], 0, 1, 3); }, {{4, 3}});
  add("slice", "slice_middle", [](Context& c, const Vars& v) { return slice(c, v[0], 1, -3, -1); }, {{2, 5, 3}});
  add("slice", "slice_empty", [](Context& c, const Vars& v) { return slice(c, v[0], -1, 2, 2); }, {{2, 5}});
  add("split", "split_last",
      [](Context& c, const Vars& v) {
        const Vars parts = split(c, v[0], {1, 3}, -1);
        return multiply(c, parts[0], parts[1]);
      },
      {{2, 3, 4}});
  add("concat", "concat_rows",
      [](Context& c, const Vars& v) {
        return concat(c, {v[0], v[1], v[0]}, 0);
      },
      {{2, 3}, {1, 3}});
  add("concat", "concat_last", [](Context& c, const Vars& v) { return concat(c, v, -1); }, {{2, 1, 3}, {2, 1, 2}});
  add("stack", "stack_first", [](Context& c, const Vars& v) { return stack(c, v, 0); }, {{2, 3}, {2, 3}});
  add("stack", "stack_last", [](Context& c, const Vars& v) { return stack(c, v, -1); }, {{2, 3}, {2, 3}});
  add("transpose", "transpose_matrix", [](Context& c, const Vars& v) { return transpose(c, v[0], 0, 1); }, {{3, 5}});
  add("transpose", "transpose_heads", [](Context& c, const Vars& v) { return transpose(c, v[0], 1, -2); },
      {{2, 3, 4, 2}});
  add("transpose", "transpose_batches", [](Context& c, const Vars& v) { return transpose(c, v[0], -1, -2); },
      {{2, 3, 4}});
  add("permute", "permute_cycle", [](Context& c, const Vars& v) { return permute(c, v[0], {2, 0, -2}); }, {{2, 3, 4}});
  add("permute", "permute_same", [](Context& c, const Vars& v) { return permute(c, v[0], {0, 1, 2}); }, {{2, 1, 4}});
  add("broadcast_to", "broadcast_rows",
      [](Context& c, const Vars& v) {
        return broadcast_to(c, v[0], {2, 4, 3});
      },
      {{3}});
  add("broadcast_to", "broadcast_middle",
      [](Context& c, const Vars& v) {
        return broadcast_to(c, v[0], {2, 4, 3});
      },
      {{2, 1, 3}});
  return cases;
}

inline std::vector<OpCase> arithmetic_cases() {
  std::vector<OpCase> cases;
  using Binary = Var (*)(Context&, const Var&, const Var&);
  const std::vector<std::pair<std::string, Binary>> binary{
      {"add", add}, {"subtract", subtract}, {"multiply", multiply}, {"divide", divide}};
  const std::vector<std::pair<std::string, std::vector<Shape>>> shapes{
      {"same", {{2, 3}, {2, 3}}},        {"row", {{2, 4, 3}, {3}}},      {"column", {{2, 3}, {2, 1}}},
      {"left", {{1, 3}, {2, 4, 3}}},     {"outer", {{2, 1, 3}, {4, 1}}}, {"scalar", {{2, 3}, {1}}},
      {"middle", {{2, 3, 4}, {2, 1, 4}}}};
  for (const auto& [op, f] : binary) {
    for (const auto& [name, inputs] : shapes) {
      cases.push_back({op, op + "_" + name, [f = f](Context& c, const Vars& v) { return f(c, v[0], v[1]); }, inputs,
                       op == "divide"});
    }
  }
  const auto own = [](Context& c, const Vars& v) { return subtract(c, v[0], v[0]); };
  cases.push_back({"subtract", "subtract_itself", own, {{2, 3}}});
  using Unary = Var (*)(Context&, const Var&);
  const std::vector<std::pair<std::string, Unary>> unary{
      {"exp", exp}, {"silu", silu}, {"gelu", gelu}, {"gelu_tanh", gelu_tanh}, {"log", log}, {"sqrt", sqrt}};
  for (const auto& [op, f] : unary) {
    cases.push_back(
        {op, op, [f = f](Context& c, const Vars& v) { return f(c, v[0]); }, {{3, 17}}, op == "log" || op == "sqrt"});
  }
  cases.push_back({"swiglu", "swiglu", [](Context& c, const Vars& v) { return swiglu(c, v[0]); }, {{2, 3, 34}}});
  for (const double p : {-1.5, 0.0, 1.0, 2.0, 3.0}) {
    cases.push_back(
        {"pow", str("pow_", p), [p](Context& c, const Vars& v) { return pow(c, v[0], p); }, {{2, 3}}, p == -1.5});
  }
  cases.push_back(
      {"add_scalar", "add_constant", [](Context& c, const Vars& v) { return add_scalar(c, v[0], -1.25); }, {{2, 3}}});
  const std::vector<std::pair<std::string, std::vector<Shape>>> products{
      {"matrices", {{3, 4}, {4, 2}}},    {"batched", {{2, 3, 4}, {2, 4, 5}}},     {"flat", {{2, 3, 4}, {4, 5}}},
      {"one_left", {{3, 4}, {2, 4, 5}}}, {"repeated", {{2, 1, 3, 4}, {3, 4, 2}}}, {"vectors", {{2, 1, 3}, {2, 3, 1}}}};
  for (const auto& [name, inputs] : products) {
    cases.push_back(
        {"matmul", "matmul_" + name, [](Context& c, const Vars& v) { return matmul(c, v[0], v[1]); }, inputs});
    Shape b = inputs[1];
    std::swap(b[b.rank() - 1], b[b.rank() - 2]);
    cases.push_back({"matmul",
                     "matmul_transposed_" + name,
                     [](Context& c, const Vars& v) { return matmul(c, v[0], v[1], true); },
                     {inputs[0], b}});
  }
  return cases;
}

inline std::vector<OpCase> reduction_cases() {
  std::vector<OpCase> cases;
  const std::vector<std::pair<std::string, std::vector<int>>> dims{
      {"first", {0}}, {"last", {-1}}, {"middle", {1}}, {"ends", {0, -1}}, {"all", {0, 1, 2}}};
  for (const auto& [name, which] : dims) {
    for (const bool keep : {false, true}) {
      const std::string tail = name + (keep ? "_kept" : "");
      cases.push_back({"sum",
                       "sum_" + tail,
                       [which = which, keep](Context& c, const Vars& v) { return sum(c, v[0], which, keep); },
                       {{2, 3, 4}}});
      cases.push_back({"mean",
                       "mean_" + tail,
                       [which = which, keep](Context& c, const Vars& v) { return mean(c, v[0], which, keep); },
                       {{2, 3, 4}}});
      if (which.size() > 1) continue;
      cases.push_back({"max",
                       "max_" + tail,
                       [dim = which[0], keep](Context& c, const Vars& v) { return max(c, v[0], dim, keep); },
                       {{2, 3, 4}}});
    }
  }
  cases.push_back({"sum", "sum_of_one", [](Context& c, const Vars& v) { return sum(c, v[0], {1}); }, {{3, 1}}});
  for (const int dim : {0, 1, -1}) {
    const std::string tail = dim < 0 ? "last" : str(dim);
    cases.push_back({"softmax",
                     "softmax_" + tail,
                     [dim](Context& c, const Vars& v) { return softmax(c, v[0], dim); },
                     {{2, 3, 5}}});
    cases.push_back({"log_softmax",
                     "log_softmax_" + tail,
                     [dim](Context& c, const Vars& v) { return log_softmax(c, v[0], dim); },
                     {{2, 3, 5}}});
  }
  for (const Shape& x : {Shape{2, 3, 5}, Shape{4, 1}, Shape{1, 7}}) {
    const Shape gain{x[x.rank() - 1]};
    cases.push_back({"rms_norm",
                     str("rms_norm_", x.numel()),
                     [](Context& c, const Vars& v) { return rms_norm(c, v[0], v[1], 1e-2); },
                     {x, gain}});
  }
  return cases;
}

inline std::vector<OpCase> index_cases() {
  std::vector<OpCase> cases;
  const Tensor rows = i32_tensor({2, 3}, {3, 0, 3, 1, 2, 0}), columns = i32_tensor({2, 2}, {2, 2, 0, 1});
  const Tensor narrow = i32_tensor({3, 1, 2}, {0, 1, 1, 0, 0, 0});
  cases.push_back(
      {"gather", "gather_rows", [=](Context& c, const Vars& v) { return gather(c, v[0], 0, rows); }, {{4, 3}}});
  cases.push_back(
      {"gather", "gather_columns", [=](Context& c, const Vars& v) { return gather(c, v[0], -1, columns); }, {{2, 3}}});
  cases.push_back(
      {"gather", "gather_middle", [=](Context& c, const Vars& v) { return gather(c, v[0], 1, narrow); }, {{3, 2, 2}}});
  const Tensor apart = i32_tensor({2, 2}, {2, 0, 0, 1});  // PyTorch leaves open which of repeated elements stays
  cases.push_back({"scatter",
                   "scatter_columns",
                   [=](Context& c, const Vars& v) { return scatter(c, v[0], 1, apart, v[1]); },
                   {{2, 3}, {2, 2}}});
  cases.push_back({"scatter_add",
                   "scatter_add_rows",
                   [=](Context& c, const Vars& v) { return scatter_add(c, v[0], 0, rows, v[1]); },
                   {{4, 3}, {2, 3}}});
  cases.push_back({"scatter_add",
                   "scatter_add_columns",
                   [=](Context& c, const Vars& v) { return scatter_add(c, v[0], 1, columns, v[1]); },
                   {{2, 3}, {2, 2}}});
  const std::vector<uint8_t> bits{1, 0, 0, 1, 1, 0};
  const Tensor full = Tensor::from<uint8_t>(Allocator::cpu(), {2, 3}, std::span<const uint8_t>(bits));
  const Tensor column = Tensor::from<uint8_t>(Allocator::cpu(), {2, 1}, std::span<const uint8_t>(bits).first(2));
  cases.push_back(
      {"where", "where_full", [=](Context& c, const Vars& v) { return where(c, full, v[0], v[1]); }, {{2, 3}, {1}}});
  cases.push_back({"where",
                   "where_column",
                   [=](Context& c, const Vars& v) { return where(c, column, v[0], v[1]); },
                   {{2, 3}, {2, 3}}});
  return cases;
}

inline std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  const std::vector<int64_t> lengths{3, 1, 4}, longer{2, 5, 1};
  const Segments s = Segments::of(lengths), other = Segments::of(longer);
  for (const bool interleaved : {false, true}) {
    cases.push_back({"rope",
                     interleaved ? "rope_interleaved" : "rope_halves",
                     [=](Context& c, const Vars& v) {
                       RopeOptions o;
                       o.heads = 2;
                       o.base = 100;
                       o.interleaved = interleaved;
                       return rope(c, v[0], positions_of(s), o);
                     },
                     {{8, 12}}});
  }
  RopeOptions first;  // two of three heads are rotated, by given frequencies
  first.heads = 3;
  first.rotated = 2;
  first.frequencies = {1.5, 0.25};
  cases.push_back({"rope",
                   "rope_first_heads",
                   [=](Context& c, const Vars& v) { return rope(c, v[0], positions_of(s), first); },
                   {{8, 12}}});
  const auto options = [](bool causal, int64_t kv_heads, Var bias = {}) {
    AttentionOptions o;
    o.heads = 4;
    o.kv_heads = kv_heads;
    o.causal = causal;
    o.bias = bias;
    return o;
  };
  for (const int64_t kv : {4, 2, 1}) {
    for (const bool causal : {false, true}) {
      cases.push_back({"attention",
                       str("attention_grouped_", kv, causal ? "_causal" : ""),
                       [=](Context& c, const Vars& v) { return attention(c, v[0], s, options(causal, kv)); },
                       {{8, (4 + 2 * kv) * 3}}});
    }
    cases.push_back({"attention",
                     str("attention_across_", kv),
                     [=](Context& c, const Vars& v) { return attention(c, v[0], v[1], s, other, options(false, kv)); },
                     {{8, 12}, {8, 2 * kv * 3}}});
  }
  const std::vector<std::pair<std::string, Shape>> biases{
      {"all", {5, 6}}, {"heads", {4, 4, 5}}, {"sequences", {3, 1, 4, 5}}, {"each", {3, 4, 4, 5}}};
  for (const auto& [name, shape] : biases) {
    cases.push_back({"attention",
                     "attention_bias_" + name,
                     [=](Context& c, const Vars& v) {
                       return attention(c, {v[0], v[1], v[2], s, other}, options(false, 2, v[3]));
                     },
                     {{8, 12}, {8, 6}, {8, 6}, shape}});
  }
  cases.push_back({"attention",
                   "attention_bias_causal",
                   [=](Context& c, const Vars& v) { return attention(c, v[0], s, options(true, 2, v[1])); },
                   {{8, 24}, {4, 4, 4}}});
  return cases;
}

inline std::vector<OpCase> all_cases() {
  std::vector<OpCase> all;
  for (const auto& cases : {shape_cases(), arithmetic_cases(), reduction_cases(), index_cases(), attention_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

}  // namespace lmx::testing

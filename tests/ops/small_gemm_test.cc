// Products of small matrices: each instruction set against a plain sum, and against the other bit by bit.
#include "ops/attention/small_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lmx/random.h"

namespace lmx::ops {
namespace {

struct Size {
  int64_t m, n, depth;
};
constexpr Size kSizes[] = {{1, 1, 1},   {2, 16, 3},  {5, 17, 7},    {12, 32, 64},   {13, 33, 40},
                           {30, 48, 5}, {25, 64, 9}, {12, 20, 256}, {29, 100, 300}, {40, 3, 513}};

// Whether element (r, k) of the left-hand side is not zero.
bool is_inside(Triangle t, int64_t r, int64_t k) {
  return (t.kind != Triangle::lower || k <= t.at + r) && (t.kind != Triangle::upper || k >= r - t.at);
}
bool is_needed(Triangle t, int64_t r, int64_t c) {
  return t.kind != Triangle::result || c <= t.at + r;
}

template <class T>
struct Case {
  Case(const Size& size, Triangle triangle, bool transposed, bool add)
      : s(size), t(triangle), left(s.m * s.depth), right(s.depth * s.n), start(s.m * s.n) {
    int64_t drawn = 0;
    const auto draw = [&] { return static_cast<T>(RandomKey{7}.normal(static_cast<uint64_t>(drawn++))); };
    for (T& x : right) x = draw();
    for (T& x : start) x = add ? draw() : std::numeric_limits<T>::quiet_NaN();
    a = transposed ? Left<T>{left.data(), 1, s.m} : Left<T>{left.data(), s.depth, 1};
    for (int64_t r = 0; r < s.m; ++r)
      for (int64_t k = 0; k < s.depth; ++k)
        left[static_cast<size_t>(r * a.row + k * a.column)] = is_inside(t, r, k) ? draw() : T(0);
    panels.resize(static_cast<size_t>(panel_size(s.depth, s.n)));
    pack_panels(right.data(), s.n, s.depth, s.n, panels.data());
    adds = add;
  }

  std::vector<T> by(void (*multiply)(const SmallProduct<T>&)) const {
    std::vector<T> c = start;
    multiply({a, {panels.data(), s.depth}, {c.data(), s.n, adds}, s.m, s.n, s.depth, t});
    return c;
  }
  double plain(int64_t r, int64_t c) const {
    double sum = adds ? start[static_cast<size_t>(r * s.n + c)] : 0;
    for (int64_t k = 0; k < s.depth; ++k)
      sum += double{a.data[r * a.row + k * a.column]} * right[static_cast<size_t>(k * s.n + c)];
    return sum;
  }

  Size s;
  Triangle t;
  bool adds = false;
  std::vector<T> left, right, start, panels;
  Left<T> a{};
};

template <class T>
void expect_products() {
  const double limit = 60 * std::numeric_limits<T>::epsilon();
  for (const Size& size : kSizes)
    for (const Triangle t :
         {Triangle{}, Triangle{Triangle::result, 0}, Triangle{Triangle::result, 21}, Triangle{Triangle::lower, 0},
          Triangle{Triangle::lower, 21}, Triangle{Triangle::upper, 0}, Triangle{Triangle::upper, 4}})
      for (const bool transposed : {false, true})
        for (const bool add : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << size.m << " " << size.n << " " << size.depth << " kind " << t.kind << " at " << t.at
                       << (transposed ? " transposed" : "") << (add ? " added" : ""));
          const Case<T> product(size, t, transposed, add);
          const std::vector<T> avx2 = product.by(small::multiply_avx2<T>);
          const std::vector<T> avx512 = has_avx512() ? product.by(small::multiply_avx512<T>) : avx2;
          for (int64_t r = 0; r < size.m; ++r)
            for (int64_t c = 0; c < size.n; ++c) {
              if (!is_needed(t, r, c)) continue;
              const auto at = static_cast<size_t>(r * size.n + c);
              ASSERT_NEAR(avx2[at], product.plain(r, c), limit * std::sqrt(static_cast<double>(size.depth) + 1));
              ASSERT_EQ(avx2[at], avx512[at]) << r << ", " << c;
            }
        }
}

TEST(SmallProducts, EqualPlainSumsWithEachInstructionSet) {
  expect_products<float>();
  expect_products<double>();
}

// A matrix (rows, cols) of numbers of bf16, and its elements for products.
struct Bf16Matrix {
  std::vector<float> numbers;
  int64_t rows, cols;
  Bf16Matrix(int64_t rows_of, int64_t cols_of, uint64_t seed)
      : numbers(static_cast<size_t>(rows_of * cols_of)), rows(rows_of), cols(cols_of) {
    uint64_t drawn = 0;
    for (float& x : numbers) x = static_cast<float>(bfloat16(static_cast<float>(RandomKey{seed}.normal(drawn++))));
  }
  float at(int64_t r, int64_t c) const { return r < rows && c < cols ? numbers[static_cast<size_t>(r * cols + c)] : 0; }
  static Bf16Pair pair(float first, float second) {
    return bfloat16(first).bits | static_cast<Bf16Pair>(bfloat16(second).bits) << 16;
  }
  // (rows, elements of cols), or of neighbouring rows (elements of rows, cols).
  std::vector<Bf16Pair> pairs(bool of_rows) const {
    std::vector<Bf16Pair> to;
    for (int64_t r = 0; r < rows; r += of_rows ? 2 : 1)
      for (int64_t c = 0; c < cols; c += of_rows ? 1 : 2)
        to.push_back(of_rows ? pair(at(r, c), at(r + 1, c)) : pair(at(r, c), at(r, c + 1)));
    return to;
  }
};

void expect_product_of_pairs(const Size& size, Triangle t, bool transposed) {
  Bf16Matrix left(size.m, size.depth, 1);
  const Bf16Matrix right(size.depth, size.n, 2);
  for (int64_t r = 0; r < size.m; ++r)
    for (int64_t k = 0; k < size.depth; ++k)
      if (!is_inside(t, r, k)) left.numbers[static_cast<size_t>(r * size.depth + k)] = 0;
  const int64_t depth = elements_of<Bf16Pair>(size.depth);
  std::vector<Bf16Pair> a(static_cast<size_t>(size.m * depth)), panels(static_cast<size_t>(panel_size(depth, size.n)));
  const std::vector<Bf16Pair> by_row = left.pairs(false);
  for (int64_t r = 0; r < size.m; ++r)
    for (int64_t k = 0; k < depth; ++k)
      a[static_cast<size_t>(transposed ? k * size.m + r : r * depth + k)] = by_row[static_cast<size_t>(r * depth + k)];
  pack_panels(right.pairs(true).data(), size.n, depth, size.n, panels.data());
  std::vector<float> c(static_cast<size_t>(size.m * size.n));
  const auto elements = transposed ? Left<Bf16Pair>{a.data(), 1, size.m} : Left<Bf16Pair>{a.data(), depth, 1};
  multiply_small<Bf16Pair>({elements, {panels.data(), depth}, {c.data(), size.n}, size.m, size.n, depth, t});
  for (int64_t r = 0; r < size.m; ++r)
    for (int64_t j = 0; j < size.n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < size.depth; ++k) sum += double{left.at(r, k)} * right.at(k, j);
      const double limit = 60 * std::numeric_limits<float>::epsilon() * std::sqrt(static_cast<double>(size.depth) + 1);
      if (!is_needed(t, r, j)) continue;
      ASSERT_NEAR(c[static_cast<size_t>(r * size.n + j)], sum, limit) << r << ", " << j;
    }
}

TEST(SmallProducts, PairsOfBf16EqualPlainSums) {
  if (multiplies_in_f32(DType::bf16)) GTEST_SKIP() << "this CPU does not multiply bf16";
  for (const Size& size : kSizes)
    for (const Triangle t : {Triangle{}, Triangle{Triangle::result, 3}, Triangle{Triangle::lower, 0},
                             Triangle{Triangle::lower, 7}, Triangle{Triangle::upper, 0}, Triangle{Triangle::upper, 3}})
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(::testing::Message() << size.m << " " << size.n << " " << size.depth << " kind " << t.kind
                                          << " at " << t.at << (transposed ? " transposed" : ""));
        expect_product_of_pairs(size, t, transposed);
      }
}

}  // namespace
}  // namespace lmx::ops

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

}  // namespace
}  // namespace lmx::ops

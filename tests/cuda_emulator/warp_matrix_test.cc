// Products of matrices that a warp holds (core/backend/cuda/mma.cuh), on the emulated device. The emulated instructions
// and the kernels must use the layout of the PTX ISA, or a wrong layout would be seen on a real device alone. So it is
// written out here as the PTX ISA's figures show it ("Matrix fragments for mma.m16n8k16 with floating point type").
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "backend/cuda/mma.cuh"
#include "cuda_emulator/simt.h"

namespace lmx {
namespace {

using cuda_emulator::Order;
using cuda_emulator::Position;

// The lane that has two neighbouring elements, and the number of the first among the lane's elements.
struct Holder {
  unsigned lane, element;
};
// A (16, 16): the elements (row, 2 i) and (row, 2 i + 1).
constexpr Holder kA[16][8] = {
    {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {0, 4}, {1, 4}, {2, 4}, {3, 4}},
    {{4, 0}, {5, 0}, {6, 0}, {7, 0}, {4, 4}, {5, 4}, {6, 4}, {7, 4}},
    {{8, 0}, {9, 0}, {10, 0}, {11, 0}, {8, 4}, {9, 4}, {10, 4}, {11, 4}},
    {{12, 0}, {13, 0}, {14, 0}, {15, 0}, {12, 4}, {13, 4}, {14, 4}, {15, 4}},
    {{16, 0}, {17, 0}, {18, 0}, {19, 0}, {16, 4}, {17, 4}, {18, 4}, {19, 4}},
    {{20, 0}, {21, 0}, {22, 0}, {23, 0}, {20, 4}, {21, 4}, {22, 4}, {23, 4}},
    {{24, 0}, {25, 0}, {26, 0}, {27, 0}, {24, 4}, {25, 4}, {26, 4}, {27, 4}},
    {{28, 0}, {29, 0}, {30, 0}, {31, 0}, {28, 4}, {29, 4}, {30, 4}, {31, 4}},
    {{0, 2}, {1, 2}, {2, 2}, {3, 2}, {0, 6}, {1, 6}, {2, 6}, {3, 6}},
    {{4, 2}, {5, 2}, {6, 2}, {7, 2}, {4, 6}, {5, 6}, {6, 6}, {7, 6}},
    {{8, 2}, {9, 2}, {10, 2}, {11, 2}, {8, 6}, {9, 6}, {10, 6}, {11, 6}},
    {{12, 2}, {13, 2}, {14, 2}, {15, 2}, {12, 6}, {13, 6}, {14, 6}, {15, 6}},
    {{16, 2}, {17, 2}, {18, 2}, {19, 2}, {16, 6}, {17, 6}, {18, 6}, {19, 6}},
    {{20, 2}, {21, 2}, {22, 2}, {23, 2}, {20, 6}, {21, 6}, {22, 6}, {23, 6}},
    {{24, 2}, {25, 2}, {26, 2}, {27, 2}, {24, 6}, {25, 6}, {26, 6}, {27, 6}},
    {{28, 2}, {29, 2}, {30, 2}, {31, 2}, {28, 6}, {29, 6}, {30, 6}, {31, 6}},
};
// B (16, 8): the elements (2 i, column) and (2 i + 1, column).
constexpr Holder kB[8][8] = {
    {{0, 0}, {4, 0}, {8, 0}, {12, 0}, {16, 0}, {20, 0}, {24, 0}, {28, 0}},
    {{1, 0}, {5, 0}, {9, 0}, {13, 0}, {17, 0}, {21, 0}, {25, 0}, {29, 0}},
    {{2, 0}, {6, 0}, {10, 0}, {14, 0}, {18, 0}, {22, 0}, {26, 0}, {30, 0}},
    {{3, 0}, {7, 0}, {11, 0}, {15, 0}, {19, 0}, {23, 0}, {27, 0}, {31, 0}},
    {{0, 2}, {4, 2}, {8, 2}, {12, 2}, {16, 2}, {20, 2}, {24, 2}, {28, 2}},
    {{1, 2}, {5, 2}, {9, 2}, {13, 2}, {17, 2}, {21, 2}, {25, 2}, {29, 2}},
    {{2, 2}, {6, 2}, {10, 2}, {14, 2}, {18, 2}, {22, 2}, {26, 2}, {30, 2}},
    {{3, 2}, {7, 2}, {11, 2}, {15, 2}, {19, 2}, {23, 2}, {27, 2}, {31, 2}},
};
// C (16, 8): the elements (row, 2 i) and (row, 2 i + 1).
constexpr Holder kC[16][4] = {
    {{0, 0}, {1, 0}, {2, 0}, {3, 0}},     {{4, 0}, {5, 0}, {6, 0}, {7, 0}},     {{8, 0}, {9, 0}, {10, 0}, {11, 0}},
    {{12, 0}, {13, 0}, {14, 0}, {15, 0}}, {{16, 0}, {17, 0}, {18, 0}, {19, 0}}, {{20, 0}, {21, 0}, {22, 0}, {23, 0}},
    {{24, 0}, {25, 0}, {26, 0}, {27, 0}}, {{28, 0}, {29, 0}, {30, 0}, {31, 0}}, {{0, 2}, {1, 2}, {2, 2}, {3, 2}},
    {{4, 2}, {5, 2}, {6, 2}, {7, 2}},     {{8, 2}, {9, 2}, {10, 2}, {11, 2}},   {{12, 2}, {13, 2}, {14, 2}, {15, 2}},
    {{16, 2}, {17, 2}, {18, 2}, {19, 2}}, {{20, 2}, {21, 2}, {22, 2}, {23, 2}}, {{24, 2}, {25, 2}, {26, 2}, {27, 2}},
    {{28, 2}, {29, 2}, {30, 2}, {31, 2}},
};

void expect_at(Position at, unsigned row, unsigned column) {
  EXPECT_EQ(at.row, row);
  EXPECT_EQ(at.column, column);
}

TEST(WarpMatrix, InstructionsUseTheLayoutOfThePtxIsa) {
  for (unsigned next = 0; next < 2; ++next) {
    for (unsigned r = 0; r < 16; ++r) {
      for (unsigned i = 0; i < 8; ++i)
        expect_at(cuda_emulator::position_in_a(kA[r][i].lane, kA[r][i].element + next), r, 2 * i + next);
      for (unsigned i = 0; i < 4; ++i)
        expect_at(cuda_emulator::position_in_c(kC[r][i].lane, kC[r][i].element + next), r, 2 * i + next);
    }
    for (unsigned i = 0; i < 8; ++i)
      for (unsigned c = 0; c < 8; ++c)
        expect_at(cuda_emulator::position_in_b(kB[i][c].lane, kB[i][c].element + next), 2 * i + next, c);
  }
}

// ---- kernels of one warp

constexpr int kRows = 16, kInner = 16, kColumns = 16, kStride = 40;

// Floats in the memory of the device.
class DeviceFloats {
 public:
  explicit DeviceFloats(const std::vector<float>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceFloats() { cudaFree(data_); }
  float* data() const { return data_; }
  std::vector<float> get() const {
    std::vector<float> values(size_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, size_ * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  float* data_ = nullptr;
  size_t size_;
};

template <class... P, class... A>
void start(size_t shared, void (*kernel)(P...), A... arguments) {
  cudaLaunchConfig_t config;
  config.gridDim = 1;
  config.blockDim = 32;
  config.dynamicSmemBytes = shared;
  cuda_emulator::name_next_kernel("warp_matrix");
  ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
}

struct Matrices {
  const float *a, *b;  // (16, 16), (16, 16)
  float* c;            // (16, 16)
};

template <class Half>
uint32_t two(float low, float high) {
  return cuda::pack<Half>(low, high);
}

// c (16, 8) += a b by one instruction, whose registers are filled by the tables above.
template <class Half>
__global__ void by_the_tables(Matrices m) {
  cuda::Left a{};
  cuda::Right b{};
  cuda::Sum c{};
  for (int r = 0; r < 16; ++r)
    for (int i = 0; i < 8; ++i)
      if (kA[r][i].lane == threadIdx.x)
        a.registers[kA[r][i].element / 2] = two<Half>(m.a[r * kInner + 2 * i], m.a[r * kInner + 2 * i + 1]);
  for (int i = 0; i < 8; ++i)
    for (int n = 0; n < 8; ++n)
      if (kB[i][n].lane == threadIdx.x)
        b.registers[kB[i][n].element / 2] = two<Half>(m.b[2 * i * kColumns + n], m.b[(2 * i + 1) * kColumns + n]);
  for (int pass = 0; pass < 2; ++pass) {
    for (int r = 0; r < 16; ++r) {
      for (int i = 0; i < 8; ++i) {
        if (i >= 4 || kC[r][i].lane != threadIdx.x) continue;
        for (int e = 0; e < 2; ++e) {
          float &value = c[kC[r][i].element + e], &stored = m.c[r * kColumns + 2 * i + e];
          (pass == 0 ? value : stored) = pass == 0 ? stored : value;
        }
      }
    }
    if (pass == 0) cuda::multiply_add<Half>(a, b, c);
  }
}

// c (16, 16) += a b with operands from shared memory. TransposedA, Transposed: a, b is stored with its columns as rows.
template <class Half, bool TransposedA, bool Transposed>
__global__ void from_shared_memory(Matrices m) {
  using Matrix = cuda::SharedMatrix<Half, kStride>;
  const Matrix a{cuda::shared<Half>()}, b{a.at(kRows + 8, 0)};
  const int lane = static_cast<int>(threadIdx.x);
  for (int t = lane; t < kRows * kInner; t += 32) {
    *a.at(8 + (TransposedA ? t % 16 : t / 16), 8 + (TransposedA ? t / 16 : t % 16)) = Half(m.a[t]);
    *b.at(8 + (Transposed ? t % 16 : t / 16), 16 + (Transposed ? t / 16 : t % 16)) = Half(m.b[t]);
  }
  __syncthreads();
  const cuda::Left left = TransposedA ? a.left_of_transpose(8, 8) : a.left(8, 8);
  cuda::Right right[2];
  if (Transposed)
    b.transposed(8, 16, right);
  else
    b.right(8, 16, right);
  for (int n = 0; n < 2; ++n) {
    cuda::Sum sum;
    for (int r = 0; r < 4; ++r) sum[r] = m.c[cuda::sum_row(r) * kColumns + 8 * n + cuda::sum_column(r)];
    cuda::multiply_add<Half>(left, right[n], sum);
    for (int r = 0; r < 4; ++r) m.c[cuda::sum_row(r) * kColumns + 8 * n + cuda::sum_column(r)] = sum[r];
  }
}

// c (16, 16) += a b, where a is a sum of two earlier products (the values that are read here in their place). Stored: a
// passes through shared memory.
template <class Half, bool Stored>
__global__ void of_a_sum(Matrices m) {
  using Matrix = cuda::SharedMatrix<Half, kStride>;
  const Matrix b{cuda::shared<Half>()}, stored{b.at(kInner, 0)};
  for (int t = static_cast<int>(threadIdx.x); t < kInner * kColumns; t += 32) *b.at(t / 16, t % 16) = Half(m.b[t]);
  __syncthreads();
  cuda::Sum earlier[2];
  for (int n = 0; n < 2; ++n)
    for (int r = 0; r < 4; ++r) earlier[n][r] = m.a[cuda::sum_row(r) * kInner + 8 * n + cuda::sum_column(r)];
  cuda::Left left = cuda::left_of<Half>(earlier[0], earlier[1]);
  if (Stored) {
    stored.store(8, 16, left);
    __syncthreads();
    left = stored.left(8, 16);
  }
  cuda::Right right[2];
  b.right(0, 0, right);
  for (int n = 0; n < 2; ++n) {
    cuda::Sum sum{};
    cuda::multiply_add<Half>(left, right[n], sum);
    for (int r = 0; r < 4; ++r) m.c[cuda::sum_row(r) * kColumns + 8 * n + cuda::sum_column(r)] += sum[r];
  }
}

// Each element of a matrix is another integer, of at most 256, so every product and sum here is exact.
std::vector<float> distinct(int factor) {
  std::vector<float> values;
  for (int i = 0; i < 256; ++i) values.push_back(static_cast<float>((i * factor + 7) % 256 - 100));
  return values;
}

void expect_product(void (*kernel)(Matrices), int columns) {
  const size_t shared = sizeof(uint16_t) * 2 * 24 * kStride;
  const std::vector<float> a = distinct(37), b = distinct(101), c = distinct(11);
  for (const Order order : {Order::ascending, Order::descending, Order::scrambled}) {
    cuda_emulator::set_order(order);
    const DeviceFloats da(a), db(b), dc(c);
    start(shared, kernel, Matrices{da.data(), db.data(), dc.data()});
    const std::vector<float> got = dc.get();
    for (size_t i = 0; i < 16; ++i) {
      for (size_t j = 0; j < 16; ++j) {
        float want = c[i * 16 + j];
        for (size_t k = 0; k < 16 && static_cast<int>(j) < columns; ++k) want += a[i * 16 + k] * b[k * 16 + j];
        ASSERT_EQ(got[i * 16 + j], want) << i << ' ' << j;
      }
    }
  }
  cuda_emulator::set_order(Order::ascending);
}

TEST(WarpMatrix, ProductsAreThoseOfATripleLoop) {
  expect_product(by_the_tables<bfloat16>, 8);
  expect_product(by_the_tables<float16>, 8);
}
template <class Half>
void expect_products_from_memory() {
  expect_product(from_shared_memory<Half, false, false>, 16);
  expect_product(from_shared_memory<Half, false, true>, 16);
  expect_product(from_shared_memory<Half, true, false>, 16);
  expect_product(of_a_sum<Half, true>, 16);
}
TEST(WarpMatrix, OperandsFromSharedMemory) {
  expect_products_from_memory<bfloat16>();
  expect_products_from_memory<float16>();
}
TEST(WarpMatrix, ASumIsTheLeftSideOfTheNextProduct) {
  expect_product(of_a_sum<bfloat16, false>, 16);
  expect_product(of_a_sum<float16, false>, 16);
}

// ---- errors

__global__ void unaligned_row(Matrices m) {
  uint32_t loaded[4];
  cuda::load_matrices<false>(cuda::shared<unsigned char>(), 8, loaded);
  m.c[threadIdx.x] = static_cast<float>(loaded[0]);
}
__global__ void two_operations(Matrices m) {
  cuda::Sum sum{};
  const cuda::Left a{};
  const cuda::Right b{};
  if (threadIdx.x < 16)
    cuda::multiply_add<bfloat16>(a, b, sum);
  else
    sum[0] = __shfl_xor_sync(0xffffffffu, sum[0], 1);
  m.c[threadIdx.x] = sum[0];
}

TEST(WarpMatrixDeathTest, AnUnalignedRowEndsTheProcess) {
  const DeviceFloats c(distinct(1));
  EXPECT_DEATH(
      {
        start(1024, unaligned_row, Matrices{nullptr, nullptr, c.data()});
        (void)c.get();
      },
      "");
}
TEST(WarpMatrixDeathTest, LanesInDifferentOperationsEndTheProcess) {
  const DeviceFloats c(distinct(1));
  EXPECT_DEATH(
      {
        start(1024, two_operations, Matrices{nullptr, nullptr, c.data()});
        (void)c.get();
      },
      "\\[warp_matrix\\] .*lane 16 meets lane 0, which takes part in another exchange");
}

}  // namespace
}  // namespace lmx

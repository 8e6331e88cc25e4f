#include "backend/cuda/parts.cuh"
#include "comm/vectors/vectors.h"

namespace lmx::comm {
namespace {

// ---- the largest elements: four times the next eight bits of every chunk's threshold, then the ids in order

constexpr int64_t kRun = 32;  // successive elements of which one thread writes the ids

// Work memory: of chunk c the threshold and the counts of its digits; of each run of a chunk, how many elements are
// above the threshold and how many are equal to it, which become those of all runs before it.
struct Search {
  LargestIds<float> a;
  Threshold* thresholds;    // (chunks)
  uint32_t* counts;         // (chunks, kDigits)
  int64_t parts, runs;      // of a chunk
  uint32_t *above, *equal;  // (chunks, runs)
};

// Element i: digit i % kDigits of chunk i / kDigits.
struct StartElement {
  Search s;
  __device__ void operator()(int64_t i) const {
    s.counts[i] = 0;
    const auto [chunk, digit] = cuda::position_of(i, kDigits);
    if (digit == 0) s.thresholds[chunk] = {0, s.a.taken(chunk)};
  }
};

// A block for each part of a chunk; thread d adds the part's count of digit d.
__global__ void count_digits(Search s, int shift) {
  cuda::wait_for_previous();
  uint32_t* own = cuda::shared<uint32_t>();
  own[threadIdx.x] = 0;
  __syncthreads();
  const auto [chunk, part] = cuda::position_of(blockIdx.x, s.parts);
  const Threshold t = s.thresholds[chunk];
  const int64_t size = s.a.size(chunk), end = (part + 1) * cuda::kPartSize;
  const float* v = s.a.v + chunk * s.a.chunk;
  for (int64_t i = part * cuda::kPartSize + threadIdx.x; i < end && i < size; i += blockDim.x) {
    const uint32_t bits = magnitude_bits(v[i]);
    if (has_prefix(bits, t, shift)) atomicAdd(own + (bits >> shift & (kDigits - 1)), 1u);
  }
  __syncthreads();
  if (own[threadIdx.x] > 0) atomicAdd(s.counts + chunk * kDigits + threadIdx.x, own[threadIdx.x]);
}

struct ChooseElement {
  Search s;
  __device__ void operator()(int64_t chunk) const {
    uint32_t* counts = s.counts + chunk * kDigits;
    choose_digit(counts, s.thresholds[chunk]);
    for (int d = 0; d < kDigits; ++d) counts[d] = 0;
  }
};

// Calls element(bits, i) for the elements i of run `run`, of all chunks.
template <class Element>
__device__ void each_of_run(const Search& s, int64_t run, Element element) {
  const auto [chunk, own] = cuda::position_of(run, s.runs);
  const int64_t begin = own * kRun, size = s.a.size(chunk);
  for (int64_t i = begin; i < begin + kRun && i < size; ++i)
    element(magnitude_bits(s.a.v[chunk * s.a.chunk + i]), chunk * s.a.chunk + i);
}

struct CountElement {
  Search s;
  __device__ void operator()(int64_t run) const {
    const uint32_t threshold = s.thresholds[run / s.runs].prefix;
    uint32_t above = 0, equal = 0;
    each_of_run(s, run, [&](uint32_t bits, int64_t) {
      above += bits > threshold;
      equal += bits == threshold;
    });
    s.above[run] = above;
    s.equal[run] = equal;
  }
};

// A block for each chunk; thread t sums a range of its runs.
__global__ void sum_runs(Search s) {
  cuda::wait_for_previous();
  uint32_t *above = s.above + blockIdx.x * s.runs, *equal = s.equal + blockIdx.x * s.runs;
  uint32_t* sums = cuda::shared<uint32_t>();  // (2, threads)
  const unsigned t = threadIdx.x, threads = blockDim.x;
  const int64_t begin = s.runs * t / threads, end = s.runs * (t + 1) / threads;
  sums[t] = sums[threads + t] = 0;
  for (int64_t r = begin; r < end; ++r) {
    sums[t] += above[r];
    sums[threads + t] += equal[r];
  }
  __syncthreads();
  uint32_t before_above = 0, before_equal = 0;
  for (unsigned other = 0; other < t; ++other) {
    before_above += sums[other];
    before_equal += sums[threads + other];
  }
  for (int64_t r = begin; r < end; ++r) {
    const uint32_t own_above = above[r], own_equal = equal[r];
    above[r] = before_above;
    equal[r] = before_equal;
    before_above += own_above;
    before_equal += own_equal;
  }
}

struct WriteElement {
  Search s;
  __device__ void operator()(int64_t run) const {
    const int64_t chunk = run / s.runs;
    const Threshold t = s.thresholds[chunk];
    uint32_t above = s.above[run], equal = s.equal[run];
    int32_t* to = s.a.ids + chunk * s.a.k;
    each_of_run(s, run, [&](uint32_t bits, int64_t i) {
      if (bits > t.prefix) to[above++ + (equal < t.left ? equal : t.left)] = static_cast<int32_t>(i);
      if (bits == t.prefix && equal++ < t.left) to[above + equal - 1] = static_cast<int32_t>(i);
    });
  }
};

void largest_ids(Context& ctx, const LargestIds<float>& a) {
  if (a.n == 0) return;
  const int64_t chunks = a.chunks(), runs = (a.chunk + kRun - 1) / kRun;
  const auto memory = [&](int64_t n) { return ctx.empty(Shape{n}, DType::i32, MemClass::communication); };
  Tensor thresholds = memory(2 * chunks), counts = memory(chunks * kDigits), above = memory(chunks * runs),
         equal = memory(chunks * runs);
  const auto words = [](Tensor& t) { return reinterpret_cast<uint32_t*>(t.data<int32_t>()); };
  const Search s{a,
                 reinterpret_cast<Threshold*>(words(thresholds)),
                 words(counts),
                 (a.chunk - 1) / cuda::kPartSize + 1,
                 runs,
                 words(above),
                 words(equal)};
  launch_each(ctx, a.kName, chunks * kDigits, StartElement{s});
  for (int shift = kFirstShift; shift >= 0; shift -= kDigitBits) {
    cuda::launch(ctx, a.kName, {cuda::blocks_of(chunks * s.parts), kDigits, kDigits * sizeof(uint32_t)}, count_digits,
                 s, shift);
    launch_each(ctx, a.kName, chunks, ChooseElement{s});
  }
  launch_each(ctx, a.kName, chunks * runs, CountElement{s});
  cuda::launch(ctx, a.kName, {cuda::blocks_of(chunks), cuda::kThreads, 2 * cuda::kThreads * sizeof(uint32_t)}, sum_runs,
               s);
  launch_each(ctx, a.kName, chunks * runs, WriteElement{s});
}

// ---- entries

struct TakeElement {
  TakeEntries<float> a;
  int64_t count() const { return a.k; }
  __device__ void operator()(int64_t i) const {
    a.values[i] = a.v[a.ids[i]];
    a.v[a.ids[i]] = 0;
  }
};
struct AddElement {
  AddEntries<float> a;
  int64_t count() const { return a.k; }
  __device__ void operator()(int64_t i) const { a.sum[a.ids[i]] += a.values[i]; }
};

// ---- codes

template <class Args, int64_t kSize>
struct GroupElement {
  Args a;
  int64_t count() const { return (a.n + kSize - 1) / kSize; }
  __device__ void operator()(int64_t g) const { a.group(g); }
};
using PackElement = GroupElement<PackBits<uint8_t>, kPackedCodes>;
using UnpackElement = GroupElement<UnpackBits<uint8_t>, kPackedCodes>;
using QuantiseElement = GroupElement<QuantiseValues<float>, QuantiseValues<float>::kGroup>;

struct AddLevelsElement {
  AddLevels<float> a;
  __device__ void operator()(int64_t i) const {
    a.v[i] += a.factor * a.levels.value(a.codes[i], a.norms[i / a.bucket]);
  }
};

template <class Args>
struct SetElement {
  Args a;
  __device__ void operator()(int64_t i) const { a.set(i); }
};

// One block: column after column, its threads the rows.
__device__ double dot(const Orthonormalise<float>& a, int64_t c, int64_t d) {
  return cuda::block_sum_of(0, a.rows, [&](int64_t row) {
    return static_cast<double>(a.m[row * a.columns + c]) * static_cast<double>(a.m[row * a.columns + d]);
  });
}
__device__ double project(const Orthonormalise<float>& a, int64_t c) {
  for (int64_t d = 0; d < c; ++d) {
    const double along = dot(a, c, d);
    for (int64_t row = threadIdx.x; row < a.rows; row += blockDim.x) {
      float& own = a.m[row * a.columns + c];
      own = static_cast<float>(static_cast<double>(own) - along * static_cast<double>(a.m[row * a.columns + d]));
    }
  }
  return sqrt(dot(a, c, c));
}
__global__ void make_orthonormal(Orthonormalise<float> a) {
  cuda::wait_for_previous();
  for (int64_t c = 0; c < a.columns; ++c) {
    const double before = sqrt(dot(a, c, c));
    double norm = project(a, c);
    if (a.depends(before, norm)) {  // the same on all threads
      __syncthreads();
      if (threadIdx.x == 0) a.replace(c);
      __syncthreads();
      norm = project(a, c);
    }
    for (int64_t row = threadIdx.x; row < a.rows; row += blockDim.x)
      a.m[row * a.columns + c] = static_cast<float>(static_cast<double>(a.m[row * a.columns + c]) / norm);
    __syncthreads();
  }
}
void orthonormalise(Context& ctx, const Orthonormalise<float>& a) {
  if (a.rows > 0) cuda::launch(ctx, a.kName, cuda::summing_grid(1, a.rows), make_orthonormal, a);
}

// A block for each bucket.
__global__ void norm_of_bucket(BucketNorms<float> a) {
  cuda::wait_for_previous();
  const float* v = a.v + blockIdx.x * a.bucket;
  const int64_t left = a.n - blockIdx.x * a.bucket, n = a.bucket < left ? a.bucket : left;
  double norm = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const auto size = static_cast<double>(math::from_bits(magnitude_bits(v[i])));
    norm = a.largest ? cuda::LargerValue()(size, norm) : norm + size * size;
  }
  double* scratch = cuda::shared<double>();
  norm = a.largest ? cuda::block_reduce(norm, 0.0, scratch, cuda::LargerValue()) : sqrt(cuda::block_sum(norm, scratch));
  if (threadIdx.x == 0) a.norms[blockIdx.x] = static_cast<float>(norm);
}
void bucket_norms(Context& ctx, const BucketNorms<float>& a) {
  const int64_t buckets = (a.n + a.bucket - 1) / a.bucket;
  if (buckets > 0) cuda::launch(ctx, a.kName, cuda::summing_grid(buckets, a.bucket), norm_of_bucket, a);
}

// A block for each block of the vector.
__global__ void encode_block(EncodeLevels<float> a) {
  cuda::wait_for_previous();
  const LevelTable& t = a.table;
  const int64_t begin = blockIdx.x * t.block, end = t.end(blockIdx.x);
  const auto sum_of = [&](auto value) { return cuda::block_sum_of(begin, end, value); };
  float offset = 0, scale = 0;
  if (t.kind == LevelScale::largest) {
    double largest = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
      largest = cuda::LargerValue()(static_cast<double>(math::from_bits(magnitude_bits(a.v[i]))), largest);
    scale = static_cast<float>(cuda::block_reduce(largest, 0.0, cuda::shared<double>(), cuda::LargerValue()));
  } else {
    const auto n = static_cast<double>(end - begin);
    const double mean = t.means() ? sum_of([&](int64_t i) { return static_cast<double>(a.v[i]); }) / n : 0.0;
    const auto square = [&](int64_t i) {
      return (static_cast<double>(a.v[i]) - mean) * (static_cast<double>(a.v[i]) - mean);
    };
    offset = static_cast<float>(mean);
    scale = static_cast<float>(sqrt(sum_of(square) / n));
  }
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) a.codes[i] = t.nearest(a.v[i], offset, scale);
  float* numbers = a.numbers + blockIdx.x * t.numbers();
  if (!t.means() && threadIdx.x == 0) *numbers = scale;
  for (int64_t level = 0; t.means() && level < t.count; ++level) {  // each thread reads the codes that it wrote
    const double sum = sum_of([&](int64_t i) { return a.codes[i] == level ? static_cast<double>(a.v[i]) : 0.0; }),
                 count = sum_of([&](int64_t i) { return a.codes[i] == level ? 1.0 : 0.0; });
    if (threadIdx.x == 0) numbers[level] = count > 0 ? static_cast<float>(sum / count) : 0.0f;
  }
}
void encode_levels(Context& ctx, const EncodeLevels<float>& a) {
  cuda::launch(ctx, a.kName, cuda::summing_grid(a.table.blocks(), a.table.block), encode_block, a);
}

const KernelAdder adder(Device::Kind::cuda, largest_ids, cuda::each<TakeElement>, cuda::each<AddElement>,
                        cuda::each<PackElement>, cuda::each<UnpackElement>, cuda::each<QuantiseElement>,
                        cuda::each<AddLevelsElement>, bucket_norms, orthonormalise,
                        cuda::each<SetElement<Signs<float>>>, cuda::each<SetElement<SignCodes<float>>>,
                        cuda::each<SetElement<AddVotes<float>>>, cuda::each<SetElement<SignValues<float>>>,
                        cuda::each<SetElement<DivideCounts<float>>>, cuda::each<SetElement<IdBytes<uint8_t>>>,
                        cuda::each<SetElement<JoinIds<int32_t>>>, cuda::each<SetElement<CountEntries<float>>>,
                        cuda::each<SetElement<ClearWhereZero<float>>>, cuda::each<SetElement<SpoilEntries<float>>>,
                        encode_levels, cuda::each<SetElement<DecodeLevels<float>>>);

}  // namespace
}  // namespace lmx::comm

// The random numbers of numpy.random.default_rng(seed): the generator PCG64 (O'Neill 2014, XSL-RR 128/64), seeded by
// NumPy's SeedSequence. Translation scores use them for resampling, so intervals and p-values equal sacreBLEU's.
#pragma once

#include <cstdint>

namespace lmx::data {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);
  // Generator.integers(n) and Generator.choice(n): uniform in [0, n). REQUIRES: 0 < n <= 2^32 - 1.
  uint32_t below(uint32_t n);
  // One call of Generator.integers(2, dtype=bool) takes its elements from blocks of 32 bits. A `Bits` object is one
  // such call.
  class Bits {
   public:
    explicit Bits(NumpyRandom& random) : random_(random) {}
    bool next();

   private:
    NumpyRandom& random_;
    uint32_t buffer_ = 0;
    int left_ = 0;
  };

 private:
  __extension__ using Wide = unsigned __int128;

  uint64_t next64();
  uint32_t next32();  // the low half of 64 bits, then the high half

  Wide state_ = 0, increment_ = 0;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

}  // namespace lmx::data

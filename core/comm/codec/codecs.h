// The kernels of codecs: a codec is a struct of its parameters (a code), and each code has the four kernels below.
// Their arguments derive from the code, which adds no bytes if it is empty. A member with [[no_unique_address]] would
// do the same, but nvcc 13.0 gives the members after it other offsets in device code than in host code.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "comm/rows.h"
#include "lmx/codec.h"
#include "nn/component.h"

namespace lmx::comm {

struct PlainCode {
  static constexpr const char* kName = "none";
  static constexpr bool kElementwise = true, kFeedback = false;
  static int64_t bytes(int64_t rows, int64_t width) { return 4 * rows * width; }
};

struct Bf16Code {
  static constexpr const char* kName = "bf16";
  static constexpr bool kElementwise = true, kFeedback = false;
  static int64_t bytes(int64_t rows, int64_t width) { return 2 * rows * width; }
};

// Compression-scaling (Patwary 2018, section III-C): f16(scale v).
struct Fp16Code {
  static constexpr const char* kName = "fp16";
  static constexpr bool kElementwise = true, kFeedback = false;
  static int64_t bytes(int64_t rows, int64_t width) { return 2 * rows * width; }
  float scale, inverse;
  int64_t reduce_in_fp16;  // 1 or 0; not bool, because the emulated device checks padding for addresses
};

// One bit for each entry and two values for each column (Seide et al. 2014). A block consists of f32 means of the
// columns' non-negative entries (width), f32 means of their negative entries (width), and the bits of all entries, row
// after row without gaps, the first entry in the lowest bit of the first byte. A block may begin at any byte.
struct OneBitCode {
  static constexpr const char* kName = "one_bit";
  static constexpr bool kElementwise = false, kFeedback = true;
  static constexpr int64_t kStrip = 64;  // number of rows that are summed in f32
  static int64_t bytes(int64_t rows, int64_t width) {
    return rows * width > 0 ? 2 * width * 4 + (rows * width + 7) / 8 : 0;
  }
  LMX_HD static float mean(double sum, int64_t count) {
    return count ? static_cast<float>(sum / static_cast<double>(count)) : 0.0f;
  }
};

// Overloads for a code take code(), because a template would take the arguments themselves.
template <class Code>
struct WithCode : Code {
  LMX_HD const Code& code() const { return *this; }
};

template <class Code, class T>
struct Encode : WithCode<Code> {
  const T* values;  // (rows, width)
  std::byte* encoded;
  int64_t rows, width;
};

// The rows of `to` that receive an elementwise code are one after the other.
template <class Code, class T>
struct Decode : WithCode<Code> {
  const std::byte* encoded;
  RowsAt<T> to;
  int64_t rows, width;
};

// sum += decoded
template <class Code, class T>
struct AddDecoded : WithCode<Code> {
  const std::byte* encoded;
  RowsAt<T> sum;
  int64_t rows, width;
};

// Adds to `sums`: underflows, overflows, the squares of the quantisation error, and those of the values (CodecHealth).
// Sums are in f32 within a strip of about 4096 values (strip_rows), and strips are added in ascending order.
template <class T>
struct Measured {
  const T* values;  // (rows, width)
  T* lost;          // becomes the quantisation error, 0 where it is not finite; may be null or the values
  int64_t rows, width;
  double* sums;  // (kSums)
};
inline constexpr int64_t kSums = 4;
template <class Code, class T>
struct Measure : WithCode<Code> {
  const std::byte* encoded;
  Measured<T> of;
};
inline int64_t strip_rows(int64_t width) {
  return rows_holding(4096, width);
}

const std::vector<std::string>& built_in_codecs();
// null: no codec of this kind is built into lmx.
std::unique_ptr<Codec> built_in_codec(const CodecConfig& config);
// A codec of blocks, each of which `own` encodes as a vector. `name` must be valid as long as it.
std::unique_ptr<Codec> block_codec(const char* name, std::unique_ptr<VectorCodec> own);

// Counters of the quantisation error, by parameter. The sums stay on the device until they are taken.
class HealthCounters {
 public:
  // Encodes `values` and counts the quantisation error. `lost`, if defined, receives it; `lost` may be `values`.
  void encode(Context& ctx, const Codec& codec, const std::string& name, const Tensor& values, Tensor encoded,
              Tensor lost = {});
  std::map<std::string, CodecHealth> take();

 private:
  struct Counters {
    int64_t values = 0;
    Tensor sums;
  };
  std::map<std::string, Counters> counters_;
};

}  // namespace lmx::comm

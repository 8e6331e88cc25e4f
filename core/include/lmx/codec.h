// Codecs: how gradients are written for the wire, what that loses, and the sum over ranks through one.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmx/comm.h"
#include "lmx/config.h"
#include "lmx/context.h"
#include "lmx/parameters.h"

namespace lmx {

struct GatheredIndices;  // lmx/row_sync.h

// `codec:` of a rule.
struct LMX_API CodecConfig {
  std::string kind = "none";  // none, fp16, bf16, one_bit
  double scale = 1024;        // fp16: values are multiplied by it before they are rounded (Patwary 2018, section III-C)
  std::string reduce = "fp16";    // fp16: the type in which ranks' values are added
  std::string residual = "rows";  // one_bit on row-sparse gradients: rows (kept for rows that were ever sent), none
  void fields(Fields& f);
  void check(const std::string& where) const;  // UserError: a setting that its kind does not read
  // Lines for people: fp16 that nothing scales makes zeros of small gradients. `place`: "sync.rest.codec".
  std::vector<std::string> warnings(const std::string& place, bool loss_scaled) const;
  // UserError: a `reduce`, where nothing is added as it travels: `why`.
  void check_sums(const std::string& where, const std::string& why) const;
};

// What encoding lost since the counters were last taken, by parameter: of what this rank sent, its own values and its
// chunks of the sum.
struct LMX_API CodecHealth {
  int64_t values = 0;
  int64_t underflow = 0;       // non-zero before, zero after
  int64_t overflow = 0;        // not finite after
  double error = 0, norm = 0;  // sums of squares of what was lost and of what there was: relative error
                               // sqrt(error / norm); values that are not finite count in neither
  double residual = 0;         // sum of squares of what error feedback keeps now
  double relative_error() const { return norm > 0 ? std::sqrt(error / norm) : 0; }
  void add(const CodecHealth& other);  // that of another rank
};

inline constexpr std::string_view kHealthPrefix = "codec/";
// In a record: "codec/<parameter>/entries", "underflow", "overflow": counts; "relative_error", the "norm" that it
// refers to and, with error feedback, "residual_norm".
LMX_API std::vector<std::pair<std::string, double>> health_values(const std::map<std::string, CodecHealth>& health);
// What health_values() has put into a record with these values.
LMX_API std::map<std::string, CodecHealth> health_in(const std::map<std::string, double>& values);

// Encodes blocks (rows, width) of f32. Stateless and thread-safe.
//
//   fp16     f16(scale v), rounded to nearest even; what is too large becomes infinite, so that a run sees it diverge.
//            Ranks are added in f16, still scaled, or in f32.
//   bf16     bf16(v); ranks are added in f32
//   one_bit  a bit an entry (1: not negative) and two floats a column, the means of its non-negative and of its
//            negative entries, which decoding puts in their places (Seide 2014, section 3.2; FACTS A5)
class LMX_API Codec {
 public:
  virtual ~Codec();
  virtual const char* name() const = 0;
  virtual int64_t bytes(int64_t rows, int64_t width) const = 0;  // of an encoded block
  virtual void encode(const float* values, int64_t rows, int64_t width, std::byte* out) const = 0;
  // Rows [first, last) of an encoded block.
  virtual void decode_rows(const std::byte* in, int64_t rows, int64_t width, int64_t first, int64_t last,
                           float* out) const = 0;
  void decode(const std::byte* in, int64_t rows, int64_t width, float* out) const {
    decode_rows(in, rows, width, 0, rows, out);
  }
  // sum += decoded, in the precision in which the codec reduces.
  virtual void add(const std::byte* in, int64_t rows, int64_t width, float* sum) const = 0;
  virtual bool elementwise() const { return true; }  // each value by itself: blocks may be cut and joined at will
  virtual bool feedback() const { return false; }    // what encoding loses is added to the next step's values
};
LMX_API std::unique_ptr<Codec> make_codec(const CodecConfig& config);

// The sum over ranks of blocks through a codec: part r of a block goes to rank r, is summed there in rank order from
// +0, encoded again and gathered. A part is a run of elements where the codec is elementwise. Means of columns are
// written once a part, so one_bit's parts are columns where a block has enough of them, else rows. Without a codec this
// is Communicator::all_reduce. Among one rank nothing travels, so nothing is encoded.
//
// With error feedback both encodings keep what they lose (Seide 2014, section 3): each rank for its own values, and the
// owner of a part for its sum. Of a table each rank encodes, and keeps the losses of, the rows that it has a gradient
// of; what such a row lost is added when this rank next has it. As rows come and go, the owner of a sum is that of its
// column, or, where there are fewer columns than ranks, that of its row's index modulo the number of ranks; what a
// row's sum lost is added when any rank next has the row. Loss that is not finite is not kept. With one rank,
// residuals from a run on several are added to the gradient once.
class LMX_API Reducer {
 public:
  Reducer(const CodecConfig& config, std::string group);
  ~Reducer();
  const Codec& codec() const;
  // `name`: whose values these are, for residuals and health. (n, D) or (n), f32 (f64 too without a codec); a vector
  // is one column. Returns the sum in the same shape, shared, not to be written to.
  Tensor reduce(Context& ctx, const std::string& name, const Tensor& own);
  // The sums of several blocks that travel in one message: views of one buffer, in order.
  struct Block {
    std::string name;
    Tensor own;
  };
  std::vector<Tensor> reduce(Context& ctx, std::span<const Block> blocks);
  // The same for rows of a table: the sums of the rows `index`, ascending. `own` is unique and of such rows;
  // `gathered`: what ranks have told of theirs, with or without repetitions. Null: every rank has all of `index`.
  Tensor reduce_rows(Context& ctx, const std::string& name, RowSparse own, const std::vector<int32_t>& index,
                     const GatheredIndices* gathered);
  // No sum: ranks' blocks (rows_r, D) one after the other, decoded. Elementwise codecs only.
  Tensor gather(Context& ctx, const std::string& name, const Tensor& own, std::span<const int64_t> rows);

  // Bytes that rank `rank` of `ranks` sends for a block.
  int64_t sent_bytes(int rank, int ranks, int64_t rows, int64_t width) const;
  // In reduce_rows(): rows of the rank and of all ranks together, by index modulo the number of ranks.
  int64_t sent_row_bytes(int rank, std::span<const int64_t> own, std::span<const int64_t> all, int64_t width) const;
  std::map<std::string, CodecHealth> take_health();
  // Residuals are those of steps whose update was made. discard(): that of the last step is not, so what it kept is
  // forgotten, and what was kept before holds again. commit(): it is.
  void commit();
  void discard();
  // Residuals times `factor`, for values that from here on come `factor` times as large.
  void rescale(double factor);
  // Residuals by "<parameter>.push", "<parameter>.sum" (and ".rows" beside them for tables).
  StateDict state() const;
  // From the states of the ranks of another layout: each new rank gets an equal part of the sum of what ranks kept of
  // their own values, and of the sums what it owns now. From the same layout they are taken as they are.
  void load(Context& ctx, const std::vector<StateDict>& ranks);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx

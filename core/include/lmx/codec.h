// Codecs: the encoding of gradients for the exchange, its quantisation error, and the sum over ranks of encoded blocks.
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
#include "lmx/vectors.h"

namespace lmx {

struct GatheredIndices;  // lmx/row_sync.h

// The group `codec:` of a rule.
struct LMX_API CodecConfig {
  std::string kind = "none";  // none, fp16, bf16, one_bit, or a plugin of kind codec
  double scale = 1024;        // fp16: values are multiplied by it before they are rounded (Patwary 2018, section III-C)
  std::string reduce = "fp16";    // fp16: the type in which ranks' values are added
  std::string residual = "rows";  // with error feedback, row-sparse gradients: rows (kept for each row that was ever
                                  // sent) or none
  Node options = {};  // the fields of a plugin, which are further keys of the group; complete after fields()
  // Reading the fields of a plugin loads it. UserError: no codec of this name.
  void fields(Fields& f);
  bool feedback() const;                       // whether the quantisation error is added to later values
  void check(const std::string& where) const;  // UserError: a setting that this kind does not use
  // Warnings to print: fp16 without a scale turns small gradients into zeros. `place`: "sync.rest.codec". No warning if
  // `loss_scaled`.
  std::vector<std::string> warnings(const std::string& place, bool loss_scaled) const;
  // UserError: `reduce` is set although ranks' values are not added in encoded form; `why` is the reason for the
  // message.
  void check_sums(const std::string& where, const std::string& why) const;
};

// Quantisation error of one parameter since the counters were last taken. It covers everything that this rank has
// encoded: its own values, and the sums of the parts that it owns.
struct LMX_API CodecHealth {
  int64_t values = 0;
  int64_t underflow = 0;  // not zero before, zero after
  int64_t overflow = 0;   // not finite after
  // Sums of squares: of the quantisation error, and of the values. The relative error is sqrt(error / norm). Values
  // that are not finite count in neither.
  double error = 0, norm = 0;
  double residual = 0;  // sum of squares of the current residuals (error feedback)
  double relative_error() const { return norm > 0 ? std::sqrt(error / norm) : 0; }
  void add(const CodecHealth& other);  // adds the counters of another rank
};

inline constexpr std::string_view kHealthPrefix = "codec/";
// The entries of a metrics record: "codec/<parameter>/entries", "underflow" and "overflow" are counts;
// "relative_error"; "norm", to which that error refers; with error feedback, "residual_norm".
LMX_API std::vector<std::pair<std::string, double>> health_values(const std::map<std::string, CodecHealth>& health);
// The counters of a record with these values: the inverse of health_values().
LMX_API std::map<std::string, CodecHealth> health_in(const std::map<std::string, double>& values);

// The rows and columns of an f32 tensor (n, D) that a decoded block has: from `row` and `column` on, or at the rows
// `at`. By default the whole tensor.
struct LMX_API BlockPlace {
  BlockPlace(Tensor t);
  Tensor tensor;
  int64_t rows, columns, row = 0, column = 0;
  Uploaded<int32_t> at;
};

// Encodes blocks (rows, width) of f32. Stateless and thread-safe.
//
//   fp16     f16(scale v), rounded to nearest even. Values that are too large become infinite, so that the run detects
//            a divergence. Ranks' values are added in f16, still scaled, or in f32.
//   bf16     bf16(v); ranks' values are added in f32
//   one_bit  one bit for each entry (1: not negative) and two floats for each column: the means of its non-negative and
//            of its negative entries. Decoding replaces each entry by its mean (Seide 2014, section 3.2)
//   plugins  encode a block as a vector (VectorCodec)
class LMX_API Codec {
 public:
  virtual ~Codec();
  virtual const char* name() const = 0;
  virtual int64_t bytes(int64_t rows, int64_t width) const = 0;  // size of an encoded block
  // `values` (rows, width), or (n) as one column. `encoded`: u8, as long as bytes() says.
  virtual void encode(Context& ctx, const Tensor& values, Tensor encoded) const = 0;
  // If the codec has neither columns nor feedback, the place has all columns and no `at`.
  virtual void decode(Context& ctx, const Tensor& encoded, const BlockPlace& to) const = 0;
  // sum += decoded, in the precision in which the codec reduces.
  virtual void add(Context& ctx, const Tensor& encoded, const BlockPlace& sum) const = 0;
  // Adds to `sums`, f64 (4), underflow, overflow, error and norm of CodecHealth. `lost`, if defined, becomes the
  // quantisation error, or 0 where that is not finite; it may be `values`.
  virtual void measure(Context& ctx, const Tensor& encoded, const Tensor& values, Tensor sums, Tensor lost) const = 0;
  // Whether the encoding stores something for each column, so that a block is divided into blocks. If not, it is
  // divided as a vector.
  virtual bool columns() const { return false; }
  virtual bool feedback() const { return false; }  // the quantisation error is added to the values of the next step
};
LMX_API std::unique_ptr<Codec> make_codec(const CodecConfig& config);

// A codec of vectors, which a plugin of kind codec makes. Ranks' values are added in f32, decoded. Stateless and
// thread-safe.
class LMX_API VectorCodec {
 public:
  using Factory = std::unique_ptr<VectorCodec> (*)(const Node& config, const std::string& path);

  virtual ~VectorCodec();
  virtual int64_t bytes(int64_t n) const = 0;  // size of n encoded values; 0 for n = 0
  // values: f32 (n). encoded: u8 (bytes(n)), in memory that is aligned for any type; all bytes must be written.
  virtual void encode(Context& ctx, const Tensor& values, Tensor encoded) const = 0;
  // Writes n values. If a value was not finite, the decoded one must not be finite.
  virtual void decode(Context& ctx, const Tensor& encoded, Tensor values) const = 0;
  // Error feedback: the part of the quantisation error that is added to the values of the next exchange, at most 1.
  // Default: 0, none.
  virtual double feedback() const { return 0; }
};
// A codec of a few levels for each block of values (lmx/vectors.h), of which only levels and blocks are chosen.
class LMX_API LevelCodec final : public VectorCodec {
 public:
  LevelCodec(LevelCoder coder, double feedback);
  int64_t bytes(int64_t n) const override;
  void encode(Context& ctx, const Tensor& values, Tensor encoded) const override;
  void decode(Context& ctx, const Tensor& encoded, Tensor values) const override;
  double feedback() const override { return feedback_; }

 private:
  LevelCoder coder_;
  double feedback_;
};
// `config`: the fields of the plugin, with `name`. `path`: their place in the recipe.
using CodecFactory = VectorCodec::Factory;

// The sum over ranks of encoded blocks. Part r of a block is sent to rank r, which sums it in rank order from +0 and
// encodes the sum; the encoded sums are gathered. A part is a range of elements, except with one_bit, which stores
// column means once for each part: its parts are columns if that makes the largest part smaller, else rows. Without a
// codec this is Communicator::all_reduce. A group of one rank exchanges nothing, so nothing is encoded.
//
// With two levels, values are first summed inside each node and then between nodes (Mikami et al. 2018, "2D-Torus
// all-reduce"): the ranks of a node reduce-scatter, the ranks with the same place in every node sum their chunk, and
// the ranks of the node gather the sums. A rank sends 2 (G/N - 1) / (G/N) n elements inside its node, and 2 (N - 1)/G n
// to other nodes, for N nodes. The sum of each node is in rank order from +0, and these are added in node order from
// +0, so every group with the same nodes gives the same bits. The codec encodes what crosses nodes, with the sums of
// the nodes as values; inside a node everything is f32. For one node the codec is not used. REQUIRES: nodes of equal
// size; a codec without error feedback.
//
// With error feedback both encodings keep their quantisation error as a residual (Seide 2014, section 3): each rank for
// its own values, and the owner of a part for its sum. For a table, each rank encodes the rows for which it has a
// gradient and keeps their residuals; the residual of a row is added when this rank next has a gradient for that row.
// Active rows change each step. Therefore a table is divided by columns or, if it has fewer columns than ranks, by row
// index modulo the number of ranks. The residual of a row's sum is added when any rank next has the row. A quantisation
// error that is not finite is not kept. With one rank, residuals from a run on several ranks are added to the gradient
// once.
class LMX_API Reducer {
 public:
  Reducer(const CodecConfig& config, std::string group, int levels = 1);
  ~Reducer();
  const Codec& codec() const;
  // `name` identifies the values, for residuals and health. `own` is (n, D) or (n), f32 (without a codec also f64); a
  // vector is one column. Returns the sum in the same shape. The result is shared and must not be written to.
  Tensor reduce(Context& ctx, const std::string& name, const Tensor& own);
  // Reduces several blocks in one message. The results are views of one buffer, in the order of `blocks`.
  struct Block {
    std::string name;
    Tensor own;
  };
  std::vector<Tensor> reduce(Context& ctx, std::span<const Block> blocks);
  // The same for rows of a table: returns the sums of the rows `index`, which ascend. `own` is unique and contains only
  // such rows. `gathered`: the indices of all ranks, with or without repetitions. Null: every rank has all of `index`.
  Tensor reduce_rows(Context& ctx, const std::string& name, RowSparse own, const std::vector<int32_t>& index,
                     const GatheredIndices* gathered);
  // The part of each sum that this rank owns, (begin[r + 1] - begin[r]), which is not encoded. All blocks share one
  // message. Residuals are kept for whole blocks, so they do not depend on the parts.
  struct Divided {
    std::string name;
    Tensor own;                  // (n)
    std::vector<int64_t> begin;  // rank r gets the elements [begin[r], begin[r + 1]); (ranks + 1) numbers
  };
  std::vector<Tensor> reduce_scatter(Context& ctx, std::span<const Divided> blocks);
  // Does not sum: returns the ranks' blocks (rows_r, D), decoded, one after the other. REQUIRES: a codec
  // without error feedback.
  Tensor gather(Context& ctx, const std::string& name, const Tensor& own, std::span<const int64_t> rows);

  std::map<std::string, CodecHealth> take_health();
  // Residuals must belong to steps whose update was made. commit(): the last step was applied. discard(): it was not;
  // its residuals are deleted, and the residuals before that step are restored.
  void commit();
  void discard();
  // Multiplies the residuals by `factor`: from now on values are `factor` times as large.
  void rescale(double factor);
  // Residuals as "<parameter>.push" and "<parameter>.sum"; tables have a ".rows" entry for each.
  StateDict state() const;
  // Loads the residuals of a checkpoint, unchanged if the number of ranks is the same. Otherwise each rank gets an
  // equal part of the sum of all ranks' own-value residuals, and the residuals of the sums that it owns now.
  void load(Context& ctx, const std::vector<StateDict>& ranks);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx

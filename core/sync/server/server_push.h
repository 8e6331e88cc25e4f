// Encodes the gradients that a worker pushes to the shards of a parameter server, and computes their size.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/codec/codecs.h"
#include "comm/residuals.h"
#include "lmx/codec.h"
#include "sync/server/server_shard.h"

namespace lmx::server {

// Bytes of a request for `rows` rows. Without such a request a shard sends all its rows.
inline int64_t request_bytes(int64_t rows) {
  return 8 + 4 * rows;
}
// Bytes of a gradient for one shard: the encoded rows and, if the gradient is row-sparse, a count and the indices.
int64_t push_bytes(const Codec& codec, bool sparse, int64_t rows, int64_t width);

// Divides gradients among shards and encodes them. The quantisation error is kept and added to the next push (error
// feedback of the worker; pulled values are not encoded).
class Push {
 public:
  Push(const CodecConfig& config, int shards);
  // Appends a part for each shard that has rows of the parameter; a row-sparse part may be empty. The gradient must be
  // coalesced, and is scaled in place. UserError: with several shards, a gradient that is not f32.
  void add(Context& ctx, Var& param, double factor, std::vector<std::vector<Part>>& parts);
  const Codec& codec() const { return *codec_; }
  // False for a server with a single worker: gradients are then pushed without encoding.
  bool encodes() const { return shards_ > 1 && config_.kind != "none"; }
  std::map<std::string, CodecHealth> take_health();
  StateDict state() const { return residuals_.state(); }
  void load(Context& ctx, const std::vector<StateDict>& ranks) { residuals_.load(ctx, ranks); }

 private:
  using Parts = std::vector<std::vector<Part>>;
  void add_dense(Context& ctx, const Var& param, Part part, Parts& parts);
  void add_rows(Context& ctx, const Var& param, const RowSparse& own, double factor, Parts& parts);
  Tensor encode(Context& ctx, const std::string& name, const Tensor& values, bool feedback);

  CodecConfig config_;
  int shards_;
  std::unique_ptr<Codec> codec_;
  comm::Residuals residuals_;
  comm::HealthCounters health_;
};

}  // namespace lmx::server

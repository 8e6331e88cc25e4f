// What a worker sends to the shards of a parameter server, and how many bytes that takes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/residuals.h"
#include "lmx/codec.h"
#include "sync/server/server_shard.h"

namespace lmx::server {

// Bytes of a request for `rows` rows; without one a shard sends all it has.
inline int64_t request_bytes(int64_t rows) {
  return 8 + 4 * rows;
}
// Bytes of a gradient for one shard: a count and indices where it is sparse, and the encoded rows.
int64_t push_bytes(const Codec& codec, bool sparse, int64_t rows, int64_t width);

// Divides gradients among shards and encodes them. What encoding loses stays here and joins the next push (error
// feedback of the worker; nothing is encoded on the way back).
class Push {
 public:
  Push(const CodecConfig& config, int shards);
  // Appends a part to each shard that has rows of the parameter; a sparse part may be empty. The gradient must be
  // coalesced; it is scaled in place. UserError: not f32, with a codec.
  void add(Context& ctx, Var& param, double factor, std::vector<std::vector<Part>>& parts);
  const Codec& codec() const { return *codec_; }
  // Alone with its worker a server gets gradients as they are.
  bool encodes() const { return shards_ > 1 && config_.kind != "none"; }
  std::map<std::string, CodecHealth> take_health();
  StateDict state() const { return residuals_.state(); }
  void load(Context& ctx, const std::vector<StateDict>& ranks) { residuals_.load(ctx, ranks); }

 private:
  using Parts = std::vector<std::vector<Part>>;
  void add_dense(Context& ctx, const Var& param, Part part, Parts& parts);
  void add_rows(Context& ctx, const Var& param, const RowSparse& own, double factor, Parts& parts);
  Tensor encode(Context& ctx, const std::string& name, const Tensor& values, float* lost);

  CodecConfig config_;
  int shards_;
  std::unique_ptr<Codec> codec_;
  comm::Residuals residuals_;
  std::map<std::string, CodecHealth> health_;
};

}  // namespace lmx::server

// Requests of workers to the shards of a parameter server, in other processes too, and the gradients that they push.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/codec/codecs.h"
#include "comm/residuals.h"
#include "lmx/codec.h"
#include "lmx/row_sync.h"
#include "sync/server/server_link.h"
#include "sync/server/server_shard.h"

namespace lmx::server {

// Encodes the gradients that a worker pushes to the shards of a parameter server, and computes their size.

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

// Sends a rule's requests to shards in other processes, and answers requests to this rank's shard.

using Rows = std::map<std::string, std::vector<int32_t>>;  // by parameter, ascending; for absent ones all rows

// The bodies of messages contain the following data and nothing else, so that their bytes agree with those of ranks in
// one process (ServerStrategy::bytes()).
//
//   pull   for each parameter with chosen rows: their count (i64) and indices (i32)
//   reply  the values of these rows; for other parameters all rows of the shard
//   push   values, encoded by the codec; for row-sparse gradients first the count and the indices, which are relative
//          to the shard's first row
class Remote {
 public:
  // `whole`: the complete parameters; `names` are those of the rule. `encodes`: pushed values are encoded.
  Remote(Link& link, const Context& ctx, const std::string& group, std::vector<std::string> names,
         const ParameterStore& whole, Shard& shard, bool encodes);
  // To be called by the worker whose turn it is.
  void pull(const Rows& chosen, ParameterStore& replica);
  void push(const std::vector<std::vector<Part>>& parts, double lr);  // by shard

 private:
  Tensor serve(int worker, const Request& request);
  Tensor serve_pull(int worker, const Request& request);
  void serve_push(int worker, const Request& request);
  Request pack_push(const std::vector<Part>& parts, double lr) const;
  // The rows [first, last) of a parameter on shard r, and the chosen rows among them.
  std::pair<int64_t, int64_t> range(const std::string& name, int r) const;
  std::span<const int32_t> rows_of(const std::vector<int32_t>& chosen, const std::string& name, int r) const;
  int64_t row_bytes(const std::string& name) const { return 4 * row_width(whole_.at(name).value().shape()); }

  Link& link_;
  Context ctx_;
  std::vector<std::string> names_;
  const ParameterStore& whole_;
  Shard& shard_;
  bool encodes_;
  int rule_;
};

}  // namespace lmx::server

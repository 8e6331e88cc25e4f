// Sends a rule's requests to shards in other processes, and answers requests to this rank's shard.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmx/row_sync.h"
#include "sync/server/server_link.h"
#include "sync/server/server_push.h"
#include "sync/server/server_shard.h"

namespace lmx::server {

using Rows = std::map<std::string, std::vector<int32_t>>;  // by parameter, ascending; for absent ones all rows

// The bodies of messages contain the following data and nothing else, so that their bytes agree with
// ServerStrategy::expected_bytes().
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

// A rule's requests to shards of other processes, and what this rank's own shard answers.
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

using Rows = std::map<std::string, std::vector<int32_t>>;  // by parameter, ascending; all rows of those that are absent

// The body of a pull: of each parameter of which rows are chosen their count (i64) and numbers (i32). The reply: their
// values, or all that the shard has. The body of a push: count and numbers, counted from the shard's first row, where
// the gradient is sparse, and its values as the codec writes them. Nothing else, so that its bytes are those of
// ServerStrategy::expected_bytes().
class Remote {
 public:
  // `whole`: parameters in full size; those of the rule are `names`. `encodes`: pushes come encoded.
  Remote(Link& link, const Context& ctx, const std::string& group, std::vector<std::string> names,
         const ParameterStore& whole, Shard& shard, bool encodes);
  // Of the worker whose turn it is.
  void pull(const Rows& chosen, ParameterStore& replica);
  void push(const std::vector<std::vector<Part>>& parts, double lr);  // by shard

 private:
  Tensor serve(int worker, const Request& request);
  Tensor serve_pull(int worker, const Request& request);
  void serve_push(int worker, const Request& request);
  Request pack_push(const std::vector<Part>& parts, double lr) const;
  // The rows [first, last) of a parameter that shard r has, and of these the chosen ones.
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

// What error feedback keeps between steps: per parameter what this rank's own values lost ("push"), and what the sums
// that it owns lost ("sum").
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/row_store.h"
#include "lmx/parameters.h"

namespace lmx::comm {

class Residuals {
 public:
  // (rows, width), zeros before the first use. UserError: a checkpoint's is of another shape.
  Tensor& push(Context& ctx, const std::string& name, Shape shape) { return dense(ctx, push_, name, shape); }
  Tensor& sum(Context& ctx, const std::string& name, Shape shape) { return dense(ctx, sum_, name, shape); }
  RowStore& push_rows(const std::string& name, int64_t width) { return rows(row_push_, name, width); }
  RowStore& sum_rows(const std::string& name, int64_t width) { return rows(row_sum_, name, width); }
  // For a run on one rank, which encodes nothing: the gradient with what was kept of it, which is then forgotten.
  Tensor settle(Context& ctx, const std::string& name, const Tensor& own);
  Tensor settle_rows(Context& ctx, const std::string& name, const Tensor& own, const std::vector<int32_t>& index);
  double squares(const std::string& name) const;
  void rescale(double factor);
  StateDict state() const;
  void load(Context& ctx, const std::vector<StateDict>& ranks);

 private:
  using Dense = std::map<std::string, Tensor>;
  using Rows = std::map<std::string, RowStore>;
  static Tensor& dense(Context& ctx, Dense& all, const std::string& name, Shape shape);
  static RowStore& rows(Rows& all, const std::string& name, int64_t width);
  void take(Context& ctx, const StateDict& own);
  void merge(Context& ctx, const std::vector<StateDict>& ranks);
  Dense push_, sum_;
  Rows row_push_, row_sum_;
};

}  // namespace lmx::comm

// The baseline of Patwary 2018, Table III: every rank expands its rows to a V x D matrix, and all G matrices are
// gathered: Theta(G V D) bytes and memory. The gathered matrices are kept until the update is done, because in the
// system that the paper measured the optimizer reads them (TensorFlow's IndexedSlices). Only this reading fits the
// memory of Table III: 2 V D floats, 0.41 GB, for each rank. The sum is a dense
// gradient, also on one rank.
#include <algorithm>

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/row_sync.h"
#include "lmx/sum_strategy.h"

namespace {

using namespace lmx;

struct AllgatherDenseConfig {
  CodecConfig codec;
  void fields(Fields& f) {
    f.group("codec", codec, "how gradients are written for the wire; matrices are added in fp32");
  }
  void check(const std::string& where) const {
    codec.check(where);
    if (codec.feedback())
      throw UserError(str(where, ".codec.kind: allgather_dense gathers matrices that nobody sums on the way, so ",
                          codec.kind,
                          "'s error feedback has no second side; choose strategy one_bit, or codec fp16 or "
                          "bf16"));
  }
};

// Sums the ranks' matrices (V, D), which are the rows of `gathered` one after the other.
Tensor sum_matrices(Context& ctx, const Tensor& gathered, const Shape& shape) {
  Tensor sum = ctx.zeros(shape, gathered.dtype(), MemClass::communication);
  for (int64_t at = 0; at < gathered.dim(0); at += shape[0]) add_tensor(ctx, sum, gathered.slice(at, at + shape[0]));
  return sum;
}

class AllgatherDense final : public SumStrategy {
 public:
  AllgatherDense(const AllgatherDenseConfig& config, const SyncEnv& env)
      : SumStrategy(SumConfig{.codec = config.codec}, env) {}
  void after_step(Context& ctx) override {
    SumStrategy::after_step(ctx);
    gathered_.clear();
  }

 protected:
  void reduce_table(Context& ctx, Var& param) override {
    Gradient& grad = param.grad();
    if (ctx.comm->size() == 1 && grad.empty()) return;
    const Tensor own = dense_of(ctx, grad, param.value());
    grad.clear();
    if (ctx.comm->size() == 1) {
      grad.dense = own;
      return;
    }
    const std::vector<int64_t> rows(static_cast<size_t>(ctx.comm->size()), own.dim(0));
    const Tensor all = reducer().gather(ctx, param.name(), own, rows);
    gathered_.push_back(all);
    grad.dense = ctx.comm->once_tensor(MemClass::communication, [&] { return sum_matrices(ctx, all, param.shape()); });
  }

 private:
  std::vector<Tensor> gathered_;
};

std::unique_ptr<SyncRule> make_allgather_dense(const Node& config, const std::string& path, const SyncEnv& env) {
  const auto c = read_config<AllgatherDenseConfig>(config, path);
  // If there are dense gradients, the codec sums them and uses `reduce`.
  if (std::all_of(env.params.begin(), env.params.end(), [](const ParameterSpec& p) { return p.sparse; }))
    c.codec.check_sums(path, "allgather_dense gathers matrices and adds them in fp32");
  return std::make_unique<AllgatherDense>(c, env);
}

}  // namespace

LMX_PLUGIN(sync, allgather_dense, AllgatherDenseConfig, make_allgather_dense)

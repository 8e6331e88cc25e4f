// DeMo (Peng et al. 2024): each rank keeps a momentum of its own gradients, sends the largest components of its
// discrete cosine transform, and subtracts what it has sent. The result is the sign of the mean of what the ranks have
// sent, a direction, which the recipe's optimizer (sgd) multiplies by its rate.
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "lmx/array_ops.h"
#include "lmx/feedback_strategy.h"
#include "lmx/plugin.h"
#include "lmx/vectors.h"

namespace {

using namespace lmx;

constexpr MemClass kClass = MemClass::communication;

struct DemoConfig {
  double decay = 0.999;
  int64_t top = 32, chunk = 64;
  void fields(Fields& f) {
    f.field("decay", decay, "part of the momentum that a step keeps", {0, 1, false});
    f.field("top", top, "components that a rank sends of each chunk", kPositive);
    f.field("chunk", chunk, "most rows and columns of a chunk: their numbers are the largest divisors up to it",
            {1, 1024});
  }
};

class Demo final : public FeedbackStrategy {
 public:
  Demo(const DemoConfig& config, const SyncEnv& env) : FeedbackStrategy({}, env), c_(config) {}
  SyncResult result() const override { return SyncResult::direction; }

 private:
  // A gradient in chunks (h, w): (y h, x w). A vector is one row.
  struct Chunks {
    int64_t y, h, x, w;
  };
  int64_t divisor(int64_t n) const {
    int64_t d = std::min(n, c_.chunk);
    while (n % d != 0) --d;
    return d;
  }
  Chunks chunks_of(const Shape& shape) const {
    const int64_t rows = shape.rank() > 1 ? shape[0] : 1, columns = shape.numel() / rows, h = divisor(rows),
                  w = divisor(columns);
    return {rows / h, h, columns / w, w};
  }

  Tensor exchange(Context& ctx, const Block& block, Tensor v) override {
    const Chunks c = chunks_of(block.shape);
    const Tensor components = transform(ctx, c, v);
    const ChunkGather how{.size = block.size, .k = std::min(c_.top, c.h * c.w), .chunk = c.h * c.w, .means = true};
    Entries sent = take_largest(ctx, components, how.k, how.chunk);
    const Tensor mean = gather_chunks(ctx, how, sent, group());
    v.copy_from(scaled(ctx, inverse(ctx, c, components), static_cast<float>(c_.decay)));
    return ctx.comm->once_tensor(kClass, [&] { return signs(ctx, inverse(ctx, c, mean)); });
  }

  // (y, h, x, w) -> (y, x, w, h): the orthonormal DCT-II of each chunk, transposed.
  Tensor transform(Context& ctx, const Chunks& c, const Tensor& v) {
    const Tensor rows = product(ctx, v.reshape({-1, c.w}), false, basis(ctx, c.w), true);
    const Var turned = permute(ctx, Var(rows.reshape({c.y, c.h, c.x, c.w}), false), {0, 2, 3, 1});
    return product(ctx, turned.value().reshape({-1, c.h}), false, basis(ctx, c.h), true).reshape({-1});
  }
  Tensor inverse(Context& ctx, const Chunks& c, const Tensor& components) {
    const Tensor columns = product(ctx, components.reshape({-1, c.h}), false, basis(ctx, c.h), false);
    const Var turned = permute(ctx, Var(columns.reshape({c.y, c.x, c.w, c.h}), false), {0, 3, 1, 2});
    return product(ctx, turned.value().reshape({-1, c.w}), false, basis(ctx, c.w), false).reshape({-1});
  }
  // Row k: component k of the transform of n elements.
  const Tensor& basis(Context& ctx, int64_t n) {
    Tensor& known = bases_[n];
    if (known.defined()) return known;
    Tensor m = Tensor::empty(ctx.host, {n, n}, DType::f32, kClass);
    for (int64_t i = 0; i < n * n; ++i) {
      const auto k = static_cast<double>(i / n), at = static_cast<double>(i % n) + 0.5, size = static_cast<double>(n);
      m.values<float>()[static_cast<size_t>(i)] =
          static_cast<float>(std::cos(std::numbers::pi * at * k / size) * std::sqrt((k > 0 ? 2 : 1) / size));
    }
    return known = ctx.upload(m);
  }

  DemoConfig c_;
  std::map<int64_t, Tensor> bases_;
};

}  // namespace

LMX_PLUGIN(sync, demo, DemoConfig, Demo)

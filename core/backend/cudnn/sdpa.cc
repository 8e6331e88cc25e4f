// Attention by cuDNN's graph API, through NVIDIA's header-only cudnn-frontend. A plan is built once for each shape; its
// engine is the first of cuDNN's heuristic, without a measurement, so a run can be repeated bit by bit.
#include <cudnn_frontend.h>

#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "backend/cuda/device.h"
#include "backend/cudnn/library.h"
#include "backend/cudnn/sdpa_graph.h"

namespace lmx::cudnn {
namespace {

constexpr size_t kMostPlans = 1024;

// RunError if cuDNN cannot do what it accepted.
void require(fe::error_t error, const char* what) {
  if (error.is_bad()) throw RunError(str("[cudnn] ", what, ": ", error.get_message()));
}

// A graph that cuDNN accepted. Its kernels are loaded at the first execution.
struct Plan {
  std::unique_ptr<Graph> graph;
  std::string refusal;  // why cuDNN did not accept it
  bool built = false;
  int64_t workspace = 0;
};

struct Plans {
  Plan forward, backward;
};

// Plans of one device.
class Shapes {
 public:
  std::string refusal(const Context& ctx, const SdpaShape& shape) {
    const std::lock_guard lock(mutex_);
    const Plans& p = plans(ctx, shape);
    return p.forward.refusal.empty() ? p.backward.refusal : p.forward.refusal;
  }

  void execute(Context& ctx, const SdpaShape& shape, Plan Plans::*pass, Pointers pointers) {
    const std::lock_guard lock(mutex_);
    Plan& plan = plans(ctx, shape).*pass;
    LMX_CHECK(plan.refusal.empty(), "attention that cuDNN refused: ", plan.refusal);
    const cudnnHandle_t handle = handle_of(ctx);
    if (!plan.built) {
      require(plan.graph->build_plans(), "no plan of attention can be loaded");
      require(plan.graph->get_workspace_size(plan.workspace), "the workspace of attention");
      plan.built = true;
    }
    Tensor workspace;
    if (plan.workspace > 0) workspace = ctx.empty({plan.workspace}, DType::u8);
    require(plan.graph->execute(handle, pointers, plan.workspace > 0 ? const_cast<void*>(workspace.raw()) : nullptr),
            "attention could not be started");
  }

 private:
  Plans& plans(const Context& ctx, const SdpaShape& shape) {
    const auto found = plans_.find(shape);
    if (found != plans_.end()) return found->second;
    if (plans_.size() >= kMostPlans) plans_.clear();
    Plans p{plan(ctx, forward_graph(shape)), plan(ctx, backward_graph(shape))};
    return plans_.emplace(shape, std::move(p)).first->second;
  }

  static Plan plan(const Context& ctx, std::unique_ptr<Graph> graph) {
    Plan p{std::move(graph), "", false, 0};
    p.refusal = refusal_of(*p.graph, handle_of(ctx));
    return p;
  }

  std::mutex mutex_;
  std::map<SdpaShape, Plans> plans_;
};

// Never destroyed, as handle_of().
Shapes& shapes(const Context& ctx) {
  static std::mutex& mutex = *new std::mutex;
  static std::map<int, Shapes>& all = *new std::map<int, Shapes>;
  const std::lock_guard lock(mutex);
  return all[ctx.device.index];
}

template <class T>
Pointers pointers_of(const SdpaInput<T>& in) {
  const auto at = [](const auto* p) { return const_cast<std::remove_const_t<std::remove_pointer_t<decltype(p)>>*>(p); };
  return {{kQ, at(in.q)},
          {kK, at(in.k)},
          {kV, at(in.v)},
          {kQOffsets, at(in.q_offsets)},
          {kKOffsets, at(in.k_offsets)},
          {kVOffsets, at(in.v_offsets)},
          {kYOffsets, at(in.y_offsets)},
          {kLseOffsets, at(in.lse_offsets)},
          {kQueryCounts, at(in.query_counts)},
          {kKeyCounts, at(in.key_counts)}};
}

template <class T>
void forward(Context& ctx, const SdpaForward<T>& a) {
  Pointers pointers = pointers_of(a.in);
  pointers.insert({{kY, a.y}, {kLse, a.lse}});
  cuda::begin_launch(ctx, a.kName);
  shapes(ctx).execute(ctx, a.in.shape, &Plans::forward, std::move(pointers));
}

template <class T>
void backward(Context& ctx, const SdpaBackward<T>& a) {
  Pointers pointers = pointers_of(a.in);
  pointers.insert({{kY, const_cast<T*>(a.y)},
                   {kDy, const_cast<T*>(a.dy)},
                   {kLse, const_cast<float*>(a.lse)},
                   {kDq, a.dq},
                   {kDk, a.dk},
                   {kDv, a.dv}});
  cuda::begin_launch(ctx, a.kName);
  shapes(ctx).execute(ctx, a.in.shape, &Plans::backward, std::move(pointers));
}

const KernelAdder adder(Device::Kind::cuda, forward<bfloat16>, forward<float16>, backward<bfloat16>, backward<float16>);

}  // namespace

std::string sdpa_refusal(const Context& ctx, const SdpaShape& shape) {
  return shapes(ctx).refusal(ctx, shape);
}

}  // namespace lmx::cudnn

// cuDNN's graphs of attention (backend/sdpa.h), for sdpa.cc and for the test that gives them to cuDNN without a
// device. Sequences of different lengths are ragged tensors: each has an offset, and a padding mask has its length.
#pragma once

#include <cudnn_frontend.h>

#include <cmath>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/sdpa.h"

namespace lmx::cudnn {

namespace fe = cudnn_frontend;
using fe::graph::Graph;

// The tensors of a graph, and their addresses in an execution.
enum TensorId : int64_t {
  kQ = 1,
  kK,
  kV,
  kY,
  kLse,
  kDy,
  kDq,
  kDk,
  kDv,
  kQOffsets,
  kKOffsets,
  kVOffsets,
  kYOffsets,
  kLseOffsets,
  kQueryCounts,
  kKeyCounts
};
using Pointers = std::unordered_map<int64_t, void*>;

// A graph and its tensors.
class SdpaGraph {
 public:
  using Attributes = fe::graph::Tensor_attributes;
  using Node = std::shared_ptr<Attributes>;

  explicit SdpaGraph(const SdpaShape& shape) : shape_(shape), graph_(std::make_unique<Graph>()) {
    graph_->set_io_data_type(shape.type == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    q_offsets_ = counts(kQOffsets, shape.batch + 1, fe::DataType_t::INT64);
    k_offsets_ = counts(kKOffsets, shape.batch + 1, fe::DataType_t::INT64);
    v_offsets_ = counts(kVOffsets, shape.batch + 1, fe::DataType_t::INT64);
    y_offsets_ = counts(kYOffsets, shape.batch + 1, fe::DataType_t::INT64);
    lse_offsets_ = counts(kLseOffsets, shape.batch + 1, fe::DataType_t::INT64);
    query_counts_ = counts(kQueryCounts, shape.batch, fe::DataType_t::INT32);
    key_counts_ = counts(kKeyCounts, shape.batch, fe::DataType_t::INT32);
    q_ = graph_->tensor(queries(kQ));
    k_ = graph_->tensor(keys(kK));
    v_ = graph_->tensor(values(kV));
  }

  std::unique_ptr<Graph> forward() && {
    auto [y, lse] = graph_->sdpa(q_, k_, v_, options(fe::graph::SDPA_attributes().set_generate_stats(true)));
    *y = outputs(kY).set_output(true);
    *lse = statistics().set_output(true);
    return std::move(graph_);
  }

  std::unique_ptr<Graph> backward() && {
    const Node y = graph_->tensor(outputs(kY)), dy = graph_->tensor(outputs(kDy)), lse = graph_->tensor(statistics());
    auto [dq, dk, dv] = graph_->sdpa_backward(
        q_, k_, v_, y, dy, lse, options(fe::graph::SDPA_backward_attributes().set_deterministic_algorithm(true)));
    *dq = queries(kDq).set_output(true);
    *dk = keys(kDk).set_output(true);
    *dv = values(kDv).set_output(true);
    return std::move(graph_);
  }

 private:
  // An array of one number for each sequence.
  Node counts(TensorId id, int64_t n, fe::DataType_t type) {
    return graph_->tensor(Attributes().set_uid(id).set_dim({n, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(type));
  }
  // (batch, heads, rows, size) in rows of `stride` elements. The stride of a sequence is not used.
  Attributes ragged(TensorId id, int64_t heads, int64_t rows, int64_t stride, const Node& offsets) const {
    return Attributes()
        .set_uid(id)
        .set_dim({shape_.batch, heads, rows, shape_.size})
        .set_stride({rows * stride, shape_.size, stride, 1})
        .set_data_type(shape_.type == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_ragged_offset(offsets);
  }
  Attributes queries(TensorId id) const {
    return ragged(id, shape_.heads, shape_.queries, shape_.q_stride, q_offsets_);
  }
  Attributes keys(TensorId id) const { return ragged(id, shape_.kv_heads, shape_.keys, shape_.k_stride, k_offsets_); }
  Attributes values(TensorId id) const { return ragged(id, shape_.kv_heads, shape_.keys, shape_.v_stride, v_offsets_); }
  Attributes outputs(TensorId id) const {  // y, dy
    return ragged(id, shape_.heads, shape_.queries, shape_.heads * shape_.size, y_offsets_);
  }
  Attributes statistics() const {
    return Attributes()
        .set_uid(kLse)
        .set_dim({shape_.batch, shape_.heads, shape_.queries, 1})
        .set_stride({shape_.queries * shape_.heads, 1, shape_.heads, 1})
        .set_data_type(fe::DataType_t::FLOAT)
        .set_ragged_offset(lse_offsets_);
  }
  template <class Options>
  Options options(Options o) const {
    o.set_attn_scale(static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.size))))
        .set_padding_mask(true)
        .set_seq_len_q(query_counts_)
        .set_seq_len_kv(key_counts_);
    if (shape_.causal) o.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    return o;
  }

  SdpaShape shape_;
  std::unique_ptr<Graph> graph_;
  Node q_offsets_, k_offsets_, v_offsets_, y_offsets_, lse_offsets_, query_counts_, key_counts_, q_, k_, v_;
};

inline std::unique_ptr<Graph> forward_graph(const SdpaShape& shape) {
  return SdpaGraph(shape).forward();
}
inline std::unique_ptr<Graph> backward_graph(const SdpaShape& shape) {
  return SdpaGraph(shape).backward();
}

// Why cuDNN has no kernels for the graph; "" if it has. `handle` may be null for a graph with device properties.
inline std::string refusal_of(Graph& graph, cudnnHandle_t handle) {
  fe::error_t error = graph.validate();
  if (error.is_good()) error = handle ? graph.build_operation_graph(handle) : graph.build_operation_graph();
  if (error.is_good()) error = graph.create_execution_plans({fe::HeurMode_t::A});
  if (error.is_good()) error = graph.check_support();
  return error.is_good() ? "" : error.get_message();
}

}  // namespace lmx::cudnn

// An LSTM layer by cuDNN's recurrent API. cuDNN keeps all parameters in one block of memory, in its own layout;
// cudnnGetRNNWeightParams() names the place of each gate's matrices and biases.
#include <array>
#include <vector>

#include "backend/cudnn/library.h"
#include "lmx/error.h"

namespace lmx::cudnn {
namespace {

// Numbers of cuDNN's matrices: gates of the input, gates of the recurrent output, the projection. lmx's blocks of rows
// have the same order of gates: i, f, g, o.
constexpr int kInputGates[] = {0, 1, 2, 3}, kRecurrentGates[] = {4, 5, 6, 7}, kProjection = 8;
constexpr size_t kForget = 1;

template <class T, cudnnStatus_t (*Create)(T*), cudnnStatus_t (*Destroy)(T)>
class Descriptor {
 public:
  Descriptor() { LMX_CUDNN_CHECK(Create(&d_)); }
  ~Descriptor() { (void)Destroy(d_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator T() const { return d_; }

 private:
  T d_ = nullptr;
};
using RnnDescriptor = Descriptor<cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor>;
using DataDescriptor =
    Descriptor<cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor>;
using TensorDescriptor = Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using DropoutDescriptor =
    Descriptor<cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor>;

cudnnDataType_t type_of(DType type) {
  if (type == DType::f32) return CUDNN_DATA_FLOAT;
  if (type == DType::f16) return CUDNN_DATA_HALF;
  throw RunError(str("[cudnn] an LSTM in ", name_of(type), ": f32 or f16 expected"));
}

void* address(const Tensor& t) {
  return t.defined() ? const_cast<void*>(t.raw()) : nullptr;
}

class Lstm final : public CudnnLstm {
 public:
  Lstm(Context& ctx, const LstmShape& shape) : s_(shape), type_(type_of(shape.type)) {
    const cudnnHandle_t handle = handle_of(ctx);
    // As a layer without dropout needs it: without states.
    LMX_CUDNN_CHECK(cudnnSetDropoutDescriptor(dropout_, handle, 0, nullptr, 0, 0));
    // f32 is computed in f32, without TF32.
    const cudnnMathType_t math = type_ == CUDNN_DATA_FLOAT ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
    LMX_CUDNN_CHECK(cudnnSetRNNDescriptor_v8(
        rnn_, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
        type_, CUDNN_DATA_FLOAT, math, static_cast<int32_t>(s_.input), static_cast<int32_t>(s_.cells),
        static_cast<int32_t>(s_.output), 1, dropout_, CUDNN_RNN_PADDED_IO_DISABLED));
    describe(x_, s_.input);
    describe(y_, s_.output);
    describe(h_, s_.output);
    describe(c_, s_.cells);
    LMX_CUDNN_CHECK(cudnnGetRNNWeightSpaceSize(handle, rnn_, &weight_bytes_));
    size_t work = 0, reserve = 0;
    LMX_CUDNN_CHECK(cudnnGetRNNTempSpaceSizes(handle, rnn_, CUDNN_FWD_MODE_TRAINING, x_, &work, &reserve));
    weights_ = parameter_memory(ctx);
    work_ = ctx.empty({static_cast<int64_t>(work)}, DType::u8);
    reserve_ = ctx.empty({static_cast<int64_t>(reserve)}, DType::u8);
    lengths_ = ctx.upload(std::vector<int32_t>(static_cast<size_t>(s_.batch), static_cast<int32_t>(s_.steps)));
  }

  // lmx has one bias and a constant for the forget gate. Here the bias belongs to the products of the input, and the
  // constant is the bias of the recurrent products.
  void set_parameters(Context& ctx, const LstmParameters& w) override {
    for (size_t gate = 0; gate < 4; ++gate) {
      Place input = place(ctx, weights_, kInputGates[gate]), recurrent = place(ctx, weights_, kRecurrentGates[gate]);
      input.matrix.copy_from(block(w.w_ih, gate));
      input.bias.copy_from(block(w.bias, gate));
      recurrent.matrix.copy_from(block(w.w_hh, gate));
      const std::vector<float> constant(static_cast<size_t>(s_.cells),
                                        gate == kForget ? static_cast<float>(s_.forget_bias) : 0.0f);
      recurrent.bias.copy_from(ctx.upload(Tensor::from<float>(ctx.host, {s_.cells}, constant).to(s_.type)));
    }
    if (w.w_hr.defined()) place(ctx, weights_, kProjection).matrix.copy_from(w.w_hr.reshape({w.w_hr.numel()}));
  }

  Tensor forward(Context& ctx, const Tensor& x, LstmState& state) override {
    input_ = x;
    before_ = state;
    output_ = ctx.empty({s_.steps * s_.batch, s_.output}, s_.type);
    state = {ctx.empty(state.h.shape(), s_.type), ctx.empty(state.c.shape(), s_.type)};
    LMX_CUDNN_CHECK(cudnnRNNForward(handle_of(ctx), rnn_, CUDNN_FWD_MODE_TRAINING, lengths_.data(), x_, address(x), y_,
                                    address(output_), h_, address(before_.h), address(state.h), c_, address(before_.c),
                                    address(state.c), weight_bytes_, address(weights_), bytes(work_), address(work_),
                                    bytes(reserve_), address(reserve_)));
    return output_;
  }

  Gradients backward(Context& ctx, const Tensor& dy) override {
    const cudnnHandle_t handle = handle_of(ctx);
    Gradients g;
    g.x = ctx.empty(input_.shape(), s_.type);
    LMX_CUDNN_CHECK(cudnnRNNBackwardData_v8(handle, rnn_, lengths_.data(), y_, address(output_), address(dy), x_,
                                            address(g.x), h_, address(before_.h), nullptr, nullptr, c_,
                                            address(before_.c), nullptr, nullptr, weight_bytes_, address(weights_),
                                            bytes(work_), address(work_), bytes(reserve_), address(reserve_)));
    Tensor sums = parameter_memory(ctx);
    sums.zero();
    LMX_CUDNN_CHECK(cudnnRNNBackwardWeights_v8(handle, rnn_, CUDNN_WGRAD_MODE_ADD, lengths_.data(), x_, address(input_),
                                               h_, address(before_.h), y_, address(output_), weight_bytes_,
                                               address(sums), bytes(work_), address(work_), bytes(reserve_),
                                               address(reserve_)));
    g.w = parameters_of(ctx, sums);
    return g;
  }

 private:
  struct Place {
    Tensor matrix, bias;
  };

  void describe(const DataDescriptor& d, int64_t width) const {
    const std::vector<int> lengths(static_cast<size_t>(s_.batch), static_cast<int>(s_.steps));
    LMX_CUDNN_CHECK(cudnnSetRNNDataDescriptor(d, type_, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                                              static_cast<int>(s_.steps), static_cast<int>(s_.batch),
                                              static_cast<int>(width), lengths.data(), nullptr));
  }
  void describe(const TensorDescriptor& d, int64_t width) const {
    const int b = static_cast<int>(s_.batch), w = static_cast<int>(width);
    const std::array<int, 3> sizes{1, b, w}, strides{b * w, w, 1};
    LMX_CUDNN_CHECK(cudnnSetTensorNdDescriptor(d, type_, 3, sizes.data(), strides.data()));
  }

  static size_t bytes(const Tensor& t) { return static_cast<size_t>(t.bytes()); }
  Tensor parameter_memory(Context& ctx) const {
    return ctx.empty({static_cast<int64_t>(weight_bytes_ / size_of(s_.type))}, s_.type);
  }
  // The rows of a gate: a quarter of a parameter.
  static Tensor block(const Tensor& t, size_t gate) {
    const int64_t rows = t.dim(0) / 4, first = static_cast<int64_t>(gate) * rows;
    const Tensor part = t.slice(first, first + rows);
    return part.reshape({part.numel()});
  }
  // The matrix and the bias number `id` in `all`, a block of parameters or of their gradients.
  Place place(Context& ctx, const Tensor& all, int id) const {
    const TensorDescriptor matrix, bias;
    void *at_matrix = nullptr, *at_bias = nullptr;
    LMX_CUDNN_CHECK(cudnnGetRNNWeightParams(handle_of(ctx), rnn_, 0, weight_bytes_, address(all), id, matrix,
                                            &at_matrix, bias, &at_bias));
    return {part(all, matrix, at_matrix), part(all, bias, at_bias)};
  }
  Tensor part(const Tensor& all, const TensorDescriptor& d, const void* at) const {
    if (!at) return {};
    cudnnDataType_t type{};
    int rank = 0;
    std::array<int, 3> sizes{}, strides{};
    LMX_CUDNN_CHECK(cudnnGetTensorNdDescriptor(d, 3, &type, &rank, sizes.data(), strides.data()));
    const auto first =
        (static_cast<const char*>(at) - static_cast<const char*>(all.raw())) / static_cast<int64_t>(size_of(s_.type));
    return all.slice(first, first + int64_t{sizes[0]} * sizes[1] * sizes[2]);
  }
  LstmParameters parameters_of(Context& ctx, const Tensor& all) const {
    LstmParameters w{ctx.empty({4 * s_.cells, s_.input}, s_.type), ctx.empty({4 * s_.cells, s_.output}, s_.type),
                     ctx.empty({4 * s_.cells}, s_.type),
                     s_.output == s_.cells ? Tensor() : ctx.empty({s_.output, s_.cells}, s_.type)};
    for (size_t gate = 0; gate < 4; ++gate) {
      const Place input = place(ctx, all, kInputGates[gate]), recurrent = place(ctx, all, kRecurrentGates[gate]);
      block(w.w_ih, gate).copy_from(input.matrix);
      block(w.bias, gate).copy_from(input.bias);
      block(w.w_hh, gate).copy_from(recurrent.matrix);
    }
    if (w.w_hr.defined()) w.w_hr.reshape({w.w_hr.numel()}).copy_from(place(ctx, all, kProjection).matrix);
    return w;
  }

  LstmShape s_;
  cudnnDataType_t type_;
  RnnDescriptor rnn_;
  DropoutDescriptor dropout_;
  DataDescriptor x_, y_;
  TensorDescriptor h_, c_;
  size_t weight_bytes_ = 0;
  Tensor weights_, work_, reserve_;
  Uploaded<int32_t> lengths_;
  Tensor input_, output_;  // of the last forward()
  LstmState before_;
};

}  // namespace

std::unique_ptr<CudnnLstm> make_lstm(Context& ctx, const LstmShape& shape) {
  return std::make_unique<Lstm>(ctx, shape);
}

}  // namespace lmx::cudnn

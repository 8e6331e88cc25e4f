// The reference LSTM of the emulated cuDNN, written from cuDNN's formulas: one thread for each element of a result, in
// double, in the type of the layer in memory.
#pragma once

#include "handle.h"

namespace emulated_cudnn {

// Places in the block of parameters, in elements: of matrix or bias number `id` (0 to 3: gates of the input, 4 to 7: of
// the recurrent output, 8: projection). Between two is a gap, which no caller may use.
struct Layout {
  int64_t input, cells, output;
  static constexpr int64_t kGap = 8;
  bool projects() const { return output != cells; }
  int64_t rows(int id) const { return id == 8 ? output : cells; }
  int64_t columns(int id) const { return id == 8 ? cells : id < 4 ? input : output; }
  int64_t bias(int id) const;  // the biases are stored first
  int64_t matrix(int id) const;
  int64_t size() const { return matrix(9); }
};

// One call. The reserve has, in double: activated gates (T, B, 4H), which the backward pass replaces by the gradients
// of the pre-activations; cells ((T+1), B, H); o tanh(c) (T, B, H); the gradients of the outputs (T, B, P).
struct Lstm {
  Layout layout;
  int64_t steps, batch;
  cudaStream_t stream;
  const void *weights, *x, *hx, *cx;
  void* y;
  double* reserve;
  int64_t gates_at() const { return 0; }
  int64_t cells_at() const { return 4 * steps * batch * layout.cells; }
  int64_t memory_at() const { return cells_at() + (steps + 1) * batch * layout.cells; }
  int64_t slopes_at() const { return memory_at() + steps * batch * layout.cells; }
  int64_t reserve_size() const { return slopes_at() + steps * batch * layout.output; }
};

template <class T>
cudaError_t forward(const Lstm& l, void* hy, void* cy);
template <class T>
cudaError_t backward_data(const Lstm& l, const void* dy, void* dx, double* work);  // work: (B, H)
template <class T>
cudaError_t backward_weights(const Lstm& l, void* dweights);

}  // namespace emulated_cudnn

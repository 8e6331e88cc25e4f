#include "lstm_steps.h"

#include <cmath>

#include "lmx/cuda_launch.cuh"

namespace emulated_cudnn {

int64_t Layout::bias(int id) const {
  return id * (cells + kGap);
}
int64_t Layout::matrix(int id) const {
  int64_t at = bias(8);
  for (int before = 0; before < id; ++before) at += rows(before) * columns(before) + kGap;
  return at;
}

namespace {

using lmx::float16;

double sigmoid(double z) {
  return 1 / (1 + std::exp(-z));
}

template <class T>
double value(const void* all, int64_t i) {
  return static_cast<double>(static_cast<float>(static_cast<const T*>(all)[i]));
}
template <class T>
void put(void* all, int64_t i, double x) {
  static_cast<T*>(all)[i] = T(static_cast<float>(x));
}

// The elements of one layer, for kernels.
template <class T>
struct View {
  Lstm l;
  // A kernel must not get the stream, which is an address of the host.
  explicit View(const Lstm& all) : l(all) { l.stream = nullptr; }
  int64_t cells() const { return l.layout.cells; }
  int64_t output() const { return l.layout.output; }
  double matrix(int id, int64_t row, int64_t column) const {
    return value<T>(l.weights, l.layout.matrix(id) + row * l.layout.columns(id) + column);
  }
  double bias(int id, int64_t row) const { return value<T>(l.weights, l.layout.bias(id) + row); }
  double x(int64_t t, int64_t b, int64_t e) const { return value<T>(l.x, (t * l.batch + b) * l.layout.input + e); }
  // The output before step t.
  double before(int64_t t, int64_t b, int64_t p) const {
    if (t == 0) return l.hx ? value<T>(l.hx, b * output() + p) : 0;
    return value<T>(l.y, ((t - 1) * l.batch + b) * output() + p);
  }
  double& gate(int64_t t, int64_t b, int id, int64_t j) const {
    return l.reserve[l.gates_at() + ((t * l.batch + b) * 4 + id) * cells() + j];
  }
  double& cell(int64_t t, int64_t b, int64_t j) const {  // before step t
    return l.reserve[l.cells_at() + (t * l.batch + b) * cells() + j];
  }
  double& memory(int64_t t, int64_t b, int64_t j) const {
    return l.reserve[l.memory_at() + (t * l.batch + b) * cells() + j];
  }
  double& slope(int64_t t, int64_t b, int64_t p) const {
    return l.reserve[l.slopes_at() + (t * l.batch + b) * output() + p];
  }
};

template <class T>
struct FirstCells {
  View<T> v;
  void operator()(int64_t i) const { v.cell(0, i / v.cells(), i % v.cells()) = v.l.cx ? value<T>(v.l.cx, i) : 0; }
};

template <class T>
struct GatesOfStep {
  View<T> v;
  int64_t t;
  void operator()(int64_t i) const {
    const int64_t b = i / v.cells(), j = i % v.cells();
    double z[4];
    for (int g = 0; g < 4; ++g) {
      z[g] = v.bias(g, j) + v.bias(4 + g, j);
      for (int64_t e = 0; e < v.l.layout.input; ++e) z[g] += v.matrix(g, j, e) * v.x(t, b, e);
      for (int64_t p = 0; p < v.output(); ++p) z[g] += v.matrix(4 + g, j, p) * v.before(t, b, p);
      v.gate(t, b, g, j) = g == 2 ? std::tanh(z[g]) : sigmoid(z[g]);
    }
    const double c = v.gate(t, b, 1, j) * v.cell(t, b, j) + v.gate(t, b, 0, j) * v.gate(t, b, 2, j);
    v.cell(t + 1, b, j) = c;
    v.memory(t, b, j) = v.gate(t, b, 3, j) * std::tanh(c);
  }
};

template <class T>
struct OutputOfStep {
  View<T> v;
  int64_t t;
  void operator()(int64_t i) const {
    const int64_t b = i / v.output(), p = i % v.output();
    double y = 0;
    if (v.l.layout.projects())
      for (int64_t j = 0; j < v.cells(); ++j) y += v.matrix(8, p, j) * v.memory(t, b, j);
    else
      y = v.memory(t, b, p);
    put<T>(v.l.y, (t * v.l.batch + b) * v.output() + p, y);
  }
};

template <class T>
struct LastState {
  View<T> v;
  void *hy, *cy;
  void operator()(int64_t i) const {
    const int64_t b = i / v.cells(), j = i % v.cells();
    if (cy) put<T>(cy, i, v.cell(v.l.steps, b, j));
    if (hy && j < v.output()) put<T>(hy, b * v.output() + j, v.before(v.l.steps, b, j));
  }
};

template <class T>
struct SlopesOfStep {
  View<T> v;
  const void* dy;
  int64_t t;
  void operator()(int64_t i) const {
    const int64_t b = i / v.output(), p = i % v.output();
    double dh = value<T>(dy, (t * v.l.batch + b) * v.output() + p);
    for (int g = 0; g < 4 && t + 1 < v.l.steps; ++g)
      for (int64_t j = 0; j < v.cells(); ++j) dh += v.gate(t + 1, b, g, j) * v.matrix(4 + g, j, p);
    v.slope(t, b, p) = dh;
  }
};

// Replaces activated gates by the gradients of their pre-activations.
template <class T>
struct GateSlopesOfStep {
  View<T> v;
  double* dc;
  int64_t t;
  void operator()(int64_t at) const {
    const int64_t b = at / v.cells(), j = at % v.cells();
    double dm = 0;
    if (v.l.layout.projects())
      for (int64_t p = 0; p < v.output(); ++p) dm += v.slope(t, b, p) * v.matrix(8, p, j);
    else
      dm = v.slope(t, b, j);
    double &i = v.gate(t, b, 0, j), &f = v.gate(t, b, 1, j), &g = v.gate(t, b, 2, j), &o = v.gate(t, b, 3, j);
    const double tc = std::tanh(v.cell(t + 1, b, j));
    const double d = (t + 1 == v.l.steps ? 0 : dc[at]) + dm * o * (1 - tc * tc);
    dc[at] = d * f;
    const double di = d * g * i * (1 - i), df = d * v.cell(t, b, j) * f * (1 - f), dg = d * i * (1 - g * g);
    o = dm * tc * o * (1 - o);
    i = di;
    f = df;
    g = dg;
  }
};

template <class T>
struct InputGradient {
  View<T> v;
  void* dx;
  void operator()(int64_t at) const {
    const int64_t e = at % v.l.layout.input, row = at / v.l.layout.input, b = row % v.l.batch, t = row / v.l.batch;
    double sum = 0;
    for (int g = 0; g < 4; ++g)
      for (int64_t j = 0; j < v.cells(); ++j) sum += v.gate(t, b, g, j) * v.matrix(g, j, e);
    put<T>(dx, at, sum);
  }
};

// Adds to the matrix `id` and, for a gate, to its bias in column 0's thread.
template <class T>
struct ParameterGradient {
  View<T> v;
  void* dw;
  int id;
  void operator()(int64_t at) const {
    const int64_t columns = v.l.layout.columns(id), row = at / columns, column = at % columns;
    double sum = 0, bias = 0;
    for (int64_t t = 0; t < v.l.steps; ++t) {
      for (int64_t b = 0; b < v.l.batch; ++b) {
        const double left = id == 8 ? v.slope(t, b, row) : v.gate(t, b, id % 4, row);
        bias += left;
        sum += left * (id == 8 ? v.memory(t, b, column) : id < 4 ? v.x(t, b, column) : v.before(t, b, column));
      }
    }
    const int64_t to = v.l.layout.matrix(id) + at;
    put<T>(dw, to, value<T>(dw, to) + sum);
    if (id == 8 || column != 0) return;
    put<T>(dw, v.l.layout.bias(id) + row, value<T>(dw, v.l.layout.bias(id) + row) + bias);
  }
};

template <class Element>
cudaError_t each(const Lstm& l, int64_t n, const Element& element) {
  cudaLaunchConfig_t config{};
  config.gridDim = lmx::cuda::blocks_of((n + lmx::cuda::kThreads - 1) / lmx::cuda::kThreads);
  config.blockDim = lmx::cuda::kThreads;
  config.stream = l.stream;
  cuda_emulator::name_next_kernel("cudnn_lstm");
  return cudaLaunchKernelEx(&config, lmx::cuda::each_kernel<Element>, n, element);
}

// The first error of kernels that are enqueued in order.
class Queue {
 public:
  explicit Queue(const Lstm& l) : l_(l) {}
  template <class Element>
  void add(int64_t n, const Element& element) {
    if (error_ == cudaSuccess) error_ = each(l_, n, element);
  }
  cudaError_t error() const { return error_; }

 private:
  const Lstm& l_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace

template <class T>
cudaError_t forward(const Lstm& l, void* hy, void* cy) {
  const View<T> v(l);
  const int64_t cells = l.batch * l.layout.cells, outputs = l.batch * l.layout.output;
  Queue queue(l);
  queue.add(cells, FirstCells<T>{v});
  for (int64_t t = 0; t < l.steps; ++t) {
    queue.add(cells, GatesOfStep<T>{v, t});
    queue.add(outputs, OutputOfStep<T>{v, t});
  }
  queue.add(cells, LastState<T>{v, hy, cy});
  return queue.error();
}

template <class T>
cudaError_t backward_data(const Lstm& l, const void* dy, void* dx, double* work) {
  const View<T> v(l);
  Queue queue(l);
  for (int64_t t = l.steps - 1; t >= 0; --t) {
    queue.add(l.batch * l.layout.output, SlopesOfStep<T>{v, dy, t});
    queue.add(l.batch * l.layout.cells, GateSlopesOfStep<T>{v, work, t});
  }
  queue.add(l.steps * l.batch * l.layout.input, InputGradient<T>{v, dx});
  return queue.error();
}

template <class T>
cudaError_t backward_weights(const Lstm& l, void* dweights) {
  Queue queue(l);
  for (int id = 0; id < (l.layout.projects() ? 9 : 8); ++id)
    queue.add(l.layout.rows(id) * l.layout.columns(id), ParameterGradient<T>{View<T>(l), dweights, id});
  return queue.error();
}

template cudaError_t forward<float>(const Lstm&, void*, void*);
template cudaError_t forward<float16>(const Lstm&, void*, void*);
template cudaError_t backward_data<float>(const Lstm&, const void*, void*, double*);
template cudaError_t backward_data<float16>(const Lstm&, const void*, void*, double*);
template cudaError_t backward_weights<float>(const Lstm&, void*);
template cudaError_t backward_weights<float16>(const Lstm&, void*);

}  // namespace emulated_cudnn

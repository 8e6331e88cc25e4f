// The state that a rank works with. There are no globals, so that many ranks can share one process.
#pragma once

#include <memory>

#include "lmx/dtype.h"
#include "lmx/memory.h"
#include "lmx/random.h"
#include "lmx/tensor.h"
#include "lmx/trace.h"

namespace lmx {

class Tape;
class Communicator;

struct Context {
  int rank = 0, ranks = 1;
  Device device;
  std::shared_ptr<Allocator> allocator = Allocator::cpu();
  RandomKey key;  // of the run; during a step, the key of that step
  Communicator* comm = nullptr;
  Tape* tape = nullptr;        // null: nothing is recorded (evaluation)
  DType compute = DType::f32;  // type to which inputs of matrix products are rounded: f64 (checks), f32, bf16, f16
  bool training = true;        // dropout and other noise are active
  Tracer* tracer = nullptr;

  Tensor empty(Shape shape, DType type = DType::f32, MemClass c = MemClass::activations) const {
    return Tensor::empty(allocator, shape, type, c);
  }
  Tensor zeros(Shape shape, DType type = DType::f32, MemClass c = MemClass::activations) const {
    return Tensor::zeros(allocator, shape, type, c);
  }
};

}  // namespace lmx

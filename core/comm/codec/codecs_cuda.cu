// The elementwise codecs, and the quantisation error of all codecs.
#include "comm/codec/codecs_cuda.cuh"

namespace lmx::comm {
namespace {

template <class Code>
struct EncodeElement {
  Encode<Code, float> a;
  int64_t count() const { return a.rows * a.width; }
  __device__ void operator()(int64_t i) const { put_value(a.code(), a.encoded, i, a.values[i]); }
};
template <class Code>
struct DecodeElement {
  Decode<Code, float> a;
  int64_t count() const { return a.rows * a.width; }
  __device__ void operator()(int64_t i) const { a.to.row(0)[i] = value_at(a.code(), a.encoded, i); }
};
template <class Code>
struct AddElement {
  AddDecoded<Code, float> a;
  int64_t count() const { return a.rows * a.width; }
  __device__ void operator()(int64_t i) const {
    float* sum = a.sum.row(0);
    sum[i] = plus_value(a.code(), sum[i], a.encoded, i);
  }
};
template <class Code>
struct ElementDecoder : WithCode<Code> {
  const std::byte* encoded;
  __device__ float operator()(int64_t i) const { return value_at(this->code(), encoded, i); }
};

template <class Code>
void measure(Context& ctx, const Measure<Code, float>& a) {
  measure_strips(ctx, a.kName, a.of, ElementDecoder<Code>{{a.code()}, a.encoded});
}

template <class Code>
KernelAdder add() {
  return KernelAdder(Device::Kind::cuda, cuda::each<EncodeElement<Code>>, cuda::each<DecodeElement<Code>>,
                     cuda::each<AddElement<Code>>, measure<Code>);
}

const KernelAdder adders[] = {add<PlainCode>(), add<Bf16Code>(), add<Fp16Code>()};

}  // namespace
}  // namespace lmx::comm

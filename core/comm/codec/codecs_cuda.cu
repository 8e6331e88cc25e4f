// The elementwise codecs, and the quantisation error of all codecs.
#include "comm/codec/codecs_cuda.cuh"

namespace lmx::comm {
namespace {

template <class Code>
struct EncodeElement {
  Encode<Code, float> a;
  __device__ void operator()(int64_t i) const { put_value(a.code, a.encoded, i, a.values[i]); }
};
template <class Code>
struct DecodeElement {
  Decode<Code, float> a;
  __device__ void operator()(int64_t i) const { a.to.row(0)[i] = value_at(a.code, a.encoded, i); }
};
template <class Code>
struct AddElement {
  AddDecoded<Code, float> a;
  __device__ void operator()(int64_t i) const {
    float* sum = a.sum.row(0);
    sum[i] = plus_value(a.code, sum[i], a.encoded, i);
  }
};
template <class Code>
struct ElementDecoder {
  const std::byte* encoded;
  [[no_unique_address]] Code code;
  __device__ float operator()(int64_t i) const { return value_at(code, encoded, i); }
};

template <class Code>
void encode(Context& ctx, const Encode<Code, float>& a) {
  launch_each(ctx, a.kName, a.rows * a.width, EncodeElement<Code>{a});
}
template <class Code>
void decode(Context& ctx, const Decode<Code, float>& a) {
  launch_each(ctx, a.kName, a.rows * a.width, DecodeElement<Code>{a});
}
template <class Code>
void add(Context& ctx, const AddDecoded<Code, float>& a) {
  launch_each(ctx, a.kName, a.rows * a.width, AddElement<Code>{a});
}
template <class Code>
void measure(Context& ctx, const Measure<Code, float>& a) {
  measure_strips(ctx, a.kName, a.of, ElementDecoder<Code>{a.encoded, a.code});
}

const KernelAdder adder(Device::Kind::cuda, encode<PlainCode>, decode<PlainCode>, add<PlainCode>, measure<PlainCode>,
                        encode<Bf16Code>, decode<Bf16Code>, add<Bf16Code>, measure<Bf16Code>, encode<Fp16Code>,
                        decode<Fp16Code>, add<Fp16Code>, measure<Fp16Code>);

}  // namespace
}  // namespace lmx::comm

#include "backend/onednn.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lmx {

using dnnl::memory;
using Tag = memory::format_tag;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

namespace {

DnnlMatmul::Key only_multiplying(DnnlMatmul::Key key) {
  key.accumulate = key.bias = false;
  key.result = memory::data_type::f32;
  return key;
}

// The layout of the right side for a product. A packed right side is stored in the layout of the product that only
// multiplies. The others must use the same layout, even if oneDNN would prefer another one.
memory::desc right_side(const DnnlMatmul::Key& key) {
  const DnnlMatmul::Key plain = only_multiplying(key);
  if (key.packed_b && key != plain) return dnnl_matmul(plain).weights_desc();
  return {{key.k, key.n}, key.type, key.packed_b ? Tag::any : key.trans_b ? Tag::ba : Tag::ab};
}

dnnl::matmul::primitive_desc describe_matmul(const DnnlMatmul::Key& key) {
  const memory::desc a({key.m, key.k}, key.type, key.trans_a ? Tag::ba : Tag::ab);
  const memory::desc b = right_side(key);
  const memory::desc c({key.m, key.n}, key.result, Tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attributes.set_post_ops(ops);
  }
  if (!key.bias) return {dnnl::matmul::desc(a, b, c), attributes, cpu_engine()};
  const memory::desc bias({1, key.n}, memory::data_type::f32, Tag::ab);
  return {dnnl::matmul::desc(a, b, bias, c), attributes, cpu_engine()};
}

int layout_number(const memory::desc& layout) {
  static std::mutex mutex;
  static std::vector<memory::desc> seen;
  const std::lock_guard lock(mutex);
  const auto found = std::find(seen.begin(), seen.end(), layout);
  if (found != seen.end()) return static_cast<int>(found - seen.begin());
  seen.push_back(layout);
  return static_cast<int>(seen.size()) - 1;
}

}  // namespace

DnnlMatmul::DnnlMatmul(const Key& key)
    : key_(key), desc_(describe_matmul(key)), primitive_(desc_), layout_(layout_number(desc_.weights_desc())) {}

std::string describe_product(const DnnlMatmul::Key& key) {
  return str("multiply (", key.m, ", ", key.k, ") by (", key.k, ", ", key.n, ") ",
             key.type == memory::data_type::bf16 ? "bf16" : "f32");
}

bool DnnlMatmul::brgemm() const {
  return std::string_view(desc_.impl_info_str()).starts_with("brg");
}

void DnnlMatmul::execute(Context& ctx, const void* a, const void* b, void* c, const void* bias) const {
  with_onednn([&] { return describe_product(key_); },
              [&] {
                const dnnl::engine& engine = cpu_engine();
                dnnl::stream stream(engine);
                const auto bytes = static_cast<int64_t>(desc_.scratchpad_desc().get_size());
                Tensor scratch = bytes ? ctx.empty({bytes}, DType::u8) : Tensor();
                if (ctx.device.counts) return;
                const memory wa(desc_.src_desc(), engine, const_cast<void*>(a));
                const memory wb(desc_.weights_desc(), engine, const_cast<void*>(b));
                const memory wc(desc_.dst_desc(), engine, c);
                const memory ws(desc_.scratchpad_desc(), engine, scratch.raw());
                std::unordered_map<int, memory> arguments{
                    {DNNL_ARG_SRC, wa}, {DNNL_ARG_WEIGHTS, wb}, {DNNL_ARG_DST, wc}, {DNNL_ARG_SCRATCHPAD, ws}};
                if (bias) arguments.emplace(DNNL_ARG_BIAS, memory(desc_.bias_desc(), engine, const_cast<void*>(bias)));
                primitive_.execute(stream, arguments);
                stream.wait();
              });
}

const DnnlMatmul& dnnl_matmul(const DnnlMatmul::Key& key) {
  // Code that oneDNN generated, stored by shape. It is immutable, so ranks can share it without affecting each other.
  static std::recursive_mutex mutex;  // a product requests the one that only multiplies
  static std::map<DnnlMatmul::Key, std::unique_ptr<DnnlMatmul>> cache;
  const std::lock_guard lock(mutex);
  std::unique_ptr<DnnlMatmul>& entry = cache[key];
  if (!entry) {
    entry = with_onednn([&] { return describe_product(key); }, [&] { return std::make_unique<DnnlMatmul>(key); });
  }
  return *entry;
}

const DnnlMatmul* packed_matmul(DnnlMatmul::Key key) {
  key.packed_b = true;
  key.trans_b = false;
  // The available kernels do not depend on the number of rows, so one product is built to test whether packing gains.
  DnnlMatmul::Key any_rows = only_multiplying(key);
  any_rows.m = 32;
  if (!dnnl_matmul(any_rows).brgemm()) return nullptr;
  const DnnlMatmul& product = dnnl_matmul(key);  // with a bias or another result, the kernel may be another one
  return product.brgemm() ? &product : nullptr;
}

Tensor packed_right_side(Context& ctx, const void* b, memory::data_type type, bool trans, const DnnlMatmul& product,
                         MemClass c) {
  const DnnlMatmul::Key& key = product.key();
  return with_onednn([&] { return str("pack the right side to ", describe_product(key)); },
                     [&] {
                       const memory::desc plain({key.k, key.n}, type, trans ? Tag::ba : Tag::ab);
                       const auto bytes = static_cast<int64_t>(product.weights_desc().get_size());
                       Tensor out = ctx.empty({bytes}, DType::u8, c);
                       if (ctx.device.counts) return out;
                       memory from(plain, cpu_engine(), const_cast<void*>(b));
                       memory to(product.weights_desc(), cpu_engine(), out.raw());
                       dnnl::stream stream(cpu_engine());
                       dnnl::reorder(from, to).execute(stream, from, to);
                       stream.wait();
                       return out;
                     });
}

}  // namespace lmx

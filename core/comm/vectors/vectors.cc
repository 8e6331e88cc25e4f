#include "lmx/vectors.h"

#include <algorithm>
#include <vector>

#include "autograd/gradient_sums.h"
#include "comm/rows.h"
#include "comm/vectors/vectors.h"
#include "lmx/error.h"

namespace lmx {
namespace {

constexpr MemClass kClass = MemClass::communication;

int64_t groups_of(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

void check_ids(const Tensor& v, int64_t k) {
  LMX_CHECK(v.rank() == 1 && v.numel() <= INT32_MAX && k <= v.numel(), k, " elements of ", describe(v));
}

Entries take(Context& ctx, Tensor v, Tensor ids) {
  const int64_t k = ids.numel();
  Tensor values = ctx.empty({k}, DType::f32, kClass);
  run_kernel(ctx, comm::TakeEntries<float>{v.data<float>(), ids.data<int32_t>(), values.data<float>(), k});
  return {std::move(ids), std::move(values)};
}

void add_entries(Context& ctx, Tensor sum, const Tensor& ids, const Tensor& values) {
  run_kernel(ctx, comm::AddEntries<float>{sum.data<float>(), ids.data<int32_t>(), values.data<float>(), ids.numel()});
}

}  // namespace

int64_t largest_count(int64_t n, int64_t k, int64_t chunk) {
  if (chunk == 0 || chunk >= n) return std::min(k, n);
  return n / chunk * k + std::min(k, n % chunk);
}

Entries take_largest(Context& ctx, Tensor v, int64_t k, int64_t chunk) {
  const int64_t n = v.numel(), size = chunk == 0 ? n : std::min(chunk, n), count = largest_count(n, k, chunk);
  check_ids(v, count);
  LMX_CHECK(k >= 1 && (chunk == 0 || k <= chunk), k, " elements of each ", chunk);
  Tensor ids = ctx.empty({count}, DType::i32, kClass);
  run_kernel(ctx, comm::LargestIds<float>{v.data<float>(), n, std::min(k, size), size, ids.data<int32_t>()});
  return take(ctx, v, ids);
}

Entries take_random(Context& ctx, Tensor v, int64_t k, RandomKey key) {
  check_ids(v, k);
  const auto ids = ctx.comm->once<Tensor>([&] {
    Tensor chosen = Tensor::empty(ctx.host, {k}, DType::i32, kClass);
    int64_t i = 0;
    for (int32_t& id : chosen.values<int32_t>())
      id = static_cast<int32_t>(permute(key, static_cast<uint64_t>(i++), static_cast<uint64_t>(v.numel())));
    return ctx.upload(chosen);
  });
  return take(ctx, v, ids);
}

Tensor spread_entries(Context& ctx, const Entries& entries, int64_t size) {
  Tensor all = ctx.zeros({size}, DType::f32, kClass);
  add_entries(ctx, all, entries.ids, entries.values);
  return all;
}

Tensor gather_entries(Context& ctx, const Entries& own, int64_t size, const std::string& group) {
  const int64_t k = own.ids.numel();
  const RankRows rows = RankRows::same(ctx.comm->size(), k);
  const Tensor ids = ctx.comm->all_gather(own.ids, rows, group), values = ctx.comm->all_gather(own.values, rows, group);
  return ctx.comm->once_tensor(kClass, [&] {
    Tensor sum = ctx.zeros({size}, DType::f32, kClass);
    for (int64_t at = 0; at < ids.numel(); at += k)
      add_entries(ctx, sum, ids.slice(at, at + k), values.slice(at, at + k));
    return sum;
  });
}

void add_scaled(Context& ctx, Tensor v, float factor, const Tensor& x) {
  const int64_t n = v.numel();
  LMX_CHECK(x.numel() == n, describe(x), " is added to ", describe(v));
  const comm::RowsAt<float> to{v.data<float>(), 1};
  run_kernel(ctx, comm::CopyRows<float>{to, comm::Rows(x.reshape({n, 1})).from(), to, n, 1, factor});
}

void orthonormalise(Context& ctx, Tensor m) {
  LMX_CHECK(m.rank() == 2 && m.dim(1) <= m.dim(0), "columns of ", describe(m));
  run_kernel(ctx, comm::Orthonormalise<float>{m.data<float>(), m.dim(0), m.dim(1)});
}

Tensor signs(Context& ctx, const Tensor& x, float factor) {
  Tensor y = ctx.empty(x.shape(), DType::f32, kClass);
  run_kernel(ctx, comm::Signs<float>{x.data<float>(), x.numel(), y.data<float>(), factor});
  return y;
}

namespace {

Tensor pack_signs(Context& ctx, const Tensor& v) {
  Tensor codes = ctx.empty({v.numel()}, DType::u8, kClass);
  run_kernel(ctx, comm::SignCodes<float>{v.data<float>(), v.numel(), codes.data<uint8_t>()});
  return pack_bits(ctx, codes, 1);
}

// The sum of squares of every rank's v, f64 (ranks).
Tensor gather_squares(Context& ctx, const Tensor& v, const std::string& group) {
  Tensor squares = ctx.zeros({1}, DType::f64, kClass);
  run_kernel(ctx, comm::SquareRows<float>{comm::Rows(v).from(), 1, v.numel(), squares.data<double>()});
  return ctx.comm->all_gather(squares, RankRows::same(ctx.comm->size(), 1), group);
}

}  // namespace

Tensor vote_signs(Context& ctx, const Tensor& v, float factor, const std::string& group) {
  const int64_t n = v.numel(), ranks = ctx.comm->size();
  const RankRows parts = RankRows::divided(ctx.comm->size(), packed_bytes(n, 1));
  const int64_t own = parts[ctx.comm->rank()];
  const Tensor squares = gather_squares(ctx, v, group);
  const std::vector<Tensor> received =
      ctx.comm->all_to_all(pack_signs(ctx, v), parts, RankRows::same(ctx.comm->size(), own), group);
  Tensor votes = ctx.zeros({8 * own}, DType::f32, kClass);
  for (int64_t r = 0; r < ranks; ++r) {
    const Tensor codes = unpack_bits(ctx, received[static_cast<size_t>(r)], 1, votes.numel());
    run_kernel(ctx, comm::AddVotes<float>{codes.data<uint8_t>(), squares.data<double>() + r, votes.numel(),
                                          votes.data<float>()});
  }
  const Tensor majority = ctx.comm->all_gather(pack_signs(ctx, votes), parts, group);
  return ctx.comm->once_tensor(kClass, [&] {
    const Tensor codes = unpack_bits(ctx, majority, 1, n);
    Tensor y = ctx.empty({n}, DType::f32, kClass);
    run_kernel(
        ctx, comm::SignValues<float>{codes.data<uint8_t>(), squares.data<double>(), n, ranks, y.data<float>(), factor});
    return y;
  });
}

int64_t packed_bytes(int64_t n, int bits) {
  return groups_of(n * bits, 8);
}

Tensor pack_bits(Context& ctx, const Tensor& codes, int bits) {
  LMX_CHECK(bits >= 1 && bits <= 8, bits, " bits of a code");
  const int64_t n = codes.numel(), bytes = packed_bytes(n, bits);
  Tensor packed = ctx.empty({bytes}, DType::u8, kClass);
  run_kernel(ctx, comm::PackBits<uint8_t>{codes.data<uint8_t>(), n, bytes, bits, packed.data<uint8_t>()});
  return packed;
}

Tensor unpack_bits(Context& ctx, const Tensor& packed, int bits, int64_t n) {
  LMX_CHECK(packed.numel() == packed_bytes(n, bits), n, " codes of ", bits, " bits in ", describe(packed));
  Tensor codes = ctx.empty({n}, DType::u8, kClass);
  run_kernel(ctx, comm::UnpackBits<uint8_t>{packed.data<uint8_t>(), n, packed.numel(), bits, codes.data<uint8_t>()});
  return codes;
}

Quantised quantise(Context& ctx, const QuantiserConfig& config, const Tensor& v, RandomKey key) {
  LMX_CHECK(config.bits >= 2 && config.bits <= 8 && config.bucket >= 1, config.bits, " bits, buckets of ",
            config.bucket);
  const int64_t n = v.numel();
  Tensor norms = ctx.empty({groups_of(n, config.bucket)}, DType::f32, kClass);
  run_kernel(ctx, comm::BucketNorms<float>{v.data<float>(), n, config.bucket, config.largest, norms.data<float>()});
  Tensor codes = ctx.empty({n}, DType::u8, kClass);
  run_kernel(
      ctx,
      comm::QuantiseValues<float>{
          v.data<float>(), norms.data<float>(), n, config.bucket, {config.bits}, key.value(), codes.data<uint8_t>()});
  return {std::move(norms), pack_bits(ctx, codes, static_cast<int>(config.bits))};
}

void add_quantised(Context& ctx, const QuantiserConfig& config, const Quantised& q, float factor, Tensor v) {
  const Tensor codes = unpack_bits(ctx, q.codes, static_cast<int>(config.bits), v.numel());
  run_kernel(ctx, comm::AddLevels<float>{codes.data<uint8_t>(),
                                         q.norms.data<float>(),
                                         v.numel(),
                                         config.bucket,
                                         {config.bits},
                                         v.data<float>(),
                                         factor});
}

Tensor gather_quantised(Context& ctx, const QuantiserConfig& config, const Quantised& own, int64_t size,
                        const std::string& group) {
  const int ranks = ctx.comm->size();
  const int64_t buckets = own.norms.numel(), bytes = own.codes.numel();
  const Tensor norms = ctx.comm->all_gather(own.norms, RankRows::same(ranks, buckets), group),
               codes = ctx.comm->all_gather(own.codes, RankRows::same(ranks, bytes), group);
  return ctx.comm->once_tensor(kClass, [&] {
    Tensor sum = ctx.zeros({size}, DType::f32, kClass);
    for (int64_t r = 0; r < ranks; ++r)
      add_quantised(ctx, config, {norms.slice(r * buckets, (r + 1) * buckets), codes.slice(r * bytes, (r + 1) * bytes)},
                    1, sum);
    return sum;
  });
}

}  // namespace lmx

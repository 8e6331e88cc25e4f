#include "lmx/vectors.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "comm/rows.h"
#include "comm/vectors/vectors.h"
#include "lmx/codec.h"
#include "lmx/error.h"
#include "lmx/matmul.h"

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

// The sum of squares of v, f64 (1).
Tensor squares_of(Context& ctx, const Tensor& v) {
  Tensor squares = ctx.zeros({1}, DType::f64, kClass);
  run_kernel(ctx, comm::SquareRows<float>{comm::Rows(v).from(), 1, v.numel(), squares.data<double>()});
  return squares;
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
  const Tensor squares = squares_of(ctx, v);
  Entries taken = take(ctx, v, ids);
  run_kernel(ctx, comm::SpoilEntries<float>{squares.data<double>(), k, taken.values.data<float>()});
  return taken;
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

namespace {

int64_t chunk_of(const ChunkGather& how) {
  return how.chunk == 0 ? how.size : std::min(how.chunk, how.size);
}
int64_t count_of(const ChunkGather& how) {
  return largest_count(how.size, how.k, how.chunk);
}

// Calls body(bits, shift) for the bytes of an id within its chunk, from the lowest one.
template <class Body>
void each_id_byte(const ChunkGather& how, Body&& body) {
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(chunk_of(how) - 1))));
  for (int shift = 0; shift < bits; shift += 8) body(std::min(8, bits - shift), shift);
}

int64_t id_bytes(const ChunkGather& how) {
  int64_t bytes = 0;
  each_id_byte(how, [&](int bits, int) { bytes += packed_bytes(count_of(how), bits); });
  return bytes;
}

void pack_ids(Context& ctx, const ChunkGather& how, const Tensor& ids, const Tensor& packed) {
  const int64_t n = ids.numel();
  Tensor codes = ctx.empty({n}, DType::u8, kClass);
  int64_t at = 0;
  each_id_byte(how, [&](int bits, int shift) {
    run_kernel(ctx, comm::IdBytes<uint8_t>{ids.data<int32_t>(), chunk_of(how), shift, n, codes.data<uint8_t>()});
    const int64_t end = at + packed_bytes(n, bits);
    packed.slice(at, end).copy_from(pack_bits(ctx, codes, bits));
    at = end;
  });
}

Tensor unpack_ids(Context& ctx, const ChunkGather& how, const Tensor& packed) {
  const int64_t n = count_of(how);
  Tensor ids = ctx.empty({n}, DType::i32, kClass);
  int64_t at = 0;
  each_id_byte(how, [&](int bits, int shift) {
    const int64_t end = at + packed_bytes(n, bits);
    const Tensor codes = unpack_bits(ctx, packed.slice(at, end), bits, n);
    run_kernel(ctx, comm::JoinIds<int32_t>{codes.data<uint8_t>(), std::min(how.k, chunk_of(how)), chunk_of(how), shift,
                                           n, ids.data<int32_t>()});
    at = end;
  });
  return ids;
}

int64_t value_bytes(const ChunkGather& how) {
  return how.codec ? how.codec->bytes(count_of(how), 1) : 4 * count_of(how);
}
Tensor decoded_values(Context& ctx, const ChunkGather& how, const Tensor& encoded) {
  Tensor values = ctx.empty({count_of(how)}, DType::f32, kClass);
  how.codec->decode(ctx, encoded, values);
  return values;
}

}  // namespace

Tensor gather_chunks(Context& ctx, const ChunkGather& how, Entries& own, const std::string& group) {
  const int ranks = ctx.comm->size();
  const int64_t n = count_of(how), packed = id_bytes(how), coded = value_bytes(how);
  LMX_CHECK(own.ids.numel() == n, own.ids.numel(), " entries, expected ", n);
  const Tensor own_ids = ctx.empty({packed}, DType::u8, kClass);
  pack_ids(ctx, how, own.ids, own_ids);
  Tensor own_values = own.values;
  if (how.codec) {
    own_values = ctx.empty({coded}, DType::u8, kClass);
    how.codec->encode(ctx, own.values, own_values);
    own.values = decoded_values(ctx, how, own_values);
  }
  const int64_t part = own_values.numel();
  const Tensor ids = ctx.comm->all_gather(own_ids, RankRows::same(ranks, packed), group),
               values = ctx.comm->all_gather(own_values, RankRows::same(ranks, part), group);
  return ctx.comm->once_tensor(kClass, [&] {
    Tensor sum = ctx.zeros({how.size}, DType::f32, kClass), counts;
    if (how.means) counts = ctx.zeros({how.size}, DType::f32, kClass);
    for (int64_t r = 0; r < ranks; ++r) {
      const Tensor at = unpack_ids(ctx, how, ids.slice(r * packed, (r + 1) * packed));
      const Tensor sent = values.slice(r * part, (r + 1) * part);
      add_entries(ctx, sum, at, how.codec ? decoded_values(ctx, how, sent) : sent);
      if (how.means) run_kernel(ctx, comm::CountEntries<float>{counts.data<float>(), at.data<int32_t>(), n});
    }
    if (how.means) run_kernel(ctx, comm::DivideCounts<float>{counts.data<float>(), how.size, sum.data<float>()});
    return sum;
  });
}

Tensor scaled(Context& ctx, const Tensor& x, float factor) {
  Tensor y = ctx.empty(x.shape(), DType::f32, kClass);  // x may be in a mapped file
  y.copy_from(x);
  const comm::Rows all(y.reshape({y.numel(), 1}));
  run_kernel(ctx, comm::ScaleRows<float>{all.from(), y.numel(), 1, factor});
  return y;
}

void add_scaled(Context& ctx, Tensor v, float factor, const Tensor& x) {
  const int64_t n = v.numel();
  LMX_CHECK(x.numel() == n, describe(x), " is added to ", describe(v));
  const comm::RowsAt<float> to{v.data<float>(), 1};
  run_kernel(ctx, comm::CopyRows<float>{to, comm::Rows(x.reshape({n, 1})).from(), to, n, 1, factor});
}

Tensor product(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b) {
  Tensor c = ctx.empty({a.dim(trans_a ? 1 : 0), b.dim(trans_b ? 0 : 1)}, DType::f32, kClass);
  gemm(ctx, a, trans_a, b, trans_b, c);
  return c;
}

void orthonormalise(Context& ctx, Tensor m) {
  LMX_CHECK(m.rank() == 2 && m.dim(1) <= m.dim(0), "columns of ", describe(m));
  run_kernel(ctx, comm::Orthonormalise<float>{m.data<float>(), m.dim(0), m.dim(1)});
}

Tensor signs(Context& ctx, const Tensor& x) {
  Tensor y = ctx.empty(x.shape(), DType::f32, kClass);
  run_kernel(ctx, comm::Signs<float>{x.data<float>(), x.numel(), y.data<float>()});
  return y;
}

namespace {

Tensor pack_signs(Context& ctx, const Tensor& v) {
  Tensor codes = ctx.empty({v.numel()}, DType::u8, kClass);
  run_kernel(ctx, comm::SignCodes<float>{v.data<float>(), v.numel(), codes.data<uint8_t>()});
  return pack_bits(ctx, codes, 1);
}

}  // namespace

Tensor vote_signs(Context& ctx, const Tensor& v, const std::string& group) {
  const int64_t n = v.numel(), ranks = ctx.comm->size();
  const RankRows parts = RankRows::divided(ctx.comm->size(), packed_bytes(n, 1));
  const int64_t own = parts[ctx.comm->rank()];
  const Tensor squares = ctx.comm->all_gather(squares_of(ctx, v), RankRows::same(ctx.comm->size(), 1), group);
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
    run_kernel(ctx, comm::SignValues<float>{codes.data<uint8_t>(), squares.data<double>(), n, ranks, y.data<float>()});
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

namespace {

comm::LevelTable table_of(const LevelCoder& coder, const Uploaded<float>& levels, int64_t n) {
  LMX_CHECK(levels.size() >= 2 && levels.size() <= 256 && coder.block >= 0, levels.size(), " levels, blocks of ",
            coder.block);
  return {levels.data(), levels.size(), n, coder.block == 0 ? std::max<int64_t>(n, 1) : coder.block, coder.scale};
}
int bits_of(const LevelCoder& coder) {
  return static_cast<int>(std::bit_width(coder.levels.size() - 1));
}
// The stored numbers of all blocks, and the packed codes behind them.
std::pair<Tensor, Tensor> parts_of(const LevelCoder& coder, const Tensor& encoded, int64_t n) {
  LMX_CHECK(encoded.numel() == level_bytes(coder, n), n, " values in ", describe(encoded));
  const int64_t numbers = encoded.numel() - packed_bytes(n, bits_of(coder));
  return {encoded.slice(0, numbers), encoded.slice(numbers, encoded.numel())};
}

}  // namespace

int64_t level_bytes(const LevelCoder& coder, int64_t n) {
  const int64_t blocks = coder.block == 0 ? (n > 0 ? 1 : 0) : groups_of(n, coder.block);
  return 4 * blocks * (coder.scale == LevelScale::deviation ? static_cast<int64_t>(coder.levels.size()) : 1) +
         packed_bytes(n, bits_of(coder));
}

void encode_levels(Context& ctx, const LevelCoder& coder, const Tensor& v, Tensor encoded) {
  const int64_t n = v.numel();
  auto [numbers, packed] = parts_of(coder, encoded, n);
  if (n == 0) return;
  const Uploaded<float> levels = ctx.upload(coder.levels);
  Tensor codes = ctx.empty({n}, DType::u8, kClass);
  run_kernel(ctx, comm::EncodeLevels<float>{table_of(coder, levels, n), v.data<float>(),
                                            reinterpret_cast<float*>(numbers.data<uint8_t>()), codes.data<uint8_t>()});
  packed.copy_from(pack_bits(ctx, codes, bits_of(coder)));
}

void decode_levels(Context& ctx, const LevelCoder& coder, const Tensor& encoded, Tensor v) {
  const int64_t n = v.numel();
  const auto [numbers, packed] = parts_of(coder, encoded, n);
  if (n == 0) return;
  const Uploaded<float> levels = ctx.upload(coder.levels);
  const Tensor codes = unpack_bits(ctx, packed, bits_of(coder), n);
  run_kernel(ctx,
             comm::DecodeLevels<float>{table_of(coder, levels, n), codes.data<uint8_t>(),
                                       reinterpret_cast<const float*>(numbers.data<uint8_t>()), n, v.data<float>()});
}

}  // namespace lmx

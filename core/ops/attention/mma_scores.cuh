// Scores in the registers of a warp, for attention on tensor cores: which query and key an element belongs to, whether
// the query sees the key, the bias, and the mask of dropout.
#pragma once

#include "backend/cuda/mma.cuh"
#include "ops/attention/tiles.cuh"

namespace lmx::ops {

// The queries and keys of a thread's elements of a warp's tile, counted from the first of the tile. Element e is
// element e % 4 of sum e / 4. ByKey: the rows of the tile are keys and its columns are queries.
template <bool ByKey>
struct TilePlace {
  __device__ static int row(int e) { return cuda::sum_row(e % 4); }
  __device__ static int column(int e) { return e / 4 * 8 + cuda::sum_column(e % 4); }
  __device__ static int query(int e) { return ByKey ? column(e) : row(e); }
  __device__ static int key(int e) { return ByKey ? row(e) : column(e); }
};

// The mask of dropout for a tile of queries and a group of 64 keys, in shared memory. Bit w of entry (query, l) says
// whether the weight of key 16 w + l of the group is kept, so one block of random words fills an entry (see DropMask).
struct DropTile {
  static constexpr int kEntries = 16;  // of a query
  uint8_t* entries;

  // The entries of queries [query, query + rows) and of the keys of group `group`.
  template <class Half>
  __device__ void stage(const Pair<float, Half>& pair, int query, int rows, int group) const {
    if (!pair.in.masks) return;
    const uint32_t threshold = pair.in.masks[pair.head].threshold;
    LMX_UNROLL_BY(1)
    for (int t = static_cast<int>(threadIdx.x); t < rows * kEntries; t += static_cast<int>(blockDim.x)) {
      const int i = query + t / kEntries;
      if (i >= pair.q.rows) continue;
      const MaskWords words = pair.words(i, group * kEntries + t % kEntries);
      unsigned kept = 0;
      for (unsigned w = 0; w < 4; ++w) kept |= (words.word[w] < threshold ? 0u : 1u) << w;
      entries[t] = static_cast<uint8_t>(kept);
    }
  }
};

// Bit e says whether the weight of a thread's element e is kept. `query`, `key`: the numbers in `masks` of the first
// query and key of the warp's tile.
template <bool ByKey, int Elements, class Half>
__device__ uint32_t kept_elements(const DropTile& masks, const Pair<float, Half>& pair, int query, int key) {
  if (!pair.in.masks) return 0xffffffffu;
  uint32_t bits = 0;
  LMX_UNROLL
  for (int e = 0; e < Elements; ++e) {
    const int i = query + TilePlace<ByKey>::query(e), j = key + TilePlace<ByKey>::key(e);
    const unsigned entry = masks.entries[i * DropTile::kEntries + j % DropTile::kEntries];
    bits |= (entry >> (j / DropTile::kEntries) & 1u) << e;
  }
  return bits;
}

// A warp's tile of scores. Queries and keys count from the first of the tile.
template <bool ByKey>
struct ScoreTile {
  using Place = TilePlace<ByKey>;
  int queries, keys;  // that exist
  int ahead;          // the number of the first key minus that of the first query
  bool causal;

  template <class Half>
  __device__ ScoreTile(const Pair<float, Half>& pair, int query, int key)
      : queries(static_cast<int>(pair.q.rows) - query),
        keys(static_cast<int>(pair.k.rows) - key),
        ahead(key - query),
        causal(pair.in.plan.causal) {}
  // Whether the query of element e sees its key.
  __device__ bool sees(int e) const {
    const int i = Place::query(e), j = Place::key(e);
    return i < queries && j < keys && (!causal || j + ahead <= i);
  }
  // Replaces products of queries and keys by scores.
  template <int N, class Half>
  __device__ void score(const Pair<float, Half>& pair, int query, int key, cuda::Sum (&s)[N]) const {
    LMX_UNROLL
    for (int e = 0; e < 4 * N; ++e) s[e / 4][e % 4] *= pair.scale;
    if (!pair.in.bias) return;
    const BiasShape& shape = pair.in.plan.bias;
    const float* bias = pair.in.bias + shape.at(pair.sequence, pair.head, query) + key;
    LMX_UNROLL
    for (int e = 0; e < 4 * N; ++e)
      if (sees(e)) s[e / 4][e % 4] += bias[Place::query(e) * shape.keys + Place::key(e)];
  }
};

// The factor of dropout for weights that are kept.
template <class Half>
__device__ float keep_scale(const Pair<float, Half>& pair) {
  return pair.in.masks ? static_cast<float>(pair.in.masks[pair.head].keep_scale) : 1.0f;
}

}  // namespace lmx::ops

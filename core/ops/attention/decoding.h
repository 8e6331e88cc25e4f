// Arguments of the kernels that attend with one query of each row to stored keys and values, see decoding.cc.
#pragma once

#include <cstdint>

#include "lmx/kernels.h"

namespace lmx::ops {

// Attention of a sentence's next word to keys and values wherever they are stored. Both have `width` = heads size
// elements, and the values of a key follow it.
template <class T>
struct AttendKeys {
  static constexpr const char* kName = "attend_keys";
  const T* q;            // the first column of the first query
  int64_t stride;        // elements from one query to the next
  const T* const* keys;  // the keys of all rows, one row after the other
  const int64_t* begin;  // (rows + 1) row r attends to keys [begin[r], begin[r + 1])
  T* y;                  // (rows, heads size)
  int64_t rows, heads, size;
};

// Number of positions whose keys are stored together: element i of all of them, then element i + 1.
inline constexpr int64_t kPanel = 64;

// Stores the keys and values of each row's first positions.
template <class T>
struct KeepText {
  static constexpr const char* kName = "keep_text";
  const T* qkv;      // (rows * length, (heads + 2 kv_heads) size)
  T *keys, *values;  // as in AttendText
  int64_t rows, heads, kv_heads, size;
  int64_t length, capacity;
};

// Stores the key and value of each row's next position, and attends to all positions so far.
template <class T>
struct AttendText {
  static constexpr const char* kName = "attend_text";
  const T* qkv;      // (rows, (heads + 2 kv_heads) size)
  T *keys, *values;  // (rows * kv_heads, capacity / kPanel, size, kPanel) and (rows * kv_heads, capacity, size)
  T* y;              // (rows, heads size)
  int64_t rows, heads, kv_heads, size;
  int64_t length, capacity;  // stored positions, and memory for them
};

}  // namespace lmx::ops

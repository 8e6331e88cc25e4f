// Memory by class as text, the same in errors, in the log of a run and in estimates.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "lmx/tensor.h"

namespace lmx {

using NamedBytes = std::pair<const char*, int64_t>;

// "parameters 1.0 GB, gradients 500 MB": the classes that have bytes, in the given order; "" if none has.
std::string class_text(std::span<const NamedBytes> classes);
// The same of an allocator's classes.
std::string class_text(const std::array<int64_t, kMemClasses>& bytes);
// "3.1 GB: parameters 1.0 GB, ...": the peak of all classes together, then that of each class.
std::string peak_text(const MemoryStats& stats);

// The advice of every message about a lack of memory.
inline constexpr const char* kMemoryRemedy =
    "A smaller batch.micro or batch.global reduces the activations, a smaller model everything else";

}  // namespace lmx

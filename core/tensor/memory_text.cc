#include "tensor/memory_text.h"

#include "base/text.h"
#include "lmx/error.h"

namespace lmx {

std::string class_text(std::span<const NamedBytes> classes) {
  std::string text;
  for (const auto& [name, bytes] : classes)
    if (bytes > 0) text += str(text.empty() ? "" : ", ", name, " ", bytes_text(bytes));
  return text;
}

std::string class_text(const std::array<int64_t, kMemClasses>& bytes) {
  std::array<NamedBytes, kMemClasses> classes;
  for (size_t c = 0; c < classes.size(); ++c) classes[c] = {name_of(static_cast<MemClass>(c)), bytes[c]};
  return class_text(classes);
}

std::string peak_text(const MemoryStats& stats) {
  const std::string classes = class_text(stats.peak);
  return str(bytes_text(stats.total_peak), classes.empty() ? "" : ": ", classes);
}

}  // namespace lmx

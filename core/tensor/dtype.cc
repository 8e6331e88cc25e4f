#include "lmx/dtype.h"

#include <array>
#include <string>
#include <vector>

#include "lmx/error.h"

namespace lmx {
namespace {

struct Row {
  std::string_view name;
  size_t size;
};
constexpr std::array<Row, 7> kTypes{
    {{"f64", 8}, {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i32", 4}, {"i64", 8}, {"u8", 1}}};

}  // namespace

size_t size_of(DType type) {
  return kTypes[static_cast<size_t>(type)].size;
}

std::string_view name_of(DType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

DType dtype_from_name(std::string_view name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<DType>(i);
    names.emplace_back(kTypes[i].name);
  }
  throw UserError(str("[tensor] unknown element type '", name, "'", did_you_mean(name, names)));
}

}  // namespace lmx

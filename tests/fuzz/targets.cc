#include "targets.h"

namespace lmx::fuzz {

const std::vector<Target>& targets() {
  static const std::vector<Target> all{
      {"yaml", yaml},     {"override", override_text}, {"interpolation", interpolation}, {"manifest", manifest},
      {"fields", fields}, {"metrics", metrics},        {"checkpoint", checkpoint},       {"journal", journal}};
  return all;
}

}  // namespace lmx::fuzz

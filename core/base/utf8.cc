#include "base/utf8.h"

#include <utf8proc.h>

namespace lmx {

size_t code_point_at(std::string_view text, size_t at, char32_t& code) {
  utf8proc_int32_t found = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                      static_cast<utf8proc_ssize_t>(text.size() - at), &found);
  code = static_cast<char32_t>(found);
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

size_t find_invalid_utf8(std::string_view text) {
  return for_each_code_point(text, [](size_t, char32_t) {});
}

}  // namespace lmx

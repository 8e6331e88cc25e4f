#include "app/print/terminal_text.h"

#include <cstdio>

#include "base/utf8.h"

namespace lmx {

std::string terminal_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    char32_t code = 0;
    const size_t bytes = code_point_at(text, at, code);
    const bool c0 = code < 0x20 && code != U'\n' && code != U'\t', c1 = code >= 0x7F && code < 0xA0;
    if (bytes > 0 && !c0 && !c1) {
      out += text.substr(at, bytes);
      at += bytes;
      continue;
    }
    for (size_t end = at + (bytes > 0 ? bytes : 1); at < end; ++at) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text[at])));
      out += escape;
    }
  }
  return out;
}

}  // namespace lmx

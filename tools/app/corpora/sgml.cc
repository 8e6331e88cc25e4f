#include "app/corpora/sgml.h"

#include "app/text/html.h"
#include "lmx/error.h"

namespace lmx::data {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

// Ignores case, because some sets have tags in lower case, others in upper case.
size_t find_tag(std::string_view text, std::string_view tag, size_t from) {
  for (size_t at = from; (at = text.find('<', at)) != std::string_view::npos; ++at) {
    size_t same = 0;
    while (same < tag.size() && at + same < text.size() && (text[at + same] | 0x20) == (tag[same] | 0x20)) ++same;
    const bool whole =
        at + same < text.size() && (kSpaces.find(text[at + same]) != std::string_view::npos || text[at + same] == '>');
    if (same == tag.size() && whole) return at;
  }
  return std::string_view::npos;
}

std::string squeezed(std::string_view text) {
  std::string out;
  for (size_t at = 0; (at = text.find_first_not_of(kSpaces, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    if (!out.empty()) out.push_back(' ');
    out.append(text.substr(at, end - at));
    at = end;
  }
  return out;
}

}  // namespace

std::string lines_of_segments(std::string_view sgml, const std::string& name) {
  std::string lines;
  int64_t segments = 0;
  for (size_t at = 0; (at = find_tag(sgml, "<seg", at)) != std::string_view::npos; ++segments) {
    const size_t begin = sgml.find('>', at), end = find_tag(sgml, "</seg", at), next = find_tag(sgml, "<seg", at + 1);
    if (begin == std::string_view::npos || end == std::string_view::npos || end > next)
      throw UserError(str(name, ": segment ", segments + 1, " has no end, `</seg>`"));
    lines += squeezed(unescape_html(sgml.substr(begin + 1, end - begin - 1))) + "\n";
    at = end;
  }
  if (segments == 0) throw UserError(str(name, " holds no segments, `<seg id=...>`; is it WMT's SGML?"));
  return lines;
}

}  // namespace lmx::data

// The little of HTML that reviews hold: tags and character references.
#pragma once

#include <string>
#include <string_view>

namespace lmx::data {

// Each shortest `<...>` without a line end inside becomes a space.
std::string without_tags(std::string_view text);

// `&amp;` `&#233;` `&#xE9;` `&eacute` as characters, by the rules of HTML 5: numbers with or without a semicolon, names
// of HTML 4 (and `&apos;`) with one, those of Latin-1 and `&amp &lt &gt &quot` also without. Others stay as they are.
std::string unescape_html(std::string_view text);

}  // namespace lmx::data

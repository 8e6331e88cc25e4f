// Handles the part of HTML that occurs in reviews: tags and character references.
#pragma once

#include <string>
#include <string_view>

namespace lmx::data {

// Replaces each shortest `<...>` without a line end by a space.
std::string without_tags(std::string_view text);

// Replaces `&amp;` `&#233;` `&#xE9;` `&eacute` by characters, according to HTML 5: numbers with or without a semicolon;
// names of HTML 4 (and `&apos;`) with one, those of Latin-1 and `&amp &lt &gt &quot` also without. Others stay
// unchanged.
std::string unescape_html(std::string_view text);

}  // namespace lmx::data

// Pages that show Markdown and charts in a browser.
#pragma once

#include <string>
#include <vector>

namespace lmx_cli {

// A page for a browser that needs no other file: `markdown`, which consists of headings `# `, tables as of
// markdown_table(), lines `- ` of lists, paragraphs, `**`, `*` and backquotes, and below it `images`, which are SVG.
std::string html_page(const std::string& title, const std::string& markdown, const std::vector<std::string>& images);

}  // namespace lmx_cli

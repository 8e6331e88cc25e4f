// The files of page/, made into constants by tools/cmake/LmxEmbed.cmake.
#pragma once

namespace lmx_cli::reports::assets {

extern const char* const page_html;
extern const char* const style_css;
extern const char* const charts_js;
extern const char* const bars_js;
extern const char* const page_js;

}  // namespace lmx_cli::reports::assets

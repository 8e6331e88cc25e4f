// The files of page/, made into constants by tools/cmake/LmxEmbed.cmake.
#pragma once

namespace lmx_cli::reports::assets {

extern const char* const page_html;
extern const char* const style_css;
extern const char* const base_js;
extern const char* const metrics_js;
extern const char* const figure_js;
extern const char* const curves_js;
extern const char* const bars_js;
extern const char* const sweep_js;
extern const char* const tables_js;
extern const char* const page_js;

}  // namespace lmx_cli::reports::assets

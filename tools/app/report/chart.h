// Charts as SVG files for a browser (curves, points with their spread, bars), and pages that show Markdown and charts.
#pragma once

#include <string>
#include <vector>

namespace lmx::app {

struct ChartPoint {
  double x = 0, y = 0;
  double spread = 0;  // drawn as a bar of y ± spread
  std::string hint;   // shown under the mouse
};

struct ChartSeries {
  std::string label;
  std::vector<ChartPoint> points;
  bool dots = true, line = true, dashed = false;
};

struct Chart {
  std::string title, x_title, y_title;
  bool log_x = false, log_y = false;
  std::vector<ChartSeries> series;
  // Names along x. If it is not empty, point i of a series is its bar over name i.
  std::vector<std::string> names;
};

// Escapes `text` for an XML or HTML element, or for an attribute in single quotes.
std::string escaped(const std::string& text);

// Draws the chart. Points that an axis cannot show (not finite; not positive on a logarithmic axis) are left out.
std::string svg(const Chart& chart);

// A page for a browser that needs no other file, in the style of lmx's pages without scripts. In a table of class
// `values` numbers are right-aligned, and a row of class `out` is red.
std::string html_document(const std::string& title, const std::string& body);

// Such a page with `markdown` and, below it, `images`, which are SVG. The Markdown consists of headings `# `, tables as
// of markdown_table(), lines `- ` of lists, paragraphs, `**`, `*` and backquotes.
std::string html_page(const std::string& title, const std::string& markdown, const std::vector<std::string>& images);

}  // namespace lmx::app

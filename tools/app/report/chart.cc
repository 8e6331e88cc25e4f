#include "app/report/chart.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

constexpr double kWidth = 760, kHeight = 480, kLeft = 84, kRight = 24, kTop = 48, kBottom = 60, kLegendLine = 17;
// People with red-green colour blindness can distinguish these colours (Okabe and Ito).
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};

const char* colour(size_t i) {
  return kColours[i % std::size(kColours)];
}

std::string tick_text(double value) {
  const double size = std::fabs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) {
    const int exponent = static_cast<int>(std::floor(std::log10(size) + 1e-9));
    const std::string factor = format("%.3g", value / std::pow(10.0, exponent));
    return str(factor == "1" ? "" : factor + "·", "10<tspan dy='-5' font-size='9'>", exponent, "</tspan>");
  }
  return format("%.6g", value);
}

// One axis: its range on the drawn scale (the value or its log10), and the positions of ticks.
struct Scale {
  bool log = false;
  double low = 0, high = 1, from = 0, to = 1;  // from, to: in the picture
  std::vector<double> ticks;                   // values

  bool shows(double value) const { return std::isfinite(value) && (!log || value > 0); }
  double place(double value) const {
    return from + ((log ? std::log10(value) : value) - low) / (high - low) * (to - from);
  }
  void fit(std::vector<double> values, bool from_zero) {
    std::erase_if(values, [&](double v) { return !shows(v); });
    if (values.empty()) values = {1, 2};
    low = *std::min_element(values.begin(), values.end());
    high = *std::max_element(values.begin(), values.end());
    if (from_zero && !log) low = std::min(low, 0.0);
    log ? fit_decades() : fit_steps();
  }
  void fit_decades() {
    low = std::log10(low);
    high = std::log10(high);
    if (high - low < 1.5) {  // less than two decades: ticks at 1, 2, 5
      const double margin = std::max(0.04, 0.06 * (high - low));
      low -= margin;
      high += margin;
      for (int e = static_cast<int>(std::floor(low)); e <= static_cast<int>(std::ceil(high)); ++e)
        for (const double m : {1.0, 2.0, 5.0})
          if (const double t = m * std::pow(10.0, e); std::log10(t) >= low && std::log10(t) <= high) ticks.push_back(t);
      return;
    }
    low = std::floor(low);
    high = std::ceil(high);
    for (double e = low; e <= high; ++e) ticks.push_back(std::pow(10.0, e));
  }
  void fit_steps() {
    if (high <= low) high = low + (low == 0 ? 1 : std::fabs(low));
    const double rough = (high - low) / 6, unit = std::pow(10.0, std::floor(std::log10(rough)));
    const double step = unit * (rough / unit < 1.5 ? 1 : rough / unit < 3.5 ? 2 : rough / unit < 7.5 ? 5 : 10);
    low = std::floor(low / step) * step;
    high = std::ceil(high / step) * step;
    for (double t = low; t <= high + step / 2; t += step) ticks.push_back(std::fabs(t) < step / 2 ? 0 : t);
  }
};

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    x_ = {chart.log_x, 0, 1, kLeft, kWidth - kRight, {}};
    y_ = {chart.log_y, 0, 1, kHeight - kBottom, kTop, {}};
    std::vector<double> xs, ys;
    for (const ChartSeries& s : chart.series) {
      for (const ChartPoint& p : s.points) {
        xs.push_back(p.x);
        ys.insert(ys.end(), {p.y, p.y - p.spread, p.y + p.spread});
      }
    }
    if (chart.names.empty()) x_.fit(xs, false);
    y_.fit(ys, !chart.names.empty());
    svg_ << std::fixed << std::setprecision(2);
  }

  std::string draw() {
    svg_ << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " << kWidth << ' ' << kHeight << "' width='" << kWidth
         << "' height='" << kHeight << "' font-family='sans-serif' font-size='12'>\n"
         << "<style>.grid{stroke:#ddd}text{fill:#333}</style><rect width='100%' height='100%' fill='white'/>\n"
         << "<text x='" << kLeft << "' y='26' font-size='15'>" << escaped(chart_.title) << "</text>\n";
    grid();
    for (size_t i = 0; i < chart_.series.size(); ++i) chart_.names.empty() ? curve(i) : bars(i);
    legend();
    svg_ << "</svg>\n";
    return svg_.str();
  }

 private:
  void text(double x, double y, const char* anchor, const std::string& content) {
    svg_ << "<text x='" << x << "' y='" << y << "' text-anchor='" << anchor << "'>" << content << "</text>\n";
  }
  void line(const std::string& style, double x1, double y1, double x2, double y2) {
    svg_ << "<line " << style << " x1='" << x1 << "' y1='" << y1 << "' x2='" << x2 << "' y2='" << y2 << "'/>\n";
  }

  void grid() {
    for (const double t : x_.ticks) {
      line("class='grid'", x_.place(t), kTop, x_.place(t), kHeight - kBottom);
      text(x_.place(t), kHeight - kBottom + 18, "middle", tick_text(t));
    }
    for (size_t i = 0; i < chart_.names.size(); ++i)
      text(name_place(static_cast<double>(i) + 0.5), kHeight - kBottom + 18, "middle", escaped(chart_.names[i]));
    for (const double t : y_.ticks) {
      line("class='grid'", kLeft, y_.place(t), kWidth - kRight, y_.place(t));
      text(kLeft - 8, y_.place(t) + 4, "end", tick_text(t));
    }
    text((kLeft + kWidth - kRight) / 2, kHeight - 16, "middle", escaped(chart_.x_title));
    svg_ << "<text transform='translate(20 " << kHeight / 2 << ") rotate(-90)' text-anchor='middle'>"
         << escaped(chart_.y_title) << "</text>\n";
  }

  double name_place(double position) const {
    return kLeft + position * (kWidth - kLeft - kRight) / static_cast<double>(chart_.names.size());
  }

  bool visible(const ChartPoint& p) const { return x_.shows(p.x) && y_.shows(p.y); }

  // Whether an earlier series has the same colour.
  static bool is_dotted(size_t index) { return index >= std::size(kColours); }

  void curve(size_t index) {
    const ChartSeries& s = chart_.series[index];
    const char* dashes = s.dashed ? "6 4" : is_dotted(index) ? "2 3" : "none";
    const std::string stroke = str("stroke='", colour(index), "' stroke-width='1.6' stroke-dasharray='", dashes, "'");
    if (s.line) {
      svg_ << "<polyline fill='none' " << stroke << " points='";
      for (const ChartPoint& p : s.points)
        if (visible(p)) svg_ << x_.place(p.x) << ',' << y_.place(p.y) << ' ';
      svg_ << "'/>\n";
    }
    for (const ChartPoint& p : s.points) {
      if (!visible(p)) continue;
      whisker(x_.place(p.x), p, colour(index));
      if (!s.dots) continue;
      svg_ << "<circle cx='" << x_.place(p.x) << "' cy='" << y_.place(p.y) << "' r='3.5' fill='" << colour(index)
           << "'>" << hint(p) << "</circle>\n";
    }
  }

  void bars(size_t index) {
    const double parts = static_cast<double>(chart_.series.size()) + 0.6;
    for (size_t i = 0; i < chart_.series[index].points.size() && i < chart_.names.size(); ++i) {
      const ChartPoint& p = chart_.series[index].points[i];
      if (!y_.shows(p.y)) continue;
      const double left = name_place(static_cast<double>(i) + (static_cast<double>(index) + 0.3) / parts);
      const double right = name_place(static_cast<double>(i) + (static_cast<double>(index) + 1.3) / parts);
      svg_ << "<rect x='" << left << "' y='" << y_.place(p.y) << "' width='" << std::max(1.0, right - left - 2)
           << "' height='" << kHeight - kBottom - y_.place(p.y) << "' fill='" << colour(index) << "'>" << hint(p)
           << "</rect>\n";
      whisker((left + right) / 2, p, "#333");
    }
  }

  void whisker(double x, const ChartPoint& p, const char* stroke) {
    if (p.spread > 0 && y_.shows(p.y - p.spread))
      line(str("stroke='", stroke, "' stroke-width='1'"), x, y_.place(p.y - p.spread), x, y_.place(p.y + p.spread));
  }

  static std::string hint(const ChartPoint& p) {
    return p.hint.empty() ? "" : "<title>" + escaped(p.hint) + "</title>";
  }

  // Puts the legend into the corner with fewer points.
  void legend() {
    size_t left = 0, right = 0;
    for (const ChartSeries& s : chart_.series)
      for (const ChartPoint& p : s.points)
        if (visible(p) && y_.place(p.y) < (kTop + kHeight - kBottom) / 2)
          (x_.place(p.x) < (kLeft + kWidth - kRight) / 2 ? left : right) += 1;
    const bool at_right = chart_.names.empty() ? right < left : true;
    const double x = at_right ? kWidth - kRight - 14 : kLeft + 16;
    for (size_t i = 0; i < chart_.series.size(); ++i)
      svg_ << "<text x='" << x << "' y='" << kTop + 20 + kLegendLine * static_cast<double>(i) << "' text-anchor='"
           << (at_right ? "end" : "start") << "' style='fill:" << colour(i) << "'>" << escaped(chart_.series[i].label)
           << (is_dotted(i) && chart_.series[i].line ? " (dotted)" : "") << "</text>\n";
  }

  const Chart& chart_;
  Scale x_, y_;
  std::ostringstream svg_;
};

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text)
    safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '\'' ? "&#39;" : std::string(1, c);
  return safe;
}

std::string svg(const Chart& chart) {
  return Drawing(chart).draw();
}

namespace {

// The fonts and colours of the report page (page/style.css).
constexpr const char* kStyle =
    "body{font:14px/1.45 system-ui,'Segoe UI','DejaVu Sans',sans-serif;margin:0 auto;max-width:1100px;"
    "padding:1rem 1rem 3rem;color:#1b1f24;background:#fff}h1{font-size:1.35rem}"
    "h2{font-size:1.08rem;margin:1.8rem 0 .5rem;border-bottom:1px solid #d8dde3;padding-bottom:.25rem}"
    "table{border-collapse:collapse;display:block;overflow-x:auto;margin:1rem 0;font-variant-numeric:tabular-nums}"
    "td,th{border-bottom:1px solid #d8dde3;padding:.18rem .8rem .18rem 0;text-align:left;vertical-align:top}"
    "th{color:#5d6672}.values td,.values th{text-align:right;white-space:nowrap}.out{color:#b3261e}"
    "pre{background:#f6f7f9;padding:.7rem 1rem;overflow-x:auto}svg{max-width:100%;height:auto}"
    "@media screen and (prefers-color-scheme:dark){body{color:#e6e9ed;background:#14171b}pre{background:#1c2127}"
    "h2,td,th{border-color:#343b44}th{color:#9aa4b0}.out{color:#ff8a80}svg{background:#fff}}";

// The text of a line, in which a pair of `mark` becomes an element. A mark beside a blank, such as a product's, stays.
std::string with_element(std::string text, const std::string& mark, const std::string& name) {
  for (size_t from = 0; (from = text.find(mark, from)) != std::string::npos;) {
    const size_t begin = from + mark.size(), end = text.find(mark, begin);
    if (end == std::string::npos) break;
    if (end == begin || text[begin] == ' ' || text[end - 1] == ' ') {
      from = begin;
      continue;
    }
    const std::string inner = text.substr(begin, end - begin);
    const std::string element = "<" + name + ">" + inner + "</" + name + ">";
    text.replace(from, end + mark.size() - from, element);
    from += element.size();
  }
  return text;
}
std::string inline_html(const std::string& text) {
  return with_element(with_element(with_element(escaped(text), "**", "b"), "*", "em"), "`", "code");
}

// The cells of a line of a table; `\\|` is part of a cell.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::string cell;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
      cell += line[++i];
    } else if (line[i] == '|') {
      cells.push_back(cell);
      cell.clear();
    } else {
      cell += line[i];
    }
  }
  return cells;
}
std::string row_html(const std::string& line, const std::string& element) {
  std::string html = "<tr>";
  for (const std::string& cell : cells_of(line)) html += "<" + element + ">" + inline_html(cell) + "</" + element + ">";
  return html + "</tr>\n";
}

// The element that holds a line of Markdown, without its end; "" for a blank line.
std::string block_of(const std::string& line) {
  if (line.starts_with("|")) return "table";
  if (line.starts_with("- ")) return "ul";
  return line.empty() ? "" : line.starts_with("# ") ? "h1" : "p";
}

std::string body_html(const std::string& markdown) {
  std::istringstream lines(markdown);
  std::string html, open;
  size_t row = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string block = block_of(line);
    if (block != open || block == "h1") {
      if (!open.empty()) html += "</" + open + ">\n";
      if (!block.empty()) html += "<" + block + ">";
      open = block;
      row = 0;
    }
    if (block == "table") {
      if (row != 1) html += row_html(line, row == 0 ? "th" : "td");
      ++row;
    } else if (block == "ul") {
      html += "<li>" + inline_html(line.substr(2)) + "</li>\n";
    } else if (!block.empty()) {
      html += inline_html(block == "h1" ? line.substr(2) : line) + "\n";
    }
  }
  return html + (open.empty() ? "" : "</" + open + ">\n");
}

}  // namespace

std::string html_document(const std::string& title, const std::string& body) {
  return "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
         "<meta name='viewport' content='width=device-width'><title>" +
         escaped(title) + "</title>\n<style>" + kStyle + "</style></head>\n<body>\n" + body + "</body></html>\n";
}

std::string html_page(const std::string& title, const std::string& markdown, const std::vector<std::string>& images) {
  std::string body = body_html(markdown);
  for (const std::string& image : images) body += "<p>" + image + "</p>\n";
  return html_document(title, body);
}

}  // namespace lmx::app

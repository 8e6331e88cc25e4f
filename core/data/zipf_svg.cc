// The plot of `lmx data stats`.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "lmx/error.h"
#include "lmx/zipf.h"

namespace lmx {
namespace {

constexpr double kWidth = 720, kHeight = 480, kLeft = 80, kRight = 24, kTop = 48, kBottom = 56;
constexpr double kPaperExponent = 0.64;

// Whole decades around the data on both axes.
struct Axes {
  double x_low, x_high, y_low, y_high;  // log10
  double x(double tokens) const {
    return kLeft + (std::log10(tokens) - x_low) / (x_high - x_low) * (kWidth - kLeft - kRight);
  }
  double y(double types) const {
    return kHeight - kBottom - (std::log10(types) - y_low) / (y_high - y_low) * (kHeight - kTop - kBottom);
  }
};

std::string escape(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else
      safe += c;
  }
  return safe;
}

std::string power_of_ten(int exponent) {
  return str("10<tspan dy='-5' font-size='9'>", exponent, "</tspan>");
}

void draw_grid(std::ostream& svg, const Axes& axes) {
  for (int e = static_cast<int>(axes.x_low); e <= static_cast<int>(axes.x_high); ++e) {
    const double x = axes.x(std::pow(10.0, e));
    svg << "<line class='grid' x1='" << x << "' y1='" << kTop << "' x2='" << x << "' y2='" << kHeight - kBottom << "'/>"
        << "<text x='" << x << "' y='" << kHeight - kBottom + 18 << "' text-anchor='middle'>" << power_of_ten(e)
        << "</text>\n";
  }
  for (int e = static_cast<int>(axes.y_low); e <= static_cast<int>(axes.y_high); ++e) {
    const double y = axes.y(std::pow(10.0, e));
    svg << "<line class='grid' x1='" << kLeft << "' y1='" << y << "' x2='" << kWidth - kRight << "' y2='" << y << "'/>"
        << "<text x='" << kLeft - 8 << "' y='" << y + 4 << "' text-anchor='end'>" << power_of_ten(e) << "</text>\n";
  }
  svg << "<text x='" << (kLeft + kWidth - kRight) / 2 << "' y='" << kHeight - 14
      << "' text-anchor='middle'>tokens N</text>\n<text transform='translate(22 " << kHeight / 2
      << ") rotate(-90)' text-anchor='middle'>unique words U</text>\n";
}

void draw_law(std::ostream& svg, const Axes& axes, const PowerLaw& law, double from, double to, const char* style) {
  svg << "<line " << style << " x1='" << axes.x(from) << "' y1='" << axes.y(law.at(from)) << "' x2='" << axes.x(to)
      << "' y2='" << axes.y(law.at(to)) << "'/>\n";
}

}  // namespace

std::string zipf_svg(std::span<const TypesAtTokens> points, const PowerLaw& fit, const std::string& title) {
  LMX_CHECK(!points.empty(), "nothing to plot");
  const auto first = static_cast<double>(points.front().tokens), last = static_cast<double>(points.back().tokens);
  PowerLaw paper;
  paper.exponent = kPaperExponent;
  paper.factor = points.front().types / std::pow(first, kPaperExponent);
  const double highest = std::max({points.back().types, fit.at(last), paper.at(last)});
  const double lowest = std::min({points.front().types, fit.at(first), paper.at(first)});
  const Axes axes{std::floor(std::log10(first)), std::ceil(std::log10(last)), std::floor(std::log10(lowest)),
                  std::max(std::ceil(std::log10(highest)), std::floor(std::log10(lowest)) + 1)};
  std::ostringstream svg;
  svg << std::fixed << std::setprecision(2);
  svg << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " << kWidth << ' ' << kHeight << "' width='" << kWidth
      << "' height='" << kHeight << "' font-family='sans-serif' font-size='12'>\n"
      << "<style>.grid{stroke:#ddd}text{fill:#333}</style><rect width='100%' height='100%' fill='white'/>\n"
      << "<text x='" << kLeft << "' y='26' font-size='15'>" << escape(title) << "</text>\n";
  draw_grid(svg, axes);
  draw_law(svg, axes, paper, first, last, "stroke='#c60' stroke-dasharray='6 4' stroke-width='1.5'");
  draw_law(svg, axes, fit, first, last, "stroke='#06c' stroke-width='1.5'");
  for (const TypesAtTokens& p : points) {
    svg << "<circle cx='" << axes.x(static_cast<double>(p.tokens)) << "' cy='" << axes.y(p.types)
        << "' r='4' fill='#06c'><title>N " << p.tokens << ", U " << p.types << "</title></circle>\n";
  }
  const double legend = kTop + 22;
  svg << "<text x='" << kLeft + 16 << "' y='" << legend << "' style='fill:#06c'>measured, fit U = " << fit.factor
      << " N^" << std::setprecision(3) << fit.exponent << "</text>\n"
      << "<text x='" << kLeft + 16 << "' y='" << legend + 18
      << "' style='fill:#c60'>N^0.64 (Patwary et al. 2018) through the first point</text>\n"
      << "</svg>\n";
  return svg.str();
}

}  // namespace lmx

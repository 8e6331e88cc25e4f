#include "app/report/page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "app/report/chart.h"
#include "lmx/error.h"

namespace lmx_cli::reports {
namespace {

constexpr size_t kPageBytes = 2'000'000;  // limit of the page
// Bytes for curves that normally leave enough room for scripts, configurations and the other data.
constexpr size_t kCurveBytes = 1'200'000;
constexpr size_t kBytesOfPoint = 15;  // a step of five digits, a value of six digits, two commas
constexpr size_t kMostPoints = 2000, kFewestPoints = 8;

size_t points_of_curve(const std::vector<std::vector<Curve>>& curves) {
  size_t all = 1;
  for (const std::vector<Curve>& run : curves) all += run.size() + 4;
  return std::clamp(kCurveBytes / kBytesOfPoint / all, kFewestPoints, kMostPoints);
}

// Returns the indices of the runs, the best first and those without a value last.
std::vector<size_t> best_first(const Listed& listed) {
  const Comparison c = compare(listed);
  std::vector<size_t> order(listed.runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const double x = c.values[a], y = c.values[b];
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return c.lower_is_better ? x < y : x > y;
  });
  return order;
}

// A text inside <script> must not contain "</script" or "<!--".
std::string script_text(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return text;
}

// The extent of the data in a page: the maximum number of points per curve, and which runs have curves.
struct Extent {
  size_t points = 0;
  std::vector<bool> whole;
  size_t count = 0;  // number of runs with curves
};

// Returns a note about the left out data; "" if nothing is left out.
std::string left_out(const Extent& extent, const Listed& listed) {
  if (extent.count == extent.whole.size()) return listed.best;
  return lmx::str(listed.best, listed.best.empty() ? "" : " ", "Curves, memory, bytes and provenance are those of the ",
                  extent.count, " best of ", extent.whole.size(), " runs by ",
                  listed.sweep ? listed.sweep->metric : "validation perplexity",
                  ": there is no room for more below 2 MB. lmx report RUN shows any one.");
}

// Returns the page's data. Reduces the points per curve, then the number of runs with curves, until the data has at
// most `limit` bytes or no run has curves.
std::string fitting_data(const std::string& title, const Listed& listed, size_t limit) {
  const auto& runs = listed.runs;
  std::vector<std::vector<Curve>> curves;
  for (const Report* r : runs) curves.push_back(curves_of(r->records));
  Extent extent{points_of_curve(curves), std::vector<bool>(runs.size(), true), runs.size()};
  const std::vector<size_t> order = best_first(listed);
  const Json config = config_table(listed), comparison = comparison_json(listed, compare(listed));
  for (;;) {
    Json data{{"format", 2},
              {"title", title},
              {"left_out", left_out(extent, listed)},
              {"comparison", comparison},
              {"runs", Json::array()}};
    for (size_t i = 0; i < runs.size(); ++i)
      data["runs"].push_back(extent.whole[i] ? run_json(*runs[i], curves[i], extent.points) : brief_json(*runs[i]));
    data["sweep"] = listed.sweep ? sweep_json(*listed.sweep) : Json(nullptr);
    data["config"] = config;
    std::string text = script_text(data);
    if (text.size() <= limit || extent.count == 0) return text;
    if (extent.points > kFewestPoints) {
      extent.points = std::max(kFewestPoints, extent.points / 2);
      continue;
    }
    const size_t fewer = extent.count * 3 / 4;
    while (extent.count > fewer) extent.whole[order[--extent.count]] = false;
  }
}

// Returns the `most` best runs. For a sweep, also returns the points of these runs and, up to `most`, points without a
// run.
Listed best_of(const Listed& all, size_t most) {
  Listed best;
  std::vector<size_t> order = best_first(all);
  order.resize(std::min(order.size(), most));
  std::sort(order.begin(), order.end());
  std::vector<int64_t> place(all.runs.size(), -1);
  for (const size_t i : order) {
    place[i] = static_cast<int64_t>(best.runs.size());
    best.runs.push_back(all.runs[i]);
  }
  if (!all.sweep) return best;
  best.sweep = all.sweep;
  best.sweep->points.clear();
  size_t room = most - order.size();
  for (SweepView::Point p : all.sweep->points) {
    if (p.run < 0 ? room == 0 : place[static_cast<size_t>(p.run)] < 0) continue;
    if (p.run < 0)
      --room;
    else
      p.run = place[static_cast<size_t>(p.run)];
    best.sweep->points.push_back(std::move(p));
  }
  for (size_t a = 0; a < best.sweep->axes.size(); ++a) {
    std::set<std::string> used;
    for (const SweepView::Point& p : best.sweep->points) used.insert(p.place[a]);
    std::erase_if(best.sweep->axes[a].values, [&](const std::string& v) { return !used.contains(v); });
  }
  return best;
}

// If there are very many runs with long values, not even names and values fit. Then the page only contains the best
// runs.
std::string fitting_best(const std::string& title, const Listed& all, size_t limit) {
  std::string text = fitting_data(title, all, limit);
  const size_t count = all.sweep ? all.sweep->points.size() : all.runs.size();
  for (size_t most = count; text.size() > limit && most > 1;) {
    most = std::max<size_t>(1, static_cast<size_t>(0.9 * static_cast<double>(most) * static_cast<double>(limit) /
                                                   static_cast<double>(text.size())));
    Listed best = best_of(all, most);
    best.best = lmx::str("Of ", count, all.sweep ? " points" : " runs", " the ", most, " best are here.");
    text = fitting_data(title, best, limit);
  }
  return text;
}

// Concatenates the scripts so that each comes after those it uses.
std::string scripts() {
  return std::string(assets::base_js) + assets::metrics_js + assets::figure_js + assets::curves_js + assets::bars_js +
         assets::sweep_js + assets::tables_js + assets::page_js;
}

size_t bytes_without_data(const std::string& title) {
  size_t bytes = 2 * escaped(title).size();
  for (const char* part : {assets::page_html, assets::style_css}) bytes += std::string_view(part).size();
  return bytes + scripts().size();
}

void put_in_place(std::string& text, const std::string& mark, const std::string& what) {
  text.replace(text.find(mark), mark.size(), what);
}

}  // namespace

std::string page(const std::string& title, const std::vector<Report>& runs, const SweepView* sweep, int64_t refresh_s) {
  Listed all;
  for (const Report& r : runs) all.runs.push_back(&r);
  if (sweep) all.sweep = *sweep;
  const std::string data = fitting_best(title, all, kPageBytes - bytes_without_data(title));
  std::string text = assets::page_html;
  put_in_place(text, "{{title}}", escaped(title));
  put_in_place(text, "{{refresh}}",
               refresh_s > 0 ? lmx::str("\n<meta http-equiv=\"refresh\" content=\"", refresh_s, "\">") : "");
  put_in_place(text, "{{style}}", assets::style_css);
  put_in_place(text, "{{script}}", scripts());
  put_in_place(text, "{{data}}", data);  // last: it may contain any text, also a mark
  return text;
}

}  // namespace lmx_cli::reports

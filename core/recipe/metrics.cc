#include "recipe/metrics.h"

#include <algorithm>

#include "config/messages.h"
#include "lmx/error.h"

namespace lmx {

Metric::~Metric() = default;

namespace {

bool is_label(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// The entries of `metric:`, none if the recipe has none.
const std::vector<std::pair<std::string, Node>>& entries_of(const Node& config, const std::string& path) {
  static const std::vector<std::pair<std::string, Node>> none;
  if (config.kind == Node::Kind::null) return none;
  const std::string example = "metrics by label: {LABEL: {name: PLUGIN}}";
  if (config.kind != Node::Kind::map) throw UserError(str(config::at(config.mark, path), "expected ", example));
  for (const auto& [label, entry] : config.entries) {
    const std::string place = config::at(entry.mark, config::join_path(path, label));
    if (entry.kind != Node::Kind::map) throw UserError(str(place, "expected ", example));
    if (!is_label(label))
      throw UserError(str(place, "'", label, "' begins the names of records; choose small letters, digits and _"));
  }
  return config.entries;
}

}  // namespace

Metrics::Metrics(const Node& config, const std::string& path) {
  for (const auto& [label, entry] : entries_of(config, path)) {
    const std::string where = config::join_path(path, label);
    const PluginInfo& plugin = Registry::instance().find(PluginKind::metric, entry, where);
    auto metric = create<MetricFactory>(plugin, entry, where);
    if (!metric) throw UserError(str("[plugin] ", plugin.path, ": its factory returns no metric"));
    const auto words = in_plugin(plugin, "words()", [&] { return metric->words(); }),
               sums = in_plugin(plugin, "sums()", [&] { return metric->sums(); });
    LMX_CHECK(words >= 0 && sums >= 1, plugin.name, " needs ", words, " words and has ", sums, " sums");
    words_ = std::max(words_, words);
    sums_ += sums;
    all_.push_back({label, &plugin, std::move(metric), words, sums});
  }
}

void Metrics::add(const Prediction& prediction, std::span<double> sums) const {
  size_t first = 0;
  for (const One& one : all_) {
    const std::span<double> own = sums.subspan(first, static_cast<size_t>(one.sums));
    first += own.size();
    Prediction p = prediction;
    const size_t count = std::min(p.words.size(), static_cast<size_t>(one.words));
    p.words = p.words.first(count);
    p.probabilities = p.probabilities.first(count);
    in_plugin(*one.plugin, "add()", [&] { one.metric->add(p, own); });
  }
}

std::vector<std::pair<std::string, double>> Metrics::values(std::span<const double> sums, int64_t targets) const {
  std::vector<std::pair<std::string, double>> all;
  size_t first = 0;
  for (const One& one : all_) {
    const auto count = static_cast<size_t>(one.sums);
    const auto own =
        in_plugin(*one.plugin, "values()", [&] { return one.metric->values(sums.subspan(first, count), targets); });
    first += count;
    for (const auto& [name, value] : own) all.emplace_back(str(one.label, '/', name), value);
  }
  return all;
}

Node full_metric_config(const Node& config, const std::string& path) {
  Node all = Node::map(config.mark);
  for (const auto& [label, entry] : entries_of(config, path))
    all.set(label, full_component(PluginKind::metric, entry, config::join_path(path, label)));
  return all;
}

}  // namespace lmx

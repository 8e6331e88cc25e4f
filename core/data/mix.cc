#include "data/mix.h"

#include <algorithm>
#include <cmath>

#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::data {
namespace {

bool given(const Node* node) {
  return node && node->kind != Node::Kind::null;
}

std::vector<std::string> names_of(const Mix& mix) {
  std::vector<std::string> names;
  for (const MixPart& part : mix.parts) names.push_back(part.name);
  return names;
}

size_t find_part(const Mix& mix, const std::string& name, const Mark& mark, const std::string& path) {
  const std::vector<std::string> names = names_of(mix);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw UserError(str(config::at(mark, path), "there is no part '", name, "'", did_you_mean(name, names),
                        "; there are ", config::join(names)));
  return static_cast<size_t>(found - names.begin());
}

void check_part(const MixPart& part) {
  const PartConfig& c = part.config;
  const std::string at = config::at(part.mark, part.path);
  const bool two = !c.source_files.empty() || !c.target_files.empty();
  if (!c.corpus.empty() + two + !c.files.empty() != 1)
    throw UserError(at + "a part needs one of: `corpus`, `source_files` and `target_files`, TSV `files`");
  if (c.source_files.empty() != c.target_files.empty())
    throw UserError(at + (c.source_files.empty() ? "source_files is missing beside target_files"
                                                 : "target_files is missing beside source_files"));
  if (c.tsv_columns.size() != 2)
    throw UserError(str(at, "tsv_columns names ", c.tsv_columns.size(), " columns; two are needed"));
  if (c.max_ratio > 0 && c.max_ratio < 1)
    throw UserError(str(at, "max_ratio ", c.max_ratio, " would drop every pair; it is longer / shorter, at least 1"));
}

void read_ratio(const Node& ratio, Mix& mix) {
  if (ratio.kind != Node::Kind::map)
    throw UserError(config::at(ratio.mark, "data.ratio") +
                    "expected part: number, such as {main: 1, crawl: 4}, for one pair of main four of crawl");
  for (const auto& [name, node] : ratio.entries) {
    const std::string path = config::join_path("data.ratio", name);
    MixPart& part = mix.parts[find_part(mix, name, node.mark, path)];
    const auto value = node.kind == Node::Kind::scalar && !node.quoted ? parse_double(node.text) : std::nullopt;
    if (!value || !std::isfinite(*value) || *value <= 0)
      throw UserError(str(config::at(node.mark, path), "expected a number above 0, got ", config::describe_value(node),
                          "; leave a part out by taking it from data.parts"));
    part.ratio = *value;
  }
}

}  // namespace

int64_t Mix::draws(size_t part, int64_t defining_pairs) const {
  const double wanted = static_cast<double>(defining_pairs) * parts[part].ratio / parts[epoch_of].ratio;
  return std::max<int64_t>(1, std::llround(wanted));
}

Mix read_mix(const Node& data) {
  Mix mix;
  const Node *parts = data.find("parts"), *ratio = data.find("ratio"), *epoch_of = data.find("epoch_of");
  mix.parts.push_back({kMainPart, "data", data.mark, 1, {}});
  if (given(parts)) {
    if (parts->kind != Node::Kind::map)
      throw UserError(config::at(parts->mark, "data.parts") +
                      "expected texts by name, such as {crawl: {source_files: [a.en], target_files: [a.de]}}");
    for (const auto& [name, node] : parts->entries) {
      const std::string path = config::join_path("data.parts", name);
      if (name == kMainPart)
        throw UserError(config::at(node.mark, path) + "main is the text that data itself names; choose another name");
      mix.parts.push_back({name, path, node.mark, 1, read_config<PartConfig>(node, path)});
      check_part(mix.parts.back());
    }
  }
  if (given(ratio)) read_ratio(*ratio, mix);
  if (given(epoch_of)) mix.epoch_of = find_part(mix, epoch_of->text, epoch_of->mark, "data.epoch_of");
  if (mix.parts.size() == 1) mix.parts.clear();
  return mix;
}

void write_mix(const Mix& mix, Node& parts, Node& ratio) {
  if (mix.parts.empty()) return;
  parts = Node::map();
  ratio = Node::map();
  for (const MixPart& part : mix.parts) {
    if (part.name != kMainPart) parts.set(part.name, write_config(part.config));
    ratio.set(part.name, Node::scalar(config::double_text(part.ratio)));
  }
}

}  // namespace lmx::data

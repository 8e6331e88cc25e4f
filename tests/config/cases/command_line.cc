#include "cases/command_line.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "app/compose/override.h"
#include "config/messages.h"

namespace lmx::test {
namespace {

using config::split;

namespace fs = std::filesystem;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The file's text without its top-level section `hydra:`, which goes to `section`.
std::string without_hydra(const std::string& text, std::string& section) {
  std::string rest;
  bool inside = false;
  for (const std::string& line : split(text, '\n')) {
    const bool indented = line.empty() || line[0] == ' ' || (inside && (line[0] == '#' || line[0] == '-'));
    inside = line.starts_with("hydra:") || (inside && indented);
    (inside ? section : rest) += line + "\n";
  }
  if (rest.ends_with("\n\n")) rest.pop_back();
  return rest;
}

std::string text_at(const Node& node, const std::string& path, const std::string& otherwise) {
  const Node* there = node.at_path(path);
  return there && there->kind == Node::Kind::scalar ? there->text : otherwise;
}

void apply_settings(const Node& hydra, const std::string& folder, CommandLine& c) {
  c.multirun = c.multirun || text_at(hydra, "mode", "") == "MULTIRUN";
  c.names.job_name = text_at(hydra, "job.name", c.names.job_name);
  c.dirname.key_separator = text_at(hydra, "job.config.override_dirname.kv_sep", "=");
  c.dirname.item_separator = text_at(hydra, "job.config.override_dirname.item_sep", ",");
  if (const Node* keys = hydra.at_path("job.config.override_dirname.exclude_keys"))
    for (const Node& key : keys->items) c.dirname.exclude.push_back(key.text);
  if (const Node* params = hydra.at_path("sweeper.params"))
    for (const auto& [key, value] : params->entries)
      c.sweep_params.push_back(key + "=" + (value.quoted ? value.text : app::value_text(value)));
  if (const Node* path = hydra.find("searchpath")) {
    for (const Node& item : path->items) {
      constexpr std::string_view kFile = "file://";
      const std::string name = item.text.starts_with(kFile) ? item.text.substr(kFile.size()) : item.text;
      c.options.search_path.push_back((fs::path(folder) / name).string());
    }
  }
}

// `hydra.job.name=x` of the command line into the section.
void set_hydra(Node& hydra, const app::Override& o) {
  std::vector<std::string> parts = split(o.key, '.');
  Node* node = &hydra;
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    if (!node->find(parts[i])) node->set(parts[i], Node::map());
    node = node->find(parts[i]);
  }
  if (o.value) node->set(parts.back(), *o.value);
}

}  // namespace

CommandLine read_command_line(const std::vector<std::string>& args, const std::string& folder) {
  const std::map<std::string, std::string> short_names{
      {"-m", "--multirun"}, {"-cn", "--config-name"}, {"-cd", "--config-dir"}, {"-cp", "--config-path"},
      {"-c", "--cfg"},      {"-p", "--package"},      {"-i", "--info"}};
  CommandLine c;
  std::string name = "config", directory = "conf";
  std::vector<std::string> for_hydra;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with("-")) {
      const size_t key = std::min(args[i].find_first_not_of("+~"), args[i].size());
      const bool hydra = args[i].substr(key).starts_with("hydra");
      (hydra ? for_hydra : c.options.overrides).push_back(args[i]);
      continue;
    }
    const size_t equals = args[i].find('=');
    std::string flag = args[i].substr(0, equals);
    if (const auto full = short_names.find(flag); full != short_names.end()) flag = full->second;
    const auto value = [&] {
      if (equals != std::string::npos) return args[i].substr(equals + 1);
      return i + 1 < args.size() ? args[++i] : std::string();
    };
    if (flag == "--multirun")
      c.multirun = true;
    else if (flag == "--resolve")
      c.resolve = true;
    else if (flag == "--config-name")
      name = value();
    else if (flag == "--config-path")
      directory = value();
    else if (flag == "--config-dir")
      c.options.search_path.push_back((fs::path(folder) / value()).string());
    else if (flag == "--package")
      c.package = value();
    else if (flag == "--cfg")
      c.print = value() == "job";
    else if (flag == "--info")
      c.info = !value().empty();
    else
      throw UserError("the case uses the flag " + flag + ", for which lmx has no counterpart");
  }
  if (name.ends_with(".yaml")) name.resize(name.size() - 5);
  c.recipe = (fs::path(folder) / directory / (name + ".yaml")).string();
  Node hydra = Node::map();
  if (fs::exists(c.recipe)) {
    std::string section;
    const std::string rest = without_hydra(read(c.recipe), section);
    if (!section.empty()) {
      std::ofstream(c.recipe, std::ios::binary) << rest;
      const Node parsed = parse_yaml(section, "hydra");
      if (const Node* found = parsed.find("hydra")) hydra = *found;
    }
  }
  for (const std::string& text : for_hydra) set_hydra(hydra, app::parse_override(text));
  apply_settings(hydra, folder, c);
  return c;
}

}  // namespace lmx::test

#include "plugin/manifest.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "config/messages.h"

namespace lmx {
namespace {

namespace fs = std::filesystem;

constexpr std::array kKinds{PluginKind::model,    PluginKind::sync,  PluginKind::batcher,
                            PluginKind::comm,     PluginKind::loss,  PluginKind::optimizer,
                            PluginKind::schedule, PluginKind::codec, PluginKind::metric};

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const PluginKind kind : kKinds) names.emplace_back(name_of(kind));
  return names;
}

std::string place(const fs::path& file, const toml::source_region& at) {
  return str("[plugin] ", file.string(), ":", at.begin.line, ":", at.begin.column, ": ");
}

toml::table parse(const fs::path& file) {
  try {
    return toml::parse_file(file.string());
  } catch (const toml::parse_error& e) {
    // Errors have no line if the file could not be opened.
    if (e.source().begin.line == 0) throw UserError(str("[plugin] ", file.string(), ": ", e.description()));
    throw UserError(str(place(file, e.source()), e.description()));
  }
}

// A name is used as a C++ identifier, as a file name and as a word of a recipe.
bool is_identifier(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c); });
}

std::string take(const fs::path& file, const toml::table& table, const char* key) {
  const toml::node* node = table.get(key);
  if (!node) throw UserError(str("[plugin] ", file.string(), ": the key '", key, "' is missing"));
  const auto value = node->value_exact<std::string>();
  if (!value || value->empty())
    throw UserError(str(place(file, node->source()), "'", key, "' must be a text that is not empty"));
  return *value;
}

}  // namespace

const char* name_of(PluginKind kind) {
  switch (kind) {
    case PluginKind::model:
      return "model";
    case PluginKind::sync:
      return "sync";
    case PluginKind::batcher:
      return "batcher";
    case PluginKind::comm:
      return "comm";
    case PluginKind::loss:
      return "loss";
    case PluginKind::optimizer:
      return "optimizer";
    case PluginKind::schedule:
      return "schedule";
    case PluginKind::codec:
      return "codec";
    case PluginKind::metric:
      return "metric";
  }
  return "unknown";
}

std::optional<PluginKind> kind_from_name(std::string_view name) {
  const auto found = std::find_if(kKinds.begin(), kKinds.end(), [&](PluginKind k) { return name == name_of(k); });
  return found == kKinds.end() ? std::nullopt : std::optional(*found);
}

PluginInfo read_manifest(const fs::path& file) {
  const toml::table table = parse(file);
  const std::vector<std::string> known{"name", "kind", "version", "licence", "summary", "needs"};
  for (const auto& entry : table) {
    const std::string name(entry.first.str());
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw UserError(str(place(file, entry.first.source()), "unknown key '", name, "'", did_you_mean(name, known)));
    }
  }
  PluginInfo info;
  info.name = take(file, table, "name");
  info.version = take(file, table, "version");
  info.licence = take(file, table, "licence");
  info.summary = take(file, table, "summary");
  if (table.contains("needs")) static_cast<void>(take(file, table, "needs"));
  if (!is_identifier(info.name)) {
    throw UserError(str(place(file, table.get("name")->source()), "'", info.name,
                        "' is no plugin name: lower-case letters, digits and _ only, no digit first"));
  }
  const std::string& kind = info.kind = take(file, table, "kind");
  if (!kind_from_name(kind)) {
    throw UserError(str(place(file, table.get("kind")->source()), "unknown kind '", kind, "'",
                        did_you_mean(kind, kind_names()), "; allowed: ", config::join(kind_names())));
  }
  info.path = (file.parent_path() / (info.name + ".so")).string();
  return info;
}

std::string needs_of(const fs::path& file) {
  return parse(file)["needs"].value_or(std::string());
}

std::vector<fs::path> find_manifests(const fs::path& directory) {
  std::vector<fs::path> files;
  constexpr int kDepth = 2;
  const auto options = fs::directory_options::skip_permission_denied | fs::directory_options::follow_directory_symlink;
  std::error_code error;
  if (!fs::is_directory(directory, error)) return files;
  for (auto it = fs::recursive_directory_iterator(directory, options); it != fs::recursive_directory_iterator(); ++it) {
    if (it->is_directory(error) && it.depth() >= kDepth) it.disable_recursion_pending();
    if (it->path().filename() == "plugin.toml" && it->is_regular_file(error)) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

namespace {

constexpr std::array kParts{std::pair{"name", &FieldInfo::name}, std::pair{"type", &FieldInfo::type},
                            std::pair{"default", &FieldInfo::default_text}, std::pair{"range", &FieldInfo::range},
                            std::pair{"help", &FieldInfo::help}};
constexpr std::array kHeads{std::pair{"kind", &FieldsFile::kind}, std::pair{"library", &FieldsFile::library},
                            std::pair{"core", &FieldsFile::core}};

// Reads the texts `names` of a table into members of `to`. Returns false if one is missing or is not a text.
template <class Names, class To>
bool read_texts(const toml::table& from, const Names& names, To& to) {
  for (const auto& [key, member] : names) {
    const auto text = from[key].template value_exact<std::string>();
    if (!text) return false;
    to.*member = *text;
  }
  return true;
}

template <class Names, class From>
toml::table table_of(const Names& names, const From& from) {
  toml::table table;
  for (const auto& [key, member] : names) table.insert(key, from.*member);
  return table;
}

}  // namespace

std::optional<FieldsFile> parse_fields_file(const std::string& text) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
  FieldsFile file;
  const toml::array* rows = table["fields"].as_array();
  if (!rows || !read_texts(table, kHeads, file)) return std::nullopt;
  for (const toml::node& row : *rows) {
    const toml::table* parts = row.as_table();
    if (!parts || !read_texts(*parts, kParts, file.fields.emplace_back())) return std::nullopt;
  }
  return file;
}

std::string fields_file_text(const FieldsFile& file) {
  toml::table table = table_of(kHeads, file);
  toml::array rows;
  for (const FieldInfo& field : file.fields) rows.push_back(table_of(kParts, field));
  table.insert("fields", std::move(rows));
  std::ostringstream out;
  // toml++ writes a multi-line text that contains ''' in a form that reads back as a different text.
  using toml::format_flags;
  constexpr format_flags kPlain = toml::toml_formatter::default_flags & ~format_flags::allow_multi_line_strings &
                                  ~format_flags::allow_literal_strings;
  out << toml::toml_formatter{table, kPlain} << "\n";
  return out.str();
}

}  // namespace lmx

#include "plugin/fields_file.h"

#include <toml++/toml.h>

#include <array>
#include <sstream>

namespace lmx {
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

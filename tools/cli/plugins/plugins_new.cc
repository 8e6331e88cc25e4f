// lmx plugins new: writes a plugin's folder as a starting point.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "app/print/words.h"
#include "app/runs/run_directory.h"
#include "cli/commands.h"
#include "cli/plugins/plugins.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "plugin/choice.h"

namespace lmx::app::cli {
namespace {

namespace fs = std::filesystem;

struct NewOptions {
  std::string kind, name, base, directory;
  bool force = false;
};

// The keywords of C++, and a word that a recipe would not read as text.
const std::set<std::string> kReserved{
    "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
    "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char8_t",
    "char16_t",    "char32_t", "class",      "co_await",  "co_return", "co_yield",     "compl",
    "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
    "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
    "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
    "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
    "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
    "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
    "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
    "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
    "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
    "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
    "xor_eq",      "null"};

void check_name(const std::string& name) {
  const auto good = [](unsigned char c) { return std::islower(c) || std::isdigit(c) || c == '_'; };
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) || !std::all_of(name.begin(), name.end(), good))
    throw UserError(
        str("[plugins] '", name, "' is no plugin name: lower-case letters, digits and _ only, no digit first"));
  if (kReserved.contains(name))
    throw UserError(str("[plugins] '", name, "' is a word of C++ or YAML with another meaning; choose another name"));
  // CMake defines targets with these names in every build.
  for (const char* taken : {"all", "clean", "depend", "help", "install", "package", "package_source", "test"})
    if (name == taken) throw UserError(str("[plugins] '", name, "' is a target of CMake's own; choose another name"));
}

// Example: my_strategy -> MyStrategy.
std::string type_name(const std::string& name) {
  std::string out;
  bool upper = true;
  for (const char c : name) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return out.empty() ? "Plugin" : out;
}

// Example: "0.2". lmxConfigVersion.cmake accepts an lmx with the same minor version.
std::string minor_version() {
  const std::string version = kVersion;
  return version.substr(0, version.rfind('.'));
}

// The folder of templates/ with the files of this kind.
std::string template_folder(const NewOptions& o) {
  if (o.kind == "sync") return "sync/" + (o.base.empty() ? "plain" : o.base);
  if (!o.base.empty())
    throw UserError(str("[plugins] --base ", o.base, " is for plugins of the kind sync, not ", o.kind));
  return o.kind;
}

// The words after the source of a test in CMakeLists.txt, which `lmx plugins check` gets.
std::string check_words(const NewOptions& o) {
  return o.base == "feedback" ? R"( CHECK --approximate --config "{keep: 0.25}")" : "";
}

// Returns whether a skeleton made of `templates` has this file. The bases of sync share the files in sync/ that they do
// not have themselves.
bool takes(const std::string& templates, const TemplateFile& file) {
  const std::string folder = file.kind;
  if (folder == "common" || folder == templates) return true;
  if (folder != "sync" || !templates.starts_with("sync/")) return false;
  return std::none_of(template_files().begin(), template_files().end(), [&](const TemplateFile& own) {
    return own.kind == templates && std::string(own.name) == file.name;
  });
}

std::string filled(std::string text, const NewOptions& o) {
  const std::string article = o.kind == "optimizer" ? "An " : "A ";
  const std::pair<std::string, std::string> values[] = {{"@name@", o.name},
                                                        {"@Name@", type_name(o.name)},
                                                        {"@kind@", o.kind},
                                                        {"@version@", minor_version()},
                                                        {"@check@", check_words(o)},
                                                        {"@summary@", article + o.kind + " to start from"},
                                                        {"@codec@", o.base == "sum" ? ", codec: {kind: bf16}" : ""},
                                                        {"@wrong@", o.base == "sum" ? "bucket_mb: -1" : "scale: 0"}};
  for (const auto& [key, value] : values)
    for (size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += value.size())
      text.replace(at, key.size(), value);
  return text;
}

void check_not_built_in(const NewOptions& o) {
  for (const PluginKind kind : kPluginKinds)
    for (const auto& [name, fields] : built_in(kind))
      if (o.kind == name_of(kind) && o.name == name)
        throw UserError(str("[plugins] the ", o.kind, " '", o.name,
                            "' is built into lmx, and lmx refuses a plugin of this name; choose another name"));
}

// lmx refuses two plugins of the same kind and name, but this would only show when the new plugin is built.
void check_free(const NewOptions& o) {
  PluginDirectories().load();
  for (const PluginInfo& info : Registry::instance().list())
    if (info.kind == o.kind && info.name == o.name)
      throw UserError(str("[plugins] there is a ", o.kind, " '", o.name, "' already, ", info.path,
                          ", and lmx refuses to find two; choose another name, or --force"));
}

void write_skeleton(const NewOptions& o) {
  check_name(o.name);
  check_not_built_in(o);
  const std::string templates = template_folder(o);
  if (!o.force) check_free(o);
  const fs::path target = o.directory.empty() ? o.name : o.directory;
  NewFolder folder("plugins", target.string());
  for (const TemplateFile& file : template_files()) {
    if (!takes(templates, file)) continue;
    const std::string name = file.name;
    folder.write(name == "plugin.cc"     ? o.name + ".cc"
                 : name == "test.cc"     ? o.name + "_test.cc"
                 : name == "kernels.h"   ? o.name + "_kernels.h"
                 : name == "cuda.cu"     ? o.name + "_cuda.cu"
                 : name == "recipe.yaml" ? "recipes/" + o.kind + "/" + o.name + ".yaml"
                                         : name,
                 std::string_view(filled(file.text, o)));
  }
  for (const std::string& name : folder.finish()) std::cout << (target / name).string() << "\n";
  const std::string where = shell_quoted(target.string());
  const fs::path build = fs::path(own_program()).parent_path().parent_path();
  fs::path prefix = build;
  std::cout << "next:\n";
  // A build tree has no CMake package, but the folder of `cmake --install` has one.
  if (fs::exists(build / "CMakeCache.txt")) {
    prefix = build / "installed";
    std::cout << "  cmake --install " << shell_quoted(build.string()) << " --prefix " << shell_quoted(prefix.string())
              << "\n";
  }
  std::cout << "  cmake -S " << where << " -B " << where
            << "/build -DCMAKE_PREFIX_PATH=" << shell_quoted(prefix.string()) << "\n  cmake --build " << where
            << "/build\n  ctest --test-dir " << where << "/build\n  " << command_name() << " plugins check " << where
            << "/build/lib/lmx/plugins/" << o.kind << "/" << o.name << "/" << o.name << ".so"
            << (o.base == "feedback" ? " --approximate --config '{keep: 0.25}'\n" : "\n");
}

}  // namespace

void add_plugins_new(Command group) {
  const Command command = group.add_subcommand(
      "new", "write a plugin to start from: source, test, recipe group, CMakeLists.txt, plugin.toml");
  set_examples(command, {{"lmx plugins new sync my_sync", "a gradient-sync strategy in the folder my_sync"},
                         {"lmx plugins new sync my_top_k --base feedback", "a compressor of gradients"},
                         {"lmx plugins new model my_model --dir plugins/my_model", "a model, elsewhere"}});
  const auto o = std::make_shared<NewOptions>();
  command.add_option("KIND", o->kind, "model, sync, batcher, loss, optimizer, schedule, codec or metric")
      .required()
      .one_of({"model", "sync", "batcher", "loss", "optimizer", "schedule", "codec", "metric"});
  command.add_option("NAME", o->name, "lower-case letters, digits and _").required();
  command
      .add_option("--base BASE", o->base,
                  "of a sync plugin: plain (all by itself, default), sum (buckets and codecs), feedback (a compressor "
                  "with error feedback), replica (ranks with own values), outer (the same with an outer optimizer), "
                  "shard (ranks "
                  "that divide the update)")
      .one_of({"plain", "sum", "feedback", "replica", "outer", "shard"});
  command.add_option("--dir DIR", o->directory, "the folder; as the name is, in the current one").writes();
  command.add_flag("--force", o->force, "though a plugin of that kind and name is found already");
  command.callback([o] { write_skeleton(*o); });
}

}  // namespace lmx::app::cli

// The frame of the command line: help, version, unknown words, and which error ends in which exit code.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <new>

#include "commands.h"
#include "completion.h"
#include "excerpt.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "lmx/plugin.h"
#include "lmx/recipe_info.h"
#include "lmx/train.h"
#include "words.h"

namespace lmx_cli {
namespace {

// Examples first: they are what a reader looks for.
class ExamplesFirst : public CLI::Formatter {
 public:
  ExamplesFirst() {
    label("SUBCOMMAND", "COMMAND");
    label("SUBCOMMANDS", "COMMANDS");
    label("Positionals", "Arguments");
    label("REQUIRED", "");
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
    const std::string usage = CLI::Formatter::make_usage(app, name);
    std::string out = app->get_footer() + "\n" + app->get_description() + "\n" + usage;
    out += make_positionals(app) + make_groups(app, mode);
    // CLI11 takes this title from the commands' group, whose name every command would have to set.
    std::string commands = make_subcommands(app, mode);
    const std::string title = "Subcommands:";
    if (const size_t at = commands.find(title); at != std::string::npos)
      commands.replace(at, title.size(), "Commands:");
    return out + commands;
  }
};

// What follows `argument` on the command line belongs to it.
bool takes_next_word(const CLI::Option& option, const std::string& argument) {
  return option.get_items_expected_min() > 0 && argument.find('=') == std::string::npos;
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// The command that `argument` names below `app`. UserError when there is none.
CLI::App* descend(CLI::App& app, const std::string& place, const std::string& argument) {
  const std::vector<std::string> names = command_names(app);
  if (std::find(names.begin(), names.end(), argument) == names.end()) {
    throw lmx::UserError(lmx::str("unknown command '", place, " ", argument, "'", lmx::did_you_mean(argument, names),
                                  "; commands: ", joined(names)));
  }
  return app.get_subcommand(argument);
}

std::string flag_hint(const std::string& name, const CLI::App& app) {
  if (name == "-m" || name == "--multirun") return "; many runs of a recipe are a sweep: lmx sweep RECIPE key=1,2,3";
  return lmx::did_you_mean(name, flag_names(app));
}

// CLI11 knows no nearest name and takes a misspelt command for a stray argument, so unknown words are found before it
// parses.
void check_words(CLI::App& root, int argc, char** argv) {
  CLI::App* app = &root;
  std::string place = "lmx";
  bool groups = true;  // words still choose commands
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    groups = groups && !command_names(*app).empty();
    if (argument == "--") return;
    if (argument.size() > 1 && argument[0] == '-') {
      const CLI::Option* option = find_option(*app, argument);
      if (!option) {
        const std::string name = argument.substr(0, argument.find('='));
        throw lmx::UserError(lmx::str("unknown flag ", name, flag_hint(name, *app), "; see ", place, " --help"));
      }
      if (takes_next_word(*option, argument)) ++i;
    } else if (groups) {
      app = descend(*app, place, argument);
      place += " " + argument;
    }
  }
  const bool asks_help =
      std::any_of(argv + 1, argv + argc, [](const std::string& a) { return a == "-h" || a == "--help"; });
  if (app != &root && !asks_help && !command_names(*app).empty()) {
    throw lmx::UserError(lmx::str("'", place, "' needs a command: ", joined(command_names(*app))));
  }
}

// A command takes one command: what follows is its own, even where it is called as another one is
// (`--explain data`, `lmx report run`).
void take_one_command(CLI::App& app) {
  app.require_subcommand(0, 1);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) take_one_command(*command);
}

std::string help_place(const CLI::App& root) {
  std::string place = "lmx";
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    place += " " + app->get_name();
  }
  return place;
}

void add_commands(CLI::App& app) {
  add_run(app);
  add_sweep(app);
  add_eval(app);
  add_generate(app);
  add_features(app);
  add_probe(app);
  add_translate(app);
  add_score(app);
  add_average(app);
  add_bleu(app);
  add_config(app);
  add_data(app);
  add_plugins(app);
  add_bench(app);
  add_experiment(app);
  add_report(app);
  add_completion(app);
  take_one_command(app);
}

// What scripts ask for; not for people, and in no help.
bool answer_script(CLI::App& app, int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "__complete") {
    for (const std::string& line : completions(app, {argv + 2, argv + argc})) std::cout << line << "\n";
  } else if (command == "__man") {
    std::cout << manual_page(app);
  } else {
    return false;
  }
  return true;
}

int report(const char* kind, const std::string& text, int code) {
  lmx::progress_line("");
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", kind, text.c_str());
  return code;
}

int parse_and_run(CLI::App& app, int argc, char** argv) {
  if (answer_script(app, argc, argv)) return 0;
  check_words(app, argc, argv);
  if (argc == 1) {
    std::cout << app.help();
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::Error& e) {
    throw lmx::UserError(lmx::str(e.what(), "; see ", help_place(app), " --help"));
  }
  return 0;
}

}  // namespace

CLI::Option* find_option(CLI::App& app, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  for (CLI::Option* option : app.get_options())
    if (option->check_name(name)) return option;
  return nullptr;
}

void set_examples(CLI::App& command, const std::vector<std::pair<std::string, std::string>>& examples) {
  size_t width = 0;
  for (const auto& [line, what] : examples) width = std::max(width, line.size());
  std::string text = "Examples:\n";
  for (const auto& [line, what] : examples)
    text += "  " + line + std::string(width - line.size() + 3, ' ') + what + "\n";
  command.footer(text);
}

void refuse_given(const CLI::App& command, const std::vector<std::string>& options, const std::string& where) {
  for (const std::string& name : options)
    if (command.count(name) > 0)
      throw lmx::UserError(lmx::str("[", command.get_name(), "] ", name, " is not used ", where));
}

void check_place(const CLI::App& command, const std::string& option, const std::string& path) {
  if (!path.empty()) lmx::require_writable(lmx::str("[", command.get_name(), "] ", option), path);
}

void PluginDirectories::add_to(CLI::App& command) {
  command.add_option("--plugin-dir", directories, "a further folder of plugins (repeatable)")
      ->type_name("DIR")
      ->allow_extra_args(false);
}

void PluginDirectories::load() const {
  lmx::Registry& registry = lmx::Registry::instance();
  registry.add_default_directories();
  for (const std::string& directory : directories) registry.add_directory(directory);
}

lmx::ComposeOptions PluginDirectories::with_plugins(lmx::ComposeOptions options) {
  for (const lmx::PluginInfo& plugin : lmx::Registry::instance().list()) {
    const std::filesystem::path folder = std::filesystem::path(plugin.path).parent_path() / "recipes";
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) options.search_path.push_back(folder.string());
  }
  options.default_of = lmx::default_of;
  return options;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  const auto width_of = [](const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  };
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - width_of(row[i]) + 2, ' ');
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string command_name() {
  const char* name = std::getenv("LMX_COMMAND");
  return name && *name ? name : "lmx";
}

std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

int run_command_line(int argc, char** argv) {
  CLI::App app("lmx trains language models from recipes", "lmx");
  app.formatter(std::make_shared<ExamplesFirst>());
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", lmx::str("lmx ", lmx::kVersion), "print the version");
  set_examples(app, {{"lmx run recipes/quickstart.yaml", "train a small model in under a minute; no download"},
                     {"lmx run recipes/quickstart.yaml train.steps=50", "the same with one value changed"},
                     {"lmx config recipes/quickstart.yaml", "what a recipe is, with every default"},
                     {"lmx run --help", "more about a command"}});
  add_commands(app);
  try {
    return parse_and_run(app, argc, argv);
  } catch (const ExitCode& e) {
    return e.code;
  } catch (const lmx::EndProcess& e) {
    return e.said ? e.code : report("error", e.what(), e.code);
  } catch (const lmx::UserError& e) {
    return report("error", lmx::error_prefix() + with_excerpts(e.what()), 2);
  } catch (const std::filesystem::filesystem_error& e) {  // a path that nobody looked at first: not readable, too long
    return report("error", lmx::error_prefix() + lmx::str(e.path1().string(), ": ", e.code().message()), 2);
  } catch (const std::bad_alloc&) {
    return report("error", lmx::error_prefix() + "out of memory", 1);
  } catch (const std::exception& e) {
    return report("error", lmx::error_prefix() + e.what(), 1);
  } catch (...) {
    return report("error", lmx::error_prefix() + "an exception that is no std::exception", 1);
  }
}

}  // namespace lmx_cli

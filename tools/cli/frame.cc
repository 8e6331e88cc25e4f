// The frame of the command line: help, version, unknown words, and exit codes of errors.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>

#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/run/crash.h"
#include "app/run/shipped.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/new_command.h"
#include "cli/output/completion.h"
#include "cli/output/excerpt.h"
#include "cli/output/help.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "lmx/plugin.h"
#include "recipe/recipe.h"

namespace lmx_cli {
namespace {

// Returns whether the word after `argument` on the command line is its value.
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

// Returns the command that `argument` names below `app`. UserError: there is none.
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

// Finds unknown words before CLI11 parses them, because CLI11 suggests no nearest name and treats a misspelt command as
// an unexpected argument.
void check_words(CLI::App& root, int argc, char** argv) {
  CLI::App* app = &root;
  std::string place = "lmx";
  bool groups = true;  // true: words can still choose commands
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

// Lets each command take only one subcommand. Later words are its arguments, even if they equal the name of another
// command (`--explain data`, `lmx report run`).
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
  add_new(app);
  add_sweep(app);
  add_plan(app);
  add_eval(app);
  add_generate(app);
  add_features(app);
  add_probe(app);
  add_translate(app);
  add_score(app);
  add_average(app);
  add_export(app);
  add_bleu(app);
  add_config(app);
  add_data(app);
  add_plugins(app);
  add_devices(app);
  add_bench(app);
  add_experiment(app);
  add_report(app);
  add_completion(app);
  take_one_command(app);
}

// Answers requests of scripts. They are not intended for users and not part of any help.
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

// Removes prefixes that a library adds to its messages: the names of its error classes.
std::string without_library_names(std::string text) {
  constexpr std::string_view kJson = "[json.exception.", kFiles = "filesystem error: ";
  for (size_t at; (at = text.find(kJson)) != std::string::npos;) {
    const size_t end = text.find("] ", at);
    text.erase(at, end == std::string::npos ? kJson.size() : end + 2 - at);
  }
  for (size_t at; (at = text.find(kFiles)) != std::string::npos;) text.erase(at, kFiles.size());
  return text;
}

int report(const std::string& message, int code) {
  const std::string text = without_library_names(message);
  lmx::progress_line("");
  std::fflush(stdout);
  const bool colour = lmx::colour_enabled();
  std::fprintf(stderr, "%serror:%s %s\n", colour ? "\033[1;31m" : "", colour ? "\033[0m" : "", text.c_str());
  return code;
}

// Returns 1 if stdout could not be written (a full disk, a closed file), unless `code` is an error already.
int check_output(int code) {
  errno = 0;
  std::cout.flush();
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout;
  int reason = errno;
  if (!failed || code != 0) return code;
  if (reason == 0 && write(STDOUT_FILENO, "\n", 1) < 0) reason = errno;  // an earlier write has failed
  return report(lmx::str("the output cannot be written: ", reason ? std::strerror(reason) : "stdout has failed"), 1);
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
  size_t column = 0, width = 0;
  for (const auto& [line, what] : examples) column = std::max(column, line.size() + 5);
  for (const auto& [line, what] : examples) width = std::max(width, column + width_of(what));
  const size_t terminal = terminal_width();
  if (terminal > 0 && width > terminal) column = 6;  // descriptions go on separate lines, so that no command is wrapped
  std::string text = "Examples:\n";
  for (const auto& [line, what] : examples) text += two_columns(line, what, column, terminal);
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

void add_device(CLI::App& command, std::string& device) {
  command
      .add_option(
          "--device", device,
          "where to compute: cpu, cuda, cuda:N, or auto (a GPU if there is one); by default the run's own device")
      ->type_name("NAME");
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

namespace {

int run_app(int argc, char** argv) {
  CLI::App app("lmx trains language models from recipes", "lmx");
  app.formatter(help_formatter());
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", lmx::str("lmx ", lmx::kVersion), "print the version");
  set_examples(app, {{"lmx run recipes/quickstart.yaml", "train a small model in under a minute; no download"},
                     {"lmx run recipes/quickstart.yaml train.steps=50", "the same with one value changed"},
                     {"lmx new novels --text books/*.txt", "a recipe for your own text"},
                     {"lmx config recipes/quickstart.yaml", "what a recipe is, with every default"},
                     {"lmx run --help", "more about a command"}});
  add_commands(app);
  lmx::report_crashes();
  try {
    return parse_and_run(app, argc, argv);
  } catch (const ExitCode& e) {
    return e.code;
  } catch (const lmx::EndProcess& e) {
    return e.said ? e.code : report(e.what(), e.code);
  } catch (const lmx::UserError& e) {
    return report(lmx::error_prefix() + with_excerpts(e.what()), 2);
  } catch (const std::filesystem::filesystem_error& e) {  // a path that was not checked before: not readable, too long
    return report(lmx::error_prefix() + lmx::str(e.path1().string(), ": ", e.code().message()), 2);
  } catch (const std::bad_alloc&) {
    return report(lmx::error_prefix() + "out of memory", 1);
  } catch (const std::exception& e) {
    return report(lmx::error_prefix() + e.what(), 1);
  } catch (...) {
    return report(lmx::error_prefix() + "an exception that is no std::exception", 1);
  }
}

}  // namespace

int run_command_line(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // `ulimit -f`: a write beyond the limit fails with an error instead of a signal
  return check_output(run_app(argc, argv));
}

}  // namespace lmx_cli

// The frame of the command line: help, version, unknown words, and exit codes of errors.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>

#include "app/print/terminal.h"
#include "app/print/words.h"
#include "app/run/run.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/output/completion.h"
#include "cli/output/terminal_output.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "lmx/plugin.h"

namespace lmx::app::cli {
namespace {

std::vector<std::string> flag_names(Command app) {
  std::vector<std::string> all;
  for (const Option& option : app.options())
    for (const std::string& name : option.names()) all.push_back(name);
  return all;
}

std::vector<std::string> command_names(Command app) {
  std::vector<std::string> names;
  for (const Command& command : app.commands()) names.push_back(command.name());
  return names;
}

// Returns the command that `argument` names below `app`. UserError: there is none.
Command descend(Command app, const std::string& place, const std::string& argument) {
  if (const std::optional<Command> command = app.find_command(argument)) return *command;
  const std::vector<std::string> names = command_names(app);
  throw UserError(str("unknown command '", place, " ", argument, "'", did_you_mean(argument, names),
                      "; commands: ", joined(names)));
}

std::string flag_hint(const std::string& name, Command app) {
  if (name == "-m" || name == "--multirun") return "; many runs of a recipe are a sweep: lmx sweep RECIPE key=1,2,3";
  return did_you_mean(name, flag_names(app));
}

// Finds unknown words before CLI11 parses them, because CLI11 suggests no nearest name and treats a misspelt command as
// an unexpected argument.
void check_words(Command root, int argc, char** argv) {
  Command app = root;
  std::string place = "lmx";
  bool groups = true;  // true: words can still choose commands
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    groups = groups && !command_names(app).empty();
    if (argument == "--") return;
    if (argument.size() > 1 && argument[0] == '-') {
      const std::optional<Option> option = app.find_option(argument);
      if (!option) {
        const std::string name = argument.substr(0, argument.find('='));
        throw UserError(str("unknown flag ", name, flag_hint(name, app), "; see ", place, " --help"));
      }
      if (option->takes_value() && argument.find('=') == std::string::npos) ++i;  // the next word is the value
    } else if (groups) {
      app = descend(app, place, argument);
      place += " " + argument;
    }
  }
  const bool asks_help =
      std::any_of(argv + 1, argv + argc, [](const std::string& a) { return a == "-h" || a == "--help"; });
  if (place != "lmx" && !asks_help && !command_names(app).empty()) {
    throw UserError(str("'", place, "' needs a command: ", joined(command_names(app))));
  }
}

void add_commands(Command app) {
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
  add_import(app);
  add_bleu(app);
  add_config(app);
  add_data(app);
  add_plugins(app);
  add_devices(app);
  add_bench(app);
  add_experiment(app);
  add_report(app);
  add_compare(app);
  add_completion(app);
}

// Answers requests of scripts. They are not intended for users and not part of any help.
bool answer_script(Command app, int argc, char** argv) {
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
  constexpr std::string_view kName = "error:";
  const std::string text =
      folded(str(kName, " ", printable(without_library_names(message))), terminal_columns(STDERR_FILENO));
  progress_line("");
  std::fflush(stdout);
  const bool colour = colour_enabled();
  std::fprintf(stderr, "%s%s%s%s\n", colour ? "\033[1;31m" : "", kName.data(), colour ? "\033[0m" : "",
               text.c_str() + kName.size());
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
  return report(str("the output cannot be written: ", reason ? std::strerror(reason) : "stdout has failed"), 1);
}

int parse_and_run(const CommandLine& line, int argc, char** argv) {
  if (answer_script(line.root(), argc, argv)) return 0;
  check_words(line.root(), argc, argv);
  if (argc > 1) return line.parse(argc, argv);
  std::cout << line.root().help();
  return 0;
}

}  // namespace

void set_examples(Command command, const std::vector<std::pair<std::string, std::string>>& examples) {
  size_t column = 0, width = 0;
  for (const auto& [line, what] : examples) column = std::max(column, line.size() + 5);
  for (const auto& [line, what] : examples) width = std::max(width, column + width_of(what));
  const size_t terminal = terminal_width();
  if (terminal > 0 && width > terminal) column = 6;  // descriptions go on separate lines, so that no command is wrapped
  std::string text = "Examples:\n";
  for (const auto& [line, what] : examples) text += two_columns(line, what, column, terminal);
  command.footer(text);
}

void refuse_given(Command command, const std::vector<std::string>& options, const std::string& where) {
  for (const std::string& name : options)
    if (command.count(name) > 0) throw UserError(str("[", command.name(), "] ", name, " is not used ", where));
}

void refuse_other_files(const std::string& command, const std::string& out,
                        const std::function<bool(const std::string& name)>& own) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(out, error)) {
    const std::string name = entry.path().filename().string();
    if (name != ".lock" && !own(name))
      throw UserError(str("[", command, "] --out ", out, " is not empty: it holds ", name));
  }
}

void add_device(Command command, std::string& device) {
  command.add_option(
      "--device NAME", device,
      "where to compute: cpu, cuda, cuda:N, or auto (a GPU if there is one); by default the run's own device");
}

void PluginDirectories::add_to(Command command) {
  command.add_option("--plugin-dir DIR", directories, "a further folder of plugins (repeatable)").repeatable();
}

void PluginDirectories::load() const {
  Registry& registry = Registry::instance();
  registry.add_default_directories();
  for (const std::string& directory : directories) registry.add_directory(directory);
}

namespace {

int run_app(int argc, char** argv) {
  const CommandLine line("lmx", "lmx trains language models from recipes", version_text());
  set_examples(line.root(), {{"lmx run recipes/quickstart.yaml", "train a small model in under a minute; no download"},
                             {"lmx run recipes/quickstart.yaml train.steps=50", "the same with one value changed"},
                             {"lmx new novels --text books/*.txt", "a recipe for your own text"},
                             {"lmx config recipes/quickstart.yaml", "what a recipe is, with every default"},
                             {"lmx run --help", "more about a command"}});
  add_commands(line.root());
  report_crashes();
  try {
    return parse_and_run(line, argc, argv);
  } catch (const ExitCode& e) {
    return e.code;
  } catch (const EndProcess& e) {
    return e.said ? e.code : report(e.what(), e.code);
  } catch (const UserError& e) {
    return report(error_prefix() + with_excerpts(e.what()), 2);
  } catch (const std::filesystem::filesystem_error& e) {  // a path that was not checked before: not readable, too long
    return report(error_prefix() + str(e.path1().string(), ": ", e.code().message()), 2);
  } catch (const std::bad_alloc&) {
    return report(error_prefix() + "out of memory", 1);
  } catch (const std::exception& e) {
    return report(error_prefix() + e.what(), 1);
  } catch (...) {
    return report(error_prefix() + "an exception that is no std::exception", 1);
  }
}

}  // namespace

int run_command_line(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // `ulimit -f`: a write beyond the limit fails with an error instead of a signal
  const TerminalOutput output;
  return check_output(run_app(argc, argv));
}

}  // namespace lmx::app::cli

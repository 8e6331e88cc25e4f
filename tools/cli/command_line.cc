#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>

#include "app/print/terminal.h"
#include "app/run/outputs.h"
#include "app/run/shipped.h"
#include "base/output_file.h"
#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::app::cli {
namespace {

// Makes lines bold that begin at the left margin and end in a colon, and the word "Usage:".
std::string with_bold_headings(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::string usage = "Usage:";
    if (line.starts_with(usage))
      line = bold(usage) + line.substr(usage.size());
    else if (!line.empty() && line[0] != ' ' && line.back() == ':')
      line = bold(line);
    out += line + "\n";
  }
  return out;
}

// Indents all lines after the first one.
std::string hanging(const std::string& text, size_t width) {
  constexpr size_t kIndent = 4;
  std::string out;
  for (const std::string& line : wrapped(text, width > kIndent ? width - kIndent : 0))
    out += (out.empty() ? "" : "\n" + std::string(kIndent, ' ')) + line;
  return out;
}

// The format of `--help`: examples are first, because readers look for them, and lines are wrapped at the terminal's
// width between words.
class ExamplesFirst : public CLI::Formatter {
 public:
  ExamplesFirst() : width_(terminal_width()) {
    label("SUBCOMMAND", "COMMAND");
    label("SUBCOMMANDS", "COMMANDS");
    label("Positionals", "Arguments");
    label("REQUIRED", "");
    if (width_ > 0) column_width(std::clamp(width_ / 3, size_t{12}, get_column_width()));
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
    std::string usage = CLI::Formatter::make_usage(app, name);
    const size_t end = usage.find_last_not_of('\n') + 1;
    usage = hanging(usage.substr(0, end), width_) + usage.substr(end);
    std::string out = app->get_footer() + "\n" + hanging(app->get_description(), width_) + "\n" + usage;
    out += make_positionals(app) + make_groups(app, mode);
    // CLI11 uses the name of the commands' group as this title, and every command would have to set it.
    std::string commands = make_subcommands(app, mode);
    const std::string title = "Subcommands:";
    if (const size_t at = commands.find(title); at != std::string::npos)
      commands.replace(at, title.size(), "Commands:");
    return with_bold_headings(out + commands);
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = make_option_name(option, is_positional) + make_option_opts(option), above;
    if (width_ > 4 && width_of(name) + 2 > width_) {  // long defaults
      const std::vector<std::string> lines = wrapped(name, width_ - 4);
      for (size_t i = 0; i + 1 < lines.size(); ++i) above += (i ? "    " : "  ") + lines[i] + "\n";
      name = (lines.size() > 1 ? "  " : "") + lines.back();
    }
    return above + two_columns(name, make_option_desc(option), get_column_width(), width_);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return two_columns(command->get_name(), command->get_description(), get_column_width(), width_);
  }

 private:
  size_t width_;  // 0: no limit
};

// Says what is wrong with a number that must be above 0; "": nothing. CLI11's own check prints the largest double.
std::string positive_problem(std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) && value > 0 ? "" : "'" + text + "' is no number above 0";
}

// The same for a number that may be 0.
std::string negative_problem(std::string& text) {
  const auto value = parse_double(text);
  return value && *value >= 0 ? "" : "'" + text + "' is no number from 0 on";
}

// Says what is wrong with the value of any option of this type. CLI11 reads an empty text as 0, and an integer of more
// than 64 bits as the largest one; its ranges accept NaN. Often a shell variable without a value has become the text.
template <typename Value>
std::string value_problem(std::string& text) {
  if (text.empty()) return "the value is empty";
  double number = 0;
  if constexpr (std::is_arithmetic_v<Value>) {
    if (CLI::detail::lexical_cast(text, number) && !std::isfinite(number)) return "expected a number, got " + text;
  }
  if constexpr (std::is_integral_v<Value>) {
    constexpr auto most = static_cast<double>(std::numeric_limits<Value>::max());
    if (std::abs(number) >= most) return "'" + text + "' is too large";
  }
  return "";
}

template <typename Value>
struct Single {
  using type = Value;
};
template <typename Value>
struct Single<std::vector<Value>> : Single<Value> {};
template <typename Value>
struct Single<std::optional<Value>> : Single<Value> {};

constexpr const char* kValueCheck = "value";  // its name

// Options of output files and of texts are marked by checks that accept everything. A mark is the name of its check;
// that of an output continues with the endings of its files.
constexpr std::string_view kWrites = "writes:", kReadsTexts = "reads texts";

CLI::Validator mark(const std::string& name) {
  return CLI::Validator([](std::string&) { return std::string(); }, "", name);
}

// Returns the name of the mark of this kind; nothing if the option has none.
std::optional<std::string> find_mark(CLI::Option& option, std::string_view kind) {
  try {
    for (int i = 0;; ++i)
      if (const std::string name = option.get_validator(i)->get_name(); name.starts_with(kind)) return name;
  } catch (const CLI::OptionNotFound&) {
    return std::nullopt;
  }
}

std::vector<std::string> values_of(const CLI::Option& option) {
  if (option.count() > 0) return option.reduced_results();
  const std::string text = option.get_default_str();
  return text.empty() ? std::vector<std::string>() : std::vector<std::string>{text};
}

std::string name_of(const CLI::Option& option) {
  return option.get_name(option.get_positional());
}

struct NamedOutput {
  CLI::Option* option;
  std::string path;
};

std::vector<NamedOutput> outputs_of(CLI::App& app) {
  std::vector<NamedOutput> outputs;
  for (CLI::Option* option : app.get_options()) {
    const std::optional<std::string> found = find_mark(*option, kWrites);
    if (!found) continue;
    std::istringstream endings(found->substr(kWrites.size()) + ",");
    for (std::string ending; std::getline(endings, ending, ',');)
      for (const std::string& value : values_of(*option)) outputs.push_back({option, value + ending});
  }
  return outputs;
}

// Every value of another option can name an input, so that no option has to be marked as one.
std::vector<NamedInput> inputs_of(CLI::App& app, const CLI::Option* output) {
  std::vector<NamedInput> inputs;
  for (CLI::Option* option : app.get_options())
    if (option != output && option->get_items_expected_max() > 0 && !find_mark(*option, kWrites))
      for (const std::string& value : values_of(*option))
        inputs.push_back(
            {name_of(*option), value, find_mark(*option, kReadsTexts) ? NamedInput::texts : NamedInput::file});
  return inputs;
}

// No command begins if a file would be lost by its outputs.
void check_outputs(CLI::App& app) {
  const std::vector<NamedOutput> outputs = outputs_of(app);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [option, path] = outputs[i];
    const std::string problem = loss_by_output(path, inputs_of(app, option));
    if (!problem.empty()) throw UserError(str(name_of(*option), ": ", problem));
    for (size_t before = 0; before < i; ++before)
      if (is_same_output(outputs[before].path, path))
        throw UserError(str(name_of(*option), ": ", path, " is also written by ", name_of(*outputs[before].option),
                            "; name two files"));
  }
}

// Returns "--jobs" for "--jobs N".
std::string names_in(const std::string& name) {
  return name.substr(0, name.find(' '));
}
// Returns "N" for "--jobs N", and "" for "RECIPE".
std::string value_in(const std::string& name) {
  const size_t blank = name.find(' ');
  return blank == std::string::npos ? "" : name.substr(blank + 1);
}

}  // namespace

Option Option::required() const {
  return Option(option_->required());
}
Option Option::show_default() const {
  return Option(option_->capture_default_str());
}
Option Option::separated_by_commas() const {
  return Option(option_->delimiter(','));
}
Option Option::repeatable() const {
  return Option(option_->allow_extra_args(false));
}
Option Option::takes(int words) const {
  return Option(option_->expected(words));
}
Option Option::optional_value(const std::string& otherwise) const {
  may_be_empty();  // without a word after the option, its text is empty until `otherwise` replaces it
  return Option(option_->expected(0, 1)->default_str(otherwise));
}
Option Option::may_be_empty() const {
  option_->get_validator(kValueCheck)->active(false);
  return *this;
}
Option Option::excludes(const std::string& name) const {
  return Option(option_->excludes(name));
}
Option Option::hidden() const {
  return Option(option_->group(""));
}

Option Option::positive() const {
  return Option(option_->check(CLI::Validator(positive_problem, "")));
}
Option Option::not_negative() const {
  return Option(option_->check(CLI::Validator(negative_problem, "")));
}
Option Option::integer_in(int64_t least, int64_t most) const {
  return Option(option_->check(CLI::Range(least, most)));
}
Option Option::number_in(double least, double most) const {
  return Option(option_->check(CLI::Range(least, most)));
}
Option Option::output_file(const std::string& packing) const {
  const auto problem = [packing](const std::string& path) { return output_problem(path, packing); };
  return Option(option_->check(CLI::Validator(problem, ""))).writes();
}
Option Option::writes(const std::vector<std::string>& endings) const {
  return Option(option_->check(mark(std::string(kWrites) + config::join(endings, ","))));
}
Option Option::texts() const {
  return Option(option_->check(mark(std::string(kReadsTexts))));
}
Option Option::recipe() const {
  return Option(option_->transform(recipe_file, ""));
}
Option Option::one_of(const std::vector<std::string>& words) const {
  return Option(option_->check(CLI::IsMember(words)));
}
Option Option::offers(const std::vector<std::string>& words) const {
  const auto accept = [](std::string&) { return std::string(); };
  return Option(option_->check(CLI::Validator(accept, "{" + config::join(words, ",") + "}")));
}

std::vector<std::string> Option::names() const {
  std::vector<std::string> names;
  for (const std::string& name : option_->get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option_->get_snames()) names.push_back("-" + name);
  return names;
}

// CLI11 describes the check as "{a,b}".
std::set<std::string> Option::words() const {
  std::set<std::string> words;
  try {
    for (int i = 0;; ++i) {
      const std::string text = option_->get_validator(i)->get_description();
      if (!text.starts_with("{") || !text.ends_with("}")) continue;
      std::istringstream list(text.substr(1, text.size() - 2));
      for (std::string word; std::getline(list, word, ',');) words.insert(word);
    }
  } catch (const CLI::OptionNotFound&) {
    return words;
  }
}

std::string Option::argument() const {
  return option_->get_name(true);
}
bool Option::is_list() const {
  return option_->get_delimiter() == ',';
}
bool Option::is_hidden() const {
  return option_->get_group().empty();
}
bool Option::takes_value() const {
  return option_->get_items_expected_min() > 0;
}

Command Command::add_subcommand(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

template <typename Value>
Option Command::add_option(const std::string& name, Value& value, const std::string& help) const {
  const CLI::Validator check(value_problem<typename Single<Value>::type>, "", kValueCheck);
  return Option(app_->add_option(names_in(name), value, help)->type_name(value_in(name))->check(check));
}
template Option Command::add_option(const std::string&, int&, const std::string&) const;
template Option Command::add_option(const std::string&, int64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<int64_t>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<int64_t>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<double>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;

Option Command::add_option_function(const std::string& name, const std::function<void(const std::string&)>& take,
                                    const std::string& help) const {
  const CLI::Validator check(value_problem<std::string>, "", kValueCheck);
  return Option(app_->add_option_function(names_in(name), take, help)->type_name(value_in(name))->check(check));
}

Option Command::add_flag(const std::string& names, bool& value, const std::string& help) const {
  return Option(app_->add_flag(names, value, help));
}

void Command::callback(const std::function<void()>& run) const {
  app_->callback([app = app_, run] {
    check_outputs(*app);
    run();
  });
}
void Command::footer(const std::string& text) const {
  app_->footer(text);
}
std::string Command::name() const {
  return app_->get_name();
}
std::string Command::description() const {
  return app_->get_description();
}
std::string Command::help(const std::string& place) const {
  return app_->help(place);
}
size_t Command::count(const std::string& option) const {
  return app_->count(option);
}

std::vector<Command> Command::commands() const {
  std::vector<Command> commands;
  for (CLI::App* app : app_->get_subcommands([](const CLI::App*) { return true; })) commands.emplace_back(app);
  return commands;
}

std::optional<Command> Command::find_command(const std::string& name) const {
  for (const Command& command : commands())
    if (command.name() == name) return command;
  return std::nullopt;
}

std::vector<Option> Command::options() const {
  std::vector<Option> options;
  for (CLI::Option* option : app_->get_options()) options.emplace_back(option);
  return options;
}

std::optional<Option> Command::find_option(const std::string& word) const {
  for (CLI::Option* option : app_->get_options())
    if (option->check_name(word.substr(0, word.find('=')))) return Option(option);
  return std::nullopt;
}

CommandLine::CommandLine(const std::string& name, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->formatter(std::make_shared<ExamplesFirst>());
  app_->set_help_flag("-h,--help", "print this help");
  app_->set_version_flag("--version", version, "print the version");
  // Each command takes one subcommand; commands inherit this. Later words are arguments, even if they equal the name of
  // another command (`--explain data`, `lmx report run`).
  app_->require_subcommand(0, 1);
}

CommandLine::~CommandLine() = default;

int CommandLine::parse(int argc, char** argv) const {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app_->exit(e);
  } catch (const CLI::Error& e) {
    std::string place = app_->get_name();
    for (const CLI::App* app = app_.get(); !app->get_subcommands().empty();) {
      app = app->get_subcommands().front();
      place += " " + app->get_name();
    }
    throw UserError(str(e.what(), "; see ", place, " --help"));
  }
  return 0;
}

}  // namespace lmx::app::cli

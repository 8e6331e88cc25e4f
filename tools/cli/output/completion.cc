#include "cli/output/completion.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <set>

#include "app/compose/compose.h"
#include "app/corpora/corpora.h"
#include "app/experiment/experiment.h"
#include "app/run/schema.h"
#include "app/run/shipped.h"
#include "backend/cuda.h"
#include "cli/commands.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::cli {
namespace {

namespace fs = std::filesystem;

// The words before the word to complete.
struct GivenWords {
  std::vector<std::string> plain;  // neither flags nor their values: the recipe, then overrides
  std::vector<std::string> config_directories;
  PluginDirectories plugins;
};
using Keys = std::map<std::string, std::set<std::string>>;  // each key with the values to suggest

// Returns the folders with a recipe's groups: its own folder, the folders named `recipes` above it, the search path.
std::vector<std::string> recipe_folders(const std::string& recipe, const std::vector<std::string>& more) {
  std::vector<std::string> folders{fs::path(recipe).parent_path().string()};
  if (folders[0].empty()) folders[0] = ".";
  for (fs::path p = fs::absolute(recipe).parent_path(); p.has_relative_path(); p = p.parent_path())
    if (p.filename() == "recipes") folders.push_back(p.string());
  folders.insert(folders.end(), more.begin(), more.end());
  return folders;
}

void add_options(const std::vector<std::string>& folders, const std::string& group, const std::string& start,
                 std::set<std::string>& out) {
  for (const std::string& folder : folders) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(fs::path(folder) / group, none))
      if (entry.path().extension() == ".yaml") out.insert(start + entry.path().stem().string());
  }
}

void add_groups(const std::vector<std::string>& folders, const std::string& start, std::set<std::string>& out) {
  for (const std::string& folder : folders) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
      if (entry.is_directory(none) && !entry.path().filename().string().starts_with("."))
        out.insert(start + entry.path().filename().string() + "=");
  }
}

void add_written(const Node& node, const std::string& path, Keys& keys) {
  for (const auto& [key, value] : node.entries) {
    const std::string full = path.empty() ? key : path + "." + key;
    if (value.kind == Node::Kind::map && !value.entries.empty()) {
      add_written(value, full, keys);
    } else {
      std::set<std::string>& values = keys[full];
      if (value.kind == Node::Kind::scalar) values.insert(value.text);
    }
  }
}

void add_part(const SchemaPart& part, Keys& keys) {
  if (const std::string chooser = choosing_key(part); !chooser.empty()) {
    keys[chooser].insert(part.component);
    keys[chooser].insert(part.others.begin(), part.others.end());
  }
  for (const FieldInfo& field : part.fields) {
    if (field.type == "map") continue;  // fields of a component, or free
    std::set<std::string>& values = keys[part.path.empty() ? field.name : part.path + "." + field.name];
    const std::vector<std::string> words = allowed_words(field);
    values.insert(words.begin(), words.end());
    const bool says_nothing = field.default_text.empty() || field.default_text == "???" || field.default_text == "''";
    if (values.empty() && !says_nothing) values.insert(field.default_text);
  }
}

// Composes the recipe with all overrides or, if that fails, with those that are valid.
Node composed(const std::string& recipe, ComposeOptions options) {
  const std::vector<std::string> overrides = std::exchange(options.overrides, {});
  ComposeOptions all = options;
  all.overrides = overrides;
  try {
    return compose(recipe, all);
  } catch (const Error&) {
  }
  Node tree = compose(recipe, options);
  for (const std::string& word : overrides) {
    options.overrides.push_back(word);
    try {
      tree = compose(recipe, options);
    } catch (const Error&) {
      options.overrides.pop_back();
    }
  }
  return tree;
}

// Returns possible overrides of the recipe plain[0] after the other overrides in `plain`: groups and their options,
// every key that the recipe or its components may have, and the values of a key that is complete. Does not load plugins
// whose build has described them.
std::set<std::string> override_words(const GivenWords& given, const std::string& word) {
  std::set<std::string> out;
  const std::string sign = word.substr(0, std::min(word.find_first_not_of("+~"), word.size()));
  const std::string body = word.substr(sign.size());
  const size_t equals = body.find('=');
  Keys keys;
  std::vector<std::string> folders;
  try {
    given.plugins.load();
    const ComposeOptions options =
        with_plugins({{given.plain.begin() + 1, given.plain.end()}, given.config_directories, true, false});
    const std::string recipe = recipe_file(given.plain[0]);
    folders = recipe_folders(recipe, options.search_path);
    const Node tree = composed(recipe, options);
    add_written(tree, "", keys);
    // Only existing keys can be removed.
    if (!sign.starts_with("~"))
      for (const SchemaPart& part : recipe_schema(tree)) add_part(part, keys);
  } catch (const Error&) {
    // The command itself will report the error. Until then, suggest what is known.
  }
  if (keys.empty()) return out;
  if (equals == std::string::npos) {
    add_groups(folders, sign, out);
    for (const auto& [key, values] : keys) out.insert(sign + key + (sign == "~" ? "" : "="));
    return out;
  }
  // The last of several values, as `lmx sweep` takes them: optimizer=adam,sgd.
  const size_t comma = body.rfind(',');
  const size_t begin = comma == std::string::npos || comma < equals ? equals : comma;
  const std::string key = body.substr(0, equals), start = sign + body.substr(0, begin + 1);
  add_options(folders, key, start, out);
  if (const auto known = keys.find(key); known != keys.end())
    for (const std::string& value : known->second) out.insert(start + value);
  return out;
}

constexpr const char* kFiles = ":files";

std::vector<std::string> flags(Command app) {
  std::vector<std::string> all;
  for (const Option& option : app.options()) {
    if (option.is_hidden()) continue;
    for (const std::string& name : option.names())
      if (name.starts_with("--")) all.push_back(name);
  }
  return all;
}

std::set<std::string> plugin_names() {
  std::set<std::string> names;
  Registry::instance().add_default_directories();
  for (const PluginInfo& info : Registry::instance().list()) names.insert(info.name);
  return names;
}

std::set<std::string> experiment_names() {
  std::set<std::string> names;
  for (const auto& [id, file] : experiment::find_experiments()) names.insert(id);
  return names;
}

std::set<std::string> corpus_names() {
  std::set<std::string> names;
  for (const Corpus& corpus : corpora()) names.insert(corpus.name);
  return names;
}

bool takes_value(Command app, const std::string& word) {
  const std::optional<Option> option = app.find_option(word);
  return option && option->takes_value();
}

// Returns the names of `--device` that this machine has.
std::set<std::string> device_names() {
  std::set<std::string> names{"auto", "cpu"};
  const int devices = load_cuda();
  if (devices > 0) names.insert("cuda");
  for (int i = 0; i < devices; ++i) names.insert(name_of(Device{Device::Kind::cuda, i}));
  return names;
}

// Returns last, best and the steps of the run's checkpoints. A file may be given instead.
std::set<std::string> checkpoint_names(const GivenWords& given) {
  std::set<std::string> names{"last", "best", kFiles};
  if (given.plain.empty()) return names;
  for (const CheckpointInfo& c : list_checkpoints(given.plain[0])) names.insert(std::to_string(c.step));
  return names;
}

// Returns the scales of the experiment plain[0], or those of all experiments if there is no such experiment.
std::set<std::string> scale_names(const GivenWords& given) {
  std::set<std::string> names;
  const auto add = [&](const std::string& file) {
    for (const experiment::Scale& s : experiment::read_experiment(file).scales) names.insert(s.id);
  };
  try {
    if (!given.plain.empty()) {
      add(experiment::experiment_file(given.plain[0]));
      return names;
    }
  } catch (const UserError&) {  // the command reports it when it runs
  }
  for (const auto& [id, file] : experiment::find_experiments()) add(file);
  return names;
}

// Returns the machines of `lmx plan` in the folders `machine` of recipes. A file may be given instead.
std::set<std::string> machine_names(const GivenWords& given) {
  std::set<std::string> names{kFiles};
  if (!given.plain.empty()) add_options(recipe_folders(given.plain[0], given.config_directories), "machine", "", names);
  if (const auto shipped = shipped_folder("recipes")) add_options({shipped->string()}, "machine", "", names);
  return names;
}

// Puts the other items of a list before each value: "bleu,ch" becomes "bleu,chrf".
std::set<std::string> behind_items(const std::set<std::string>& values, const std::string& items) {
  std::set<std::string> lists;
  for (const std::string& value : values) lists.insert(items + value);
  return lists;
}

// Returns the possible values of the option or argument `name` of the command `place`. `begun`: the beginning of the
// value that the user has typed.
std::set<std::string> values(const Option& option, const std::string& place, const std::string& name,
                             const GivenWords& given, const std::string& begun) {
  if (std::set<std::string> words = option.words(); !words.empty()) {
    const size_t comma = option.is_list() ? begun.rfind(',') : std::string::npos;
    return comma == std::string::npos ? words : behind_items(words, begun.substr(0, comma + 1));
  }
  if (name == "RECIPE") {  // a file may be given instead
    const std::vector<std::string> recipes = shipped_recipes();
    std::set<std::string> names(recipes.begin(), recipes.end());
    names.insert(kFiles);
    return names;
  }
  if (name == "--device") return device_names();
  if (name == "--checkpoint") return checkpoint_names(given);
  if (name == "--machine") return machine_names(given);
  if (place.starts_with("experiment ") && name == "--scale") return scale_names(given);
  if (place == "plugins info" && name == "NAME") return plugin_names();
  if (place.starts_with("experiment ") && name == "NAME") return experiment_names();
  if ((place == "data fetch" && name == "NAME") || name == "--corpus") return corpus_names();
  return {kFiles};
}

GivenWords given_words(Command app, const std::vector<std::string>& words) {
  GivenWords given;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    if (!words[i].starts_with("-")) {
      given.plain.push_back(words[i]);
    } else if (takes_value(app, name)) {
      const std::string value = equals != std::string::npos ? words[i].substr(equals + 1)
                                : i + 2 < words.size()      ? words[++i]
                                                            : "";
      if (name == "--config-dir") given.config_directories.push_back(value);
      if (name == "--plugin-dir") given.plugins.directories.push_back(value);
    }
  }
  return given;
}

// Returns the command that the first of `words` name. Moves these words from `words` to `place`.
Command command_of(Command root, std::vector<std::string>& words, std::string& place) {
  Command app = root;
  while (words.size() > 1) {
    const std::optional<Command> next = app.find_command(words[0]);
    if (!next) break;
    app = *next;
    place += (place.empty() ? "" : " ") + words[0];
    words.erase(words.begin());
  }
  return app;
}

// Completes arguments in the order in which a command takes them; the last argument may be a list.
std::set<std::string> arguments(Command app, const std::string& place, const std::vector<std::string>& words) {
  const GivenWords given = given_words(app, words);
  std::vector<Option> all;
  for (const Option& option : app.options())
    if (!option.argument().empty()) all.push_back(option);
  if (all.empty()) return {};
  const Option& next = all[std::min(given.plain.size(), all.size() - 1)];
  const std::string name = next.argument();
  if (name != "OVERRIDES") return values(next, place, name, given, words.back());
  return all[0].argument() == "RECIPE" ? override_words(given, words.back()) : std::set<std::string>{};
}

std::set<std::string> candidates(Command root, std::vector<std::string> words) {
  std::string place;
  const Command app = command_of(root, words, place);
  const std::string& word = words.back();
  std::set<std::string> out;
  if (word.starts_with("-")) {
    const size_t equals = word.find('=');
    if (const std::optional<Option> option = app.find_option(word); option && equals != std::string::npos) {
      const std::string name = word.substr(0, equals);
      for (const std::string& value : values(*option, place, name, given_words(app, words), word.substr(equals + 1)))
        out.insert(value == kFiles ? value : name + "=" + value);
      return out;
    }
    for (const std::string& name : flags(app)) out.insert(name);
    return out;
  }
  if (words.size() > 1 && takes_value(app, words[words.size() - 2])) {
    const std::string& name = words[words.size() - 2];
    return values(*app.find_option(name), place, name, given_words(app, words), word);
  }
  const std::vector<Command> below = app.commands();
  for (const Command& c : below) out.insert(c.name());
  return below.empty() ? arguments(app, place, words) : out;
}

std::string roff(const std::string& text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_begins = c == '\n';
  }
  return out;
}

void add_command(Command app, const std::string& place, std::string& page) {
  page +=
      ".SS \"" + roff(place) + "\"\n" + roff(app.description()) + "\n.PP\n.nf\n" + roff(app.help(place)) + "\n.fi\n";
  for (const Command& c : app.commands()) add_command(c, place + " " + c.name(), page);
}

constexpr const char* kBash = R"(# Completion of lmx for bash:  source <(lmx completion bash)
_lmx() {
  local line="${COMP_LINE:0:COMP_POINT}" words=() word="" quote="" files="" opened candidate c i
  for ((i = 0; i < ${#line}; ++i)); do
    c="${line:i:1}"
    if [[ $quote && $c == "$quote" ]]; then
      quote=""
    elif [[ ! $quote && $c == [\"\'] ]]; then
      quote="$c" opened=${#word}
    elif [[ $c == "\\" && $quote != "'" ]]; then
      ((++i))
      word+="${line:i:1}"
    elif [[ ! $quote && $c == [[:blank:]] ]]; then
      [[ $word ]] && words+=("${word/#"~/"/"$HOME/"}")
      word=""
    else
      word+="$c"
    fi
  done
  words+=("$word")
  # Bash breaks words at = and :, and at a quote that is open, and wants what follows the last of them.
  local before="${word%"${word##*[=:]}"}"
  [[ $quote ]] && before="${word:0:opened}"
  COMPREPLY=()
  while IFS= read -r candidate; do
    if [[ $candidate == :files ]]; then
      compopt -o default -o filenames 2>/dev/null
      files=1
    elif [[ $candidate == "$word"* ]]; then
      COMPREPLY+=("${candidate#"$before"}")
      [[ $candidate == *[=./] ]] && compopt -o nospace 2>/dev/null
    fi
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
  # Bash itself lists files only if there is no other candidate.
  [[ $files && ${#COMPREPLY[@]} -gt 0 ]] || return 0
  while IFS= read -r candidate; do COMPREPLY+=("${candidate#"$before"}"); done < <(compgen -f -- "$word")
}
complete -F _lmx lmx
)";

constexpr const char* kZsh = R"(#compdef lmx
# Completion of lmx for zsh: in a folder of $fpath as _lmx, or  source <(lmx completion zsh)
_lmx() {
  local -a all open closed
  all=("${(@f)$(${words[1]} __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  if (( ${all[(Ie):files]} )); then
    all=("${(@)all:#:files}")
    _files
  fi
  open=(${(M)all:#*[=./]})
  closed=(${all:#*[=./]})
  compadd -S '' -a open
  compadd -a closed
}
if [[ $funcstack[1] == _lmx ]]; then
  _lmx "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
  compdef _lmx lmx
fi
)";

}  // namespace

std::vector<std::string> completions(Command root, const std::vector<std::string>& words) {
  std::vector<std::string> out;
  const std::vector<std::string> asked = words.empty() ? std::vector<std::string>{""} : words;
  for (const std::string& c : candidates(root, asked))
    if (c == kFiles || c.starts_with(asked.back())) out.push_back(c);
  return out;
}

std::string manual_page(Command root) {
  std::string page = str(".TH LMX 1 \"\" \"lmx ", kVersion, "\"\n.SH NAME\nlmx \\- ", roff(root.description()), "\n");
  page += ".SH SYNOPSIS\n.B lmx\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n";
  page += ".nf\n" + roff(root.help()) + "\n.fi\n.SH COMMANDS\n";
  for (const Command& c : root.commands()) add_command(c, "lmx " + c.name(), page);
  page +=
      ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nthe run failed: it diverged, a rank was lost, the disk is full\n.TP\n2\n";
  page += "the input is wrong: a recipe, an override, a flag or a plugin; one message names the place\n.TP\n130, 143\n";
  page +=
      "ended by SIGINT, or by SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2, after a checkpoint\n.SH "
      "ENVIRONMENT\n.TP\nLMX_PLUGIN_PATH\nfolders of plugins, "
      "separated by colons\n";
  page +=
      ".TP\nLMX_DATA_DIR\nfolders of corpora\n.TP\nNO_COLOR\nno colours on the terminal\n"
      ".TP\nCOLUMNS\nwidth of help and tables, if not that of the terminal\n"
      ".TP\nLMX_PROGRESS_S\nseconds between lines of progress without a terminal (30); 0: none\n";
  return page;
}

void add_completion(Command app) {
  const Command command = app.add_subcommand("completion", "print a script that completes lmx's words in a shell");
  set_examples(command, {{"lmx completion bash > ~/.local/share/bash-completion/completions/lmx", "for every new bash"},
                         {"source <(lmx completion bash)", "for this one"},
                         {"lmx completion zsh > ~/.zfunc/_lmx", "a folder of $fpath"}});
  const auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "bash or zsh").required().one_of({"bash", "zsh"});
  command.callback([shell] { std::cout << (*shell == "bash" ? kBash : kZsh); });
}

}  // namespace lmx::app::cli

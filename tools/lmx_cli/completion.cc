#include "completion.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "commands.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/plugin.h"

namespace lmx_cli {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFiles = ":files";

std::vector<CLI::App*> visible_commands(const CLI::App& app) {
  std::vector<CLI::App*> commands;
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!c->get_group().empty()) commands.push_back(const_cast<CLI::App*>(c));
  return commands;
}

std::vector<std::string> flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Where a recipe's groups lie: its own folder, the folders named `recipes` above it, --config-dir.
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

void add_keys(const lmx::Node& node, const std::string& path, std::set<std::string>& out) {
  for (const auto& [key, value] : node.entries) {
    const std::string full = path.empty() ? key : path + "." + key;
    if (value.kind == lmx::Node::Kind::map && !value.entries.empty())
      add_keys(value, full, out);
    else
      out.insert(full + "=");
  }
}

// Overrides of a recipe. Composed without plugins, so that it takes milliseconds.
std::set<std::string> overrides(const std::string& recipe, const std::string& word,
                                const std::vector<std::string>& dirs) {
  std::set<std::string> out;
  const std::vector<std::string> folders = recipe_folders(recipe, dirs);
  const std::string sign = word.substr(0, std::min(word.find_first_not_of("+~"), word.size()));
  const std::string body = word.substr(sign.size());
  const size_t equals = body.find('=');
  lmx::Node tree;
  try {
    tree = lmx::compose(recipe, {{}, dirs, false, false});
  } catch (const lmx::Error&) {
    return out;  // the command itself will say what is wrong
  }
  if (equals == std::string::npos) {
    add_groups(folders, sign, out);
    std::set<std::string> keys;
    add_keys(tree, "", keys);
    for (const std::string& key : keys) out.insert(sign + (sign == "~" ? key.substr(0, key.size() - 1) : key));
    return out;
  }
  const std::string key = body.substr(0, equals), start = sign + key + "=";
  add_options(folders, key, start, out);
  if (const lmx::Node* value = tree.at_path(key); value && value->kind == lmx::Node::Kind::scalar)
    out.insert(start + value->text);
  return out;
}

std::set<std::string> plugin_names() {
  std::set<std::string> names;
  lmx::Registry::instance().add_default_directories();
  for (const lmx::PluginInfo& info : lmx::Registry::instance().list()) names.insert(info.name);
  return names;
}

bool takes_value(const CLI::App& app, const std::string& word) {
  for (const CLI::Option* option : app.get_options())
    if (option->check_name(word)) return option->get_items_expected_min() > 0;
  return false;
}

// Words that are no flags and no values of flags.
std::vector<std::string> positionals(const CLI::App& app, const std::vector<std::string>& words,
                                     std::vector<std::string>& dirs) {
  std::vector<std::string> plain;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (!words[i].starts_with("-")) {
      plain.push_back(words[i]);
    } else if (takes_value(app, words[i]) && words[i].find('=') == std::string::npos) {
      if (words[i] == "--config-dir" && i + 2 < words.size()) dirs.push_back(words[i + 1]);
      ++i;
    }
  }
  return plain;
}

std::set<std::string> candidates(CLI::App& root, std::vector<std::string> words) {
  CLI::App* app = &root;
  std::string place;
  while (words.size() > 1) {
    const std::vector<CLI::App*> below = visible_commands(*app);
    const auto next =
        std::find_if(below.begin(), below.end(), [&](const CLI::App* c) { return c->get_name() == words[0]; });
    if (next == below.end()) break;
    app = *next;
    place += (place.empty() ? "" : " ") + words[0];
    words.erase(words.begin());
  }
  std::set<std::string> out;
  const std::string word = words.back();
  if (word.starts_with("-")) {
    for (const std::string& name : flags(*app)) out.insert(name);
    return out;
  }
  if (words.size() > 1 && takes_value(*app, words[words.size() - 2])) return {kFiles};
  if (const std::vector<CLI::App*> below = visible_commands(*app); !below.empty()) {
    for (const CLI::App* c : below) out.insert(c->get_name());
    return out;
  }
  if (place == "plugins info") return plugin_names();
  if (place == "plugins new") return {"model", "sync", "batcher"};
  if (place == "completion") return {"bash", "zsh"};
  std::vector<std::string> dirs;
  const std::vector<std::string> before = positionals(*app, words, dirs);
  const bool has_overrides = app->get_option_no_throw("OVERRIDES") != nullptr;
  if (before.empty() || !has_overrides) return {kFiles};
  return overrides(before[0], word, dirs);
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

void add_command(const CLI::App& app, const std::string& place, std::string& page) {
  page += ".SS \"" + roff(place) + "\"\n" + roff(app.get_description()) + "\n.PP\n.nf\n" + roff(app.help(place)) +
          "\n.fi\n";
  for (const CLI::App* c : visible_commands(app)) add_command(*c, place + " " + c->get_name(), page);
}

constexpr const char* kBash = R"(# Completion of lmx for bash:  source <(lmx completion bash)
_lmx() {
  local line="${COMP_LINE:0:COMP_POINT}" words candidate
  read -ra words <<<"$line"
  [[ $line == *[[:blank:]] ]] && words+=("")
  local word="${words[${#words[@]}-1]}"
  # Bash breaks words at = and : and wants what follows the last of them.
  local before="${word%"${word##*[=:]}"}"
  COMPREPLY=()
  while IFS= read -r candidate; do
    if [[ $candidate == :files ]]; then
      compopt -o default -o filenames 2>/dev/null
    elif [[ $candidate == "$word"* ]]; then
      COMPREPLY+=("${candidate#"$before"}")
      [[ $candidate == *[=./] ]] && compopt -o nospace 2>/dev/null
    fi
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _lmx lmx
)";

constexpr const char* kZsh = R"(#compdef lmx
# Completion of lmx for zsh: in a folder of $fpath as _lmx, or  source <(lmx completion zsh)
_lmx() {
  local -a all open closed
  all=("${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ ${all[1]} == :files ]]; then
    _files
    return
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

std::vector<std::string> completions(CLI::App& root, const std::vector<std::string>& words) {
  std::vector<std::string> out;
  const std::vector<std::string> asked = words.empty() ? std::vector<std::string>{""} : words;
  for (const std::string& c : candidates(root, asked))
    if (c == kFiles || c.starts_with(asked.back())) out.push_back(c);
  return out;
}

std::string manual_page(CLI::App& root) {
  std::string page =
      lmx::str(".TH LMX 1 \"\" \"lmx ", lmx::kVersion, "\"\n.SH NAME\nlmx \\- ", roff(root.get_description()), "\n");
  page += ".SH SYNOPSIS\n.B lmx\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n";
  page += ".nf\n" + roff(root.help()) + "\n.fi\n.SH COMMANDS\n";
  for (const CLI::App* c : visible_commands(root)) add_command(*c, "lmx " + c->get_name(), page);
  page +=
      ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nthe run failed: it diverged, a rank was lost, the disk is full\n.TP\n2\n";
  page += "what was given is wrong: a recipe, an override, a flag, a plugin; one message says where\n.TP\n130, 143\n";
  page +=
      "ended by SIGINT or SIGTERM, after a checkpoint\n.SH ENVIRONMENT\n.TP\nLMX_PLUGIN_PATH\nfolders of plugins, "
      "separated by colons\n";
  page += ".TP\nLMX_DATA_DIR\nwhere corpora lie\n.TP\nNO_COLOR\nno colours on the terminal\n";
  return page;
}

void add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "print a script that completes lmx's words in a shell");
  set_examples(*command,
               {{"lmx completion bash > ~/.local/share/bash-completion/completions/lmx", "for every new bash"},
                {"source <(lmx completion bash)", "for this one"},
                {"lmx completion zsh > ~/.zfunc/_lmx", "a folder of $fpath"}});
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}))->type_name("");
  command->callback([shell] { std::cout << (*shell == "bash" ? kBash : kZsh); });
}

}  // namespace lmx_cli

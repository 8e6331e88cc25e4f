// lmx new: writes a recipe for a user's text into a new folder.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <memory>

#include "app/compose/compose.h"
#include "app/new/new_recipe.h"
#include "app/print/words.h"
#include "app/run/shipped.h"
#include "app/runs/run_directory.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "lmx/error.h"
#include "recipe/recipe.h"

namespace lmx::app::cli {
namespace {

namespace fs = std::filesystem;

struct NewFlags {
  std::string folder, field, tokens;
  std::vector<std::string> text, pairs, languages;
  double minutes = 15;
};

// The name of a folder is also the name of its recipe and of the recipe's runs.
std::string name_of(const std::string& folder) {
  fs::path path = fs::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  const auto good = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c >= 0x80; };
  if (name.empty() || name[0] == '-' || !std::all_of(name.begin(), name.end(), good))
    throw UserError(str("[new] '", name, "' cannot be the name of a recipe; letters, digits, _ and - can"));
  return name;
}

std::string absolute(const std::string& file) {
  return fs::absolute(file).lexically_normal().string();
}

// Returns the language code at the end of a file name: "train.de.gz" -> "de"; "" if there is none.
std::string language_of(const std::string& file) {
  fs::path path = file;
  if (path.extension() == ".gz" || path.extension() == ".zst") path.replace_extension();
  const std::string end = path.extension().string();
  const bool code =
      end.size() == 3 && std::all_of(end.begin() + 1, end.end(), [](unsigned char c) { return std::islower(c); });
  return code ? end.substr(1) : "";
}

std::vector<std::string> languages_of(const NewFlags& o) {
  if (!o.languages.empty()) return o.languages;
  const std::vector<std::string> found{language_of(o.pairs[0]), language_of(o.pairs[1])};
  if (found[0].empty() || found[1].empty())
    throw UserError(str("[new] the names ", o.pairs[0], " and ", o.pairs[1],
                        " do not end in languages (such as .en and .de); give --languages SOURCE TARGET"));
  return found;
}

new_recipe::Written written(const NewFlags& o, const std::string& name) {
  const new_recipe::Budget budget = new_recipe::budget_of_this_machine(o.minutes);
  if (!o.text.empty()) {
    new_recipe::TextRequest request{name, {}, o.field, o.tokens, budget};
    for (const std::string& file : o.text) request.files.push_back(absolute(file));
    return new_recipe::write_text_recipe(request);
  }
  const std::vector<std::string> languages = languages_of(o);
  return new_recipe::write_pair_recipe(
      {name, absolute(o.pairs[0]), absolute(o.pairs[1]), languages[0], languages[1], budget});
}

void make(const NewFlags& o) {
  if (o.text.empty() == o.pairs.empty())
    throw UserError(
        "[new] name your text: --text FILES for a language model, or --pairs SOURCE TARGET for translation");
  if (!o.pairs.empty() && !o.tokens.empty())
    throw UserError("[new] --tokens is of --text; parallel text is cut into subwords");
  if (!o.pairs.empty() && !o.field.empty())
    throw UserError("[new] --field is of --text; files of pairs have no fields");
  if (!o.text.empty() && !o.languages.empty())
    throw UserError("[new] --languages is of --pairs; a language model needs none");
  const std::string name = name_of(o.folder);
  check_new_folder("new", o.folder);
  PluginDirectories().load();
  const new_recipe::Written recipe = written(o, name);
  NewFolder folder("new", o.folder);
  const std::string draft = folder.path(name + ".yaml");
  write_file(draft, recipe.yaml);
  static_cast<void>(full_recipe(compose(draft, with_plugins({})), name));
  folder.finish();
  for (const std::string& line : recipe.summary) std::cout << line << "\n";
  const std::string file = (fs::path(o.folder) / (name + ".yaml")).lexically_normal().string();
  const std::string lmx = "  " + command_name(), path = shell_quoted(file);
  std::cout << "wrote " << file << ", with a reason for each choice\nnext:\n"
            << lmx << " run " << path << " --dry-run\n"
            << lmx << " run " << path << "\n";
}

}  // namespace

void add_new(Command app) {
  const Command command =
      app.add_subcommand("new", "write a recipe for your own text, fitted to the text and this machine");
  set_examples(command,
               {{"lmx new novels --text books/*.txt", "a language model; writes novels/novels.yaml"},
                {"lmx new web --text web/ --field text", "the field `text` of the JSON lines (.jsonl.zst) in a folder"},
                {"lmx new letters --text notes.txt --tokens chars", "a model of characters instead of words"},
                {"lmx new en-de --pairs text.en text.de", "translation; line i of one file translates the other's"},
                {"lmx new big --text book.txt --minutes 600", "a larger model that trains longer"}});
  const auto o = std::make_shared<NewFlags>();
  command.add_option("FOLDER", o->folder, "a new folder; its name is the recipe's").required().writes();
  command.add_option("--text FILES", o->text, "text files, folders or globs, .gz and .zst too, for a language model");
  command.add_option("--field NAME", o->field, "the field of .jsonl, or column of .csv files, that holds the text");
  command.add_option("--pairs FILE", o->pairs, "two files (or globs), for translation from the first into the second")
      .takes(2);
  command
      .add_option("--languages CODE", o->languages,
                  "languages of the pairs (en de ...), if the file names do not end in them")
      .takes(2);
  command
      .add_option("--tokens UNIT", o->tokens,
                  "what the model predicts; without it characters for fewer than 100,000 words or text without blanks, "
                  "subwords for more than 2,000,000 words, otherwise words")
      .one_of({"words", "chars", "bytes", "subwords"});
  command.add_option("--minutes N", o->minutes, "the time that training is to take, by estimate (15)").positive();
  command.callback([o] { make(*o); });
}

}  // namespace lmx::app::cli

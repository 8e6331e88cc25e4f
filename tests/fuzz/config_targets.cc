// Recipes, overrides, interpolation.
#include <stdexcept>

#include "app/compose/interpolate.h"
#include "app/compose/override.h"
#include "app/compose/sources.h"
#include "lmx/config.h"
#include "lmx/log.h"
#include "targets.h"

namespace lmx::fuzz {
namespace {

void expect_same(const std::string& what, const Node& before, const Node& after) {
  const std::string a = to_json(before), b = to_json(after);
  if (a != b) throw std::logic_error(str(what, " reads back to another value:\n", a, "\n", b));
}

void expect_reads_back(const Node& node) {
  const std::string text = to_yaml(node);
  try {
    expect_same("what to_yaml writes", node, parse_yaml(text, "written.yaml"));
  } catch (const UserError& e) {
    throw std::logic_error(str("what to_yaml writes is refused: ", e.what(), "\n", text));
  }
}

// A tree that overrides change and that interpolations refer to.
Node small_recipe() {
  return parse_yaml(
      "model: {name: lstm, cells: 512, dropout: [0.1, 0.2]}\ntrain: {steps: 100, clip: null}\nseed: ???\n",
      "recipe.yaml");
}

// Sets one key for each line of the input. A line after `- ` is added to the list of the line before, a line after a
// blank to its map.
Node tree_of_lines(std::string_view input) {
  Node root = small_recipe();
  char name = 'a';
  Node* last = nullptr;
  while (!input.empty()) {
    const std::string_view line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(input.size(), line.size() + 1));
    if (last && line.starts_with("- ")) {
      if (last->kind != Node::Kind::list) *last = Node::list({*last}, last->mark);
      last->items.push_back(Node::scalar(std::string(line.substr(2)), last->mark));
    } else if (last && line.starts_with(" ")) {
      if (last->kind != Node::Kind::map) *last = Node::map(last->mark);
      last->set(std::string(1, static_cast<char>('a' + last->entries.size() % 26)),
                Node::scalar(std::string(line.substr(1)), last->mark));
    } else {
      last = &root.set(std::string(1, name), Node::scalar(std::string(line), {"recipe.yaml", name - 'a' + 1, 1}));
      name = name == 'z' ? 'a' : static_cast<char>(name + 1);
    }
  }
  return root;
}

}  // namespace

void yaml(std::string_view input) {
  try {
    expect_reads_back(parse_yaml(input, "fuzzed.yaml"));
  } catch (const UserError&) {
  }
}

void override_text(std::string_view input) {
  try {
    const app::Override o = app::parse_override(std::string(input));
    if (o.sweep) {
      for (const app::Term& term : o.sweep->terms)
        expect_same("a term of a sweep", term.value, app::parse_value(term.text, o.mark));
      return;
    }
    if (o.value) {
      const std::string text = app::value_text(*o.value);
      expect_same(str("the value's text ", text), *o.value, app::parse_value(text, o.mark));
    }
    Node tree = small_recipe();
    app::apply_override(tree, o, {true, {}});
    expect_reads_back(tree);
  } catch (const UserError&) {
  }
}

void interpolation(std::string_view input) {
  set_log_level(LogLevel::error);  // oc.deprecated warns
  const Node tree = tree_of_lines(input);
  app::RunValues run;
  run.name = "fuzzed";
  run.choices["model"] = "lstm";
  try {
    app::resolve_interpolations(tree, run);
  } catch (const UserError&) {
  }
}

}  // namespace lmx::fuzz

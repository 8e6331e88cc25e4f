#include "app/experiment/cells.h"

#include "app/compose/compose.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "app/print/words.h"
#include "app/run/shipped.h"
#include "app/sweep/grid.h"
#include "base/text.h"
#include "config/error_collector.h"
#include "lmx/error.h"
#include "recipe/comm_config.h"
#include "recipe/recipe.h"

namespace lmx::app::experiment {
namespace {

std::vector<std::string> labels_of(const Axis& axis) {
  std::vector<std::string> labels;
  for (const AxisValue& value : axis.values) labels.push_back(value.label);
  return labels;
}

// Returns the values of `axis` that a choice names: one, or a list.
std::vector<std::string> named_values(const Axis& axis, const Node& node, const std::string& path) {
  std::vector<Node> items{node};
  if (node.kind == Node::Kind::list) items = node.items;
  const std::vector<std::string> labels = labels_of(axis);
  std::vector<std::string> named;
  for (const Node& item : items) {
    if (std::find(labels.begin(), labels.end(), item.text) == labels.end())
      throw UserError(at(item, path) + str("axis ", axis.id, " has no value '", item.text, "'",
                                           did_you_mean(item.text, labels), "; it has ", joined(labels)));
    named.push_back(item.text);
  }
  return named;
}

void check_choice(const Experiment& e, const Node& choice, const std::string& path, bool with_run = false) {
  if (choice.kind != Node::Kind::map) throw UserError(at(choice, path) + "expected a map, axis: value");
  std::vector<std::string> names;
  for (const Axis& axis : e.axes) names.push_back(axis.id);
  for (const auto& [key, node] : choice.entries) {
    if (with_run && key == "run") continue;
    const Axis* axis = e.axis(key);
    if (!axis)
      throw UserError(at(node, path) +
                      str("there is no axis '", key, "'", did_you_mean(key, names), "; there are ", joined(names)));
    static_cast<void>(named_values(*axis, node, path));
  }
}

using Place = std::vector<std::pair<std::string, std::string>>;

// Returns every combination of the axes' values that `choice` permits; the first axis varies slowest.
std::vector<Place> combinations(const Experiment& e, const Node* choice, const std::string& path) {
  std::vector<Place> places{{}};
  for (const Axis& axis : e.axes) {
    const Node* node = choice ? choice->find(axis.id) : nullptr;
    Place words;
    for (const std::string& value : node ? named_values(axis, *node, path) : labels_of(axis))
      words.emplace_back(axis.id, value);
    places = sweep::continued(places, words);
  }
  return places;
}

std::string id_of(const Place& place) {
  std::string id;
  for (const auto& [axis, value] : place) id += (id.empty() ? "" : "-") + value;
  return id.empty() ? "only" : id;
}

std::vector<Cell> empty_cells(const Experiment& e, const Scale& scale) {
  const bool own = scale.cells.kind != Node::Kind::null;
  const Node& choices = own ? scale.cells : e.cells;
  const std::string path = own ? "scales." + scale.id + ".cells" : "cells";
  std::vector<Cell> cells;
  std::set<std::string> ids;
  const auto add = [&](const Place& place, bool runs, const Node& from) {
    Cell cell;
    cell.id = id_of(place);
    cell.place = place;
    cell.runs = runs;
    if (!ids.insert(cell.id).second) throw UserError(at(from, path) + str("cell ", cell.id, " is chosen twice"));
    cells.push_back(std::move(cell));
  };
  if (choices.kind == Node::Kind::null) {
    for (const Place& place : combinations(e, nullptr, path)) add(place, true, choices);
    return cells;
  }
  if (choices.kind != Node::Kind::list) throw UserError(at(choices, path) + "expected a list of choices");
  for (const Node& choice : choices.items) {
    check_choice(e, choice, path, true);
    const Node* run = choice.find("run");
    const auto runs = run ? parse_bool(run->text) : true;
    if (!runs) throw UserError(at(*run, path + ".run") + "expected true or false");
    for (const Place& place : combinations(e, &choice, path)) add(place, *runs, choice);
  }
  return cells;
}

void add_variables(const Experiment& e, Cell& cell, const Node& map, const std::string& path) {
  if (map.kind == Node::Kind::null) return;
  if (map.kind != Node::Kind::map) throw UserError(at(map, path) + "expected a map, name: formula");
  for (const auto& [name, node] : map.entries) {
    if (cell.variables.contains(name) || cell.value(name))
      throw UserError(at(node, path + "." + name) + "the name is taken already");
    const Node* formula = formula_for(e, cell, node, path + "." + name);
    if (!formula && cell.types) continue;  // the cell has no axis values, and no other formula uses its variables
    if (!formula) throw UserError(at(node, path + "." + name) + str("it has no value for cell ", cell.id));
    cell.variables[name] = evaluate(*formula, path + "." + name, CellScope(cell));
  }
}

constexpr const char* kVirtual = "comm=virtual";

struct Override {
  std::string text;
  Mark mark;
};

// Leaves out `comm=virtual` if the cell is launched: its ranks are then processes of the recipe's own comm.
void add_override(std::vector<Override>& overrides, const Cell& cell, const Node& node) {
  std::string text = filled(cell, node.text);
  if (!cell.launched || text != kVirtual) overrides.push_back({std::move(text), node.mark});
}

void add_overrides(std::vector<Override>& overrides, const Cell& cell, const Node& list, const std::string& path) {
  if (list.kind == Node::Kind::null) return;
  if (list.kind != Node::Kind::list)
    throw UserError(at(list, path) + "expected a list such as [seed=2, batch.global=64]");
  for (const Node& node : list.items) {
    if (node.kind != Node::Kind::scalar) throw UserError(at(node, path) + "expected a text such as seed=2");
    add_override(overrides, cell, node);
  }
}

std::vector<Override> overrides_of(const Experiment& e, const Scale& scale, const Cell& cell) {
  std::vector<Override> overrides;
  add_overrides(overrides, cell, scale.overrides, "scales." + scale.id + ".overrides");
  if (cell.types) return overrides;  // only the data of its recipe matters
  add_overrides(overrides, cell, e.overrides, "overrides");
  for (const auto& [axis_id, label] : cell.place)
    for (const AxisValue& value : e.axis(axis_id)->values)
      if (value.label == label)
        for (const Node& node : value.overrides) add_override(overrides, cell, node);
  return overrides;
}

// Prefixes the message of an error in a cell's recipe with the position in the experiment's file that caused it.
std::string placed(const Scale& scale, const Cell& cell, const std::vector<Override>& overrides,
                   const std::string& message) {
  for (const Override& o : overrides)
    if (message.find("override '" + o.text) != std::string::npos)
      return str(to_string(o.mark), ": cell ", cell.id, ": ", message);
  return str(to_string(scale.mark), ": cell ", cell.id, ": ", message);
}

void take_resources(const Node& full, Cell& cell) {
  cell.demand = jobs::demand_of(full);
  cell.length = jobs::length_of(full);
  const Node* comm = full.find("comm");
  if (!comm) return;
  cell.ranks = std::max<int64_t>(1, comm_ranks(*comm, "comm"));
  cell.virtual_ranks = cell.ranks > 1 && in_one_process(*comm, "comm");
}

// The ranks of a launched cell must be processes. The message names the override that makes them threads, if there is
// one.
void check_launched(const Scale& scale, const Cell& cell, const std::vector<Override>& overrides) {
  if (!cell.launched || !cell.runs || !cell.virtual_ranks) return;
  const auto last = std::find_if(overrides.rbegin(), overrides.rend(), [](const Override& o) {
    const std::string text = o.text.substr(std::min(o.text.find_first_not_of('+'), o.text.size()));
    return text.starts_with("comm=") || text.starts_with("comm.name=");
  });
  const bool own = last == overrides.rend();
  throw UserError(str(to_string(own ? scale.mark : last->mark), ": cell ", cell.id,
                      ": --launcher starts ranks as processes, and ", own ? "its recipe" : str("'", last->text, "'"),
                      " makes them threads of one process; add comm=mpi, comm=gloo or comm=nccl to the command"));
}

void compose_cell(const Experiment& e, const Scale& scale, const std::vector<std::string>& more, Cell& cell) {
  std::vector<Override> overrides = overrides_of(e, scale, cell);
  for (const std::string& text : more) overrides.push_back({text, {"command line", 0, 0}});
  ComposeOptions options;
  for (const Override& o : overrides) options.overrides.push_back(o.text);
  cell.overrides = options.overrides;
  cell.recipe_file = e.path_of(filled(cell, scale.recipe));
  try {
    cell.composed = compose(cell.recipe_file, with_plugins(options));
    const Node full = full_recipe(cell.composed, cell.id);
    cell.yaml = to_yaml(full);
    if (!cell.types) take_resources(full, cell);  // one process counts words, for any number of ranks
  } catch (const UserError& error) {
    std::vector<std::string> messages = messages_of(error);
    for (std::string& message : messages) message = placed(scale, cell, overrides, message);
    fail_together(messages, "mistakes");
  }
  check_launched(scale, cell, overrides);
}

}  // namespace

std::string filled(const Cell& cell, const std::string& text) {
  std::string out;
  size_t from = 0;
  for (size_t open; (open = text.find("${", from)) != std::string::npos;) {
    const size_t close = text.find('}', open);
    if (close == std::string::npos) break;
    const std::string name = text.substr(open + 2, close - open - 2);
    out += text.substr(from, open - from);
    if (const std::string* label = cell.value(name)) {
      out += *label;
    } else if (const auto found = cell.variables.find(name); found != cell.variables.end()) {
      out += plain_number(found->second);
    } else {
      out += text.substr(open, close + 1 - open);
    }
    from = close + 1;
  }
  return out + text.substr(from);
}

const std::string* Cell::value(const std::string& axis) const {
  for (const auto& [name, label] : place)
    if (name == axis) return &label;
  return nullptr;
}

double CellScope::variable(const std::string& name) const {
  const auto found = cell_.variables.find(name);
  if (found != cell_.variables.end()) return found->second;
  if (const std::string* label = cell_.value(name))
    throw UserError(str("axis ", name, " is '", *label, "' here, which is no number"));
  std::vector<std::string> known;
  for (const auto& [known_name, value] : cell_.variables) known.push_back(known_name);
  throw UserError(str("unknown name '", name, "'", did_you_mean(name, known), "; cell ", cell_.id, " has ",
                      known.empty() ? "no variables" : joined(known)));
}

std::vector<Sample> CellScope::select(const std::string& measure, const std::vector<std::string>&,
                                      const std::string&) const {
  throw UserError(
      str("'", measure, "[...]' asks for other cells; a formula of one cell names measures without brackets"));
}

std::vector<Cell> make_cells(const Experiment& experiment, const Scale& scale, const CellOptions& options) {
  std::vector<Cell> cells = empty_cells(experiment, scale);
  if (experiment.types.wanted) {
    Cell types;
    types.id = "types";
    types.types = true;
    types.length = {20'000, 1};  // counting takes seconds
    cells.insert(cells.begin(), std::move(types));
  }
  std::map<std::string, std::string> first;  // recipe -> cell
  for (Cell& cell : cells) {
    cell.planned = !cell.types && plan_config(experiment, scale).given;
    cell.launched = options.launched;
    cell.variables["launched"] = options.launched ? 1 : 0;
    cell.variables["paper_scale"] = scale.id == kPaper ? 1 : 0;
    for (const auto& [axis, label] : cell.place)
      if (const auto number = parse_double(label)) cell.variables[axis] = *number;
    add_variables(experiment, cell, scale.variables, "scales." + scale.id + ".variables");
    if (!cell.types) add_variables(experiment, cell, experiment.variables, "variables");
    compose_cell(experiment, scale, options.overrides, cell);
    if (cell.types || !cell.runs) continue;
    const auto [found, fresh] = first.emplace(cell.yaml, cell.id);
    if (!fresh) cell.same_as = found->second;
  }
  return cells;
}

const Node* formula_for(const Experiment& experiment, const Cell& cell, const Node& formula, const std::string& path) {
  if (formula.kind != Node::Kind::map) return &formula;
  for (const auto& [axis_id, by_value] : formula.entries) {
    Node named = Node::map(by_value.mark);  // the values in the map, in the form of a choice
    std::vector<Node> values;
    for (const auto& [label, node] : by_value.entries) values.push_back(Node::string(label, node.mark));
    named.set(axis_id, Node::list(values, by_value.mark));
    if (chosen(experiment, cell, named, path)) return by_value.find(*cell.value(axis_id));
  }
  return nullptr;
}

bool chosen(const Experiment& experiment, const Cell& cell, const Node& choice, const std::string& path) {
  if (choice.kind == Node::Kind::null) return true;
  check_choice(experiment, choice, path);
  for (const auto& [axis, node] : choice.entries) {
    const std::string* label = cell.value(axis);
    const std::vector<std::string> named = named_values(*experiment.axis(axis), node, path);
    if (!label || std::find(named.begin(), named.end(), *label) == named.end()) return false;
  }
  return true;
}

std::string plain_number(double value) {
  char buffer[32];
  if (value == std::floor(value) && std::fabs(value) < 9e15) return std::to_string(static_cast<int64_t>(value));
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end};
}

std::string number_text(double value, int64_t digits) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::fabs(value);
  if (value != 0 && (size >= 1e15 || size < 1e-4)) return format("%.*g", static_cast<int>(digits), value);
  const int magnitude = size > 0 ? static_cast<int>(std::floor(std::log10(size))) : 0;
  const int decimals = value == std::floor(value) ? 0 : std::max(0, static_cast<int>(digits) - 1 - magnitude);
  std::string out = format("%.*f", std::min(decimals, 17), value);
  const size_t begin = out[0] == '-', point = std::min(out.find('.'), out.size());
  for (size_t i = point; i > begin + 3; i -= 3) out.insert(i - 3, ",");
  return out;
}

}  // namespace lmx::app::experiment

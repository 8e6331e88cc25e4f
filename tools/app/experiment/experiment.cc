#include "app/experiment/experiment.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "app/experiment/expression.h"
#include "app/print/words.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

double tolerance_of(const std::string& kind, double within) {
  if (within >= 0) return within;
  return kind == "formula" ? 0.01 : kind == "quality" ? 0.02 : kind == "planned" || kind == "hardware" ? 0.1 : 0;
}

const Node& as_map(const Node& node, const std::string& path) {
  if (node.kind != Node::Kind::map) throw UserError(at(node, path) + "expected a map (key: value lines)");
  return node;
}

const Node& as_list(const Node& node, const std::string& path) {
  if (node.kind != Node::Kind::list) throw UserError(at(node, path) + "expected a list");
  return node;
}

const Node& as_text(const Node& node, const std::string& path) {
  if (node.kind != Node::Kind::scalar) throw UserError(at(node, path) + "expected one text or number");
  return node;
}

// Names are used in formulas, and labels in folder names.
void check_name(const Node& place, const std::string& path, const std::string& name, bool label) {
  const bool good = !name.empty() && std::all_of(name.begin(), name.end(), [&](unsigned char c) {
    return std::isalnum(c) || c == '_' || (label && (c == '.' || c == '+' || c == '-'));
  });
  if (!good || (!label && std::isdigit(static_cast<unsigned char>(name[0]))) || name == "." || name == "..")
    throw UserError(at(place, path) + str("'", name, "' must be made of letters, digits",
                                          label ? ", _, ., + and -" : " and _, and begin with a letter"));
}

// `tree`: null if there is no such part.
PlanConfig read_plan_config(const Node& tree, const std::string& path) {
  if (!given(tree)) return {};
  auto plan = read_config<PlanConfig>(tree, path);
  plan.given = true;
  plan.mark = tree.mark;
  plan.path = path;
  return plan;
}

std::vector<Axis> read_axes(const Node& tree) {
  std::vector<Axis> axes;
  if (tree.kind == Node::Kind::null) return axes;
  for (const auto& [id, node] : as_map(tree, "axes").entries) {
    const std::string path = "axes." + id;
    check_name(node, path, id, false);
    Axis axis{id, {}};
    if (node.kind == Node::Kind::list) {
      for (const Node& value : node.items) axis.values.push_back({as_text(value, path).text, {}});
    } else {
      for (const auto& [label, overrides] : as_map(node, path).entries) {
        AxisValue value{label, {}};
        if (overrides.kind != Node::Kind::null)
          for (const Node& o : as_list(overrides, path + "." + label).items)
            value.overrides.push_back(as_text(o, path + "." + label));
        axis.values.push_back(std::move(value));
      }
    }
    std::set<std::string> labels;
    for (const AxisValue& value : axis.values) {
      check_name(node, path, value.label, true);
      if (!labels.insert(value.label).second)
        throw UserError(at(node, path) + str("'", value.label, "' is here twice"));
    }
    if (axis.values.empty()) throw UserError(at(node, path) + "an axis needs at least one value");
    axes.push_back(std::move(axis));
  }
  return axes;
}

std::vector<Scale> read_scales(const Node& tree) {
  std::vector<Scale> scales;
  for (const auto& [id, node] : as_map(tree, "scales").entries) {
    const std::string path = "scales." + id;
    check_name(node, path, id, false);
    scales.push_back(read_config<Scale>(node, path));
    scales.back().id = id;
    scales.back().mark = node.mark;
    scales.back().plan = read_plan_config(scales.back().plan_tree, path + ".plan");
  }
  if (scales.empty()) throw UserError(at(tree, "scales") + "give at least one, such as desk");
  return scales;
}

// Sets what `plan` of the measures means for them; a formula over planned measures alone is planned, too.
void find_planned(std::vector<Measure>& measures) {
  std::set<std::string> all, can, only;
  for (const Measure& m : measures) all.insert(m.id);
  for (Measure& m : measures) {
    m.can_be_planned = !m.plan.empty();
    m.only_planned = m.can_be_planned && m.key.empty() && m.value.kind == Node::Kind::null;
    std::set<std::string> named;
    for (const std::string& name : names_in(m.value.text))
      if (all.contains(name)) named.insert(name);
    const auto within = [&](const std::set<std::string>& known) {
      return !named.empty() && std::includes(known.begin(), known.end(), named.begin(), named.end());
    };
    if (m.plan.empty()) {
      m.can_be_planned = within(can);
      m.only_planned = within(only);
    }
    if (m.can_be_planned) can.insert(m.id);
    if (m.only_planned) only.insert(m.id);
  }
}

std::vector<Measure> read_measures(const Node& tree) {
  std::vector<Measure> measures;
  for (const auto& [id, node] : as_map(tree, "measures").entries) {
    const std::string path = "measures." + id;
    check_name(node, path, id, false);
    measures.push_back(read_config<Measure>(node, path));
    measures.back().id = id;
    measures.back().mark = node.mark;
    if (measures.back().title.empty()) measures.back().title = id;
  }
  if (measures.empty()) throw UserError(at(tree, "measures") + "nothing is measured");
  find_planned(measures);
  for (Measure& m : measures)
    if (m.only_planned && !tree.find(m.id)->find("class")) m.kind = "planned";
  return measures;
}

// Reads a list of checks or layers. Each keeps its path for messages.
template <class T>
std::vector<T> read_parts(const Node& list, const std::string& path) {
  std::vector<T> parts;
  for (size_t i = 0; i < as_list(list, path).items.size(); ++i) {
    parts.push_back(read_config<T>(list.items[i], str(path, ".", i)));
    parts.back().path = str(path, ".", i);
  }
  return parts;
}

struct FigureFields {
  Figure figure;
  Node layers;
  void fields(Fields& f) {
    f.field("title", figure.title, "above the figure");
    f.field("x_title", figure.x_title, "along the x axis");
    f.field("y_title", figure.y_title, "along the y axis");
    f.field("log_x", figure.log_x, "logarithmic x axis");
    f.field("log_y", figure.log_y, "logarithmic y axis");
    f.subtree("layers", layers, "layers of the figure");
  }
};

Figure read_figure(const Node& tree) {
  if (tree.kind == Node::Kind::null) return {};
  FigureFields read = read_config<FigureFields>(tree, "figure");
  if (read.layers.kind == Node::Kind::null) throw UserError(at(tree, "figure") + "it has no `layers`");
  read.figure.layers = read_parts<Layer>(read.layers, "figure.layers");
  return read.figure;
}

// The top level of the file.
struct ExperimentFields {
  Experiment e;
  Node scales, axes, measures, checks, figure, types, plan, break_even;
  void fields(Fields& f) {
    f.required("title", e.title, "one line");
    f.field("paper", e.paper, "authors, year, title");
    f.field("place", e.place, "the paper's table, figure or section");
    f.field("question", e.question, "what the experiment answers");
    f.subtree("scales", scales, "desk, paper and others: recipe, overrides, variables, cells");
    f.subtree("overrides", e.overrides, "of every cell, as for lmx run; ${name} is an axis' value or a variable");
    f.subtree("variables", e.variables, "name: number, formula or axis: {value: formula}, for each cell");
    f.subtree("axes", axes, "name: [values], or value: [overrides]");
    f.subtree("cells", e.cells, "choices of axis values that run; without it all");
    f.field("average", e.average, "axes over which results are averaged, as seeds");
    f.field("paired", e.paired, "runs with equal values of these axes are compared with each other");
    f.field("evaluate", e.evaluate, "splits on which each run is evaluated when it has ended: test");
    f.field("shards", e.shards,
            "evaluate characters and bytes over so many shards of strings, too (keys shards/...); 0: not",
            kNonNegative);
    f.field("probe", e.probe, "labelled corpora on which each run's features are probed (records of split probe)");
    f.field("mean_of_last", e.mean_of_last,
            "checkpoints: evaluate the mean of each run's last ones, too (keys mean/...); 0: not", kNonNegative);
    f.subtree("types", types, "count unique words against tokens: a cell named types");
    f.subtree("depends_on", e.depends_on,
              "axis: {value: setting}: the paper's numbers of these cells depend on a setting that it does not state");
    f.subtree("plan", plan, "how measures with a key `plan` are planned");
    f.subtree("measures", measures, "what is measured in each cell");
    f.subtree("checks", checks, "what the paper claims, and how it is judged");
    f.subtree("figure", figure, "figure.svg");
    f.subtree("break_even", break_even,
              "at which bandwidth methods reach their loss sooner than one of them, in equal time");
    f.field("notes", e.notes, "assumptions, and the paper's own inconsistencies (ERR)");
  }
};

std::string id_of(const std::string& file) {
  const std::string folder = "experiments/";
  const size_t at_folder = file.rfind(folder);
  std::string id =
      at_folder == std::string::npos ? file.substr(file.rfind('/') + 1) : file.substr(at_folder + folder.size());
  return id.ends_with(".yaml") ? id.substr(0, id.size() - 5) : id;
}

void check_scales_named(const Experiment& e) {
  std::vector<std::string> names;
  for (const Scale& scale : e.scales) names.push_back(scale.id);
  for (const Check& check : e.checks) {
    if (!given(check.scale)) continue;
    const std::string path = check.path + ".scale";
    const bool list = check.scale.kind == Node::Kind::list;
    for (const Node& item : list ? check.scale.items : std::vector<Node>{check.scale})
      if (const std::string& name = as_text(item, path).text;
          std::find(names.begin(), names.end(), name) == names.end())
        throw UserError(at(item, path) + str("there is no scale '", name, "'", did_you_mean(name, names),
                                             "; there are ", joined(names)));
  }
}

void check_axes_named(const Experiment& e, const Node& tree) {
  std::vector<std::string> names;
  for (const Axis& axis : e.axes) names.push_back(axis.id);
  for (const std::string& name : e.average)
    if (!e.axis(name))
      throw UserError(at(*tree.find("average"), "average") +
                      str("there is no axis '", name, "'", did_you_mean(name, names)));
  for (const std::string& split : e.evaluate)
    if (split != "test" && split != "train")
      throw UserError(at(*tree.find("evaluate"), "evaluate") +
                      str("'", split, "' is neither test nor train; valid is measured by the run itself"));
  if (e.mean_of_last > 0 && e.evaluate.empty())
    throw UserError(at(*tree.find("mean_of_last"), "mean_of_last") + "it needs `evaluate`, the splits");
  std::set<std::string> taken;
  for (const Axis& axis : e.axes) taken.insert(axis.id);
  for (const Measure& m : e.measures)
    if (!taken.insert(m.id).second)
      throw UserError(str(to_string(m.mark), ": measures.", m.id, ": an axis has this name already"));
}

}  // namespace

std::string at(const Node& node, const std::string& path) {
  return str(to_string(node.mark), ": ", path, ": ");
}

void Scale::fields(Fields& f) {
  f.required("recipe", recipe, "a recipe's file, relative to this one; ${name} is an axis' value");
  f.subtree("overrides", overrides, "of every cell at this scale");
  f.subtree("variables", variables, "name: number, formula or axis: {value: formula}");
  f.subtree("cells", cells, "in the place of the experiment's own");
  f.subtree("plan", plan_tree, "in the place of the experiment's own");
}

void Measure::fields(Fields& f) {
  f.field("title", title, "of its column");
  f.field("unit", unit, "printed after the title");
  f.choice("split", split, {"valid", "train", "test", "rank", "types", "fit", "probe", "outcome"},
           "which records; outcome: `diverged`, 1 or 0, the only one that a diverged cell has");
  f.field("key", key, "of a record; * matches any text, and the values of all matching keys are added up");
  f.choice("take", take, {"last", "min", "max", "mean", "median", "sum", "per_step"},
           "of the records of a run: the last, an extreme, mean, median or sum, or the sum divided by the steps that "
           "they cover");
  f.choice("ranks", ranks, {"first", "mean", "max", "sum"}, "of the records of ranks at one step (split rank)");
  f.subtree("where", where, "key: number or formula of the cell that a record must have");
  f.field("deal", deal,
          "ranks to which the sub-batches of a recorded step of one rank are dealt; key: slowest, mean or quickest of "
          "them (seconds)",
          kNonNegative);
  f.field("divide", divide, "divisor, as 1e6 for MB", {0, 1e300, true});
  f.field("digits", digits, "significant digits in tables", {1, 17});
  f.subtree("value", value, "formula over other measures, in the place of a key");
  f.field("plan", plan,
          "column of lmx plan --json: the number of cells that do not run or, without key and value, of all cells");
  f.subtree("formula", formula,
            "the expected value, or axis: {value: formula}; also the value of cells that do not run");
  f.choice("class", kind, kClasses, "how near the value must be to the formula and the paper");
  f.field("within", within,
          "relative distance that is allowed; -1: exact 0, formula 0.01, quality 0.02, planned and hardware 0.1",
          {-1, 1e6});
  f.subtree("paper", paper, "cell: the paper's number");
  f.choice("comparable", comparable, {"paper", "always", "never", "launched"},
           "at which scale the paper's numbers mean the same; launched: at the paper's, with --launcher");
  f.field("reason", reason, "the reason why they differ at the other scales");
  f.subtree("only", only, "axis: values; cells that have this measure");
}

void Measure::check(const std::string& where_it_is) const {
  const bool by_formula = value.kind != Node::Kind::null;
  if ((!key.empty() && by_formula) || (key.empty() && !by_formula && plan.empty()))
    throw UserError(where_it_is +
                    ": give either `key`, of a run's records, or `value`, a formula, or `plan`, a column");
  if (deal > 0 && (split != "rank" || (key != "slowest" && key != "mean" && key != "quickest")))
    throw UserError(where_it_is + ": `deal` needs `split: rank`, and as `key` slowest, mean or quickest");
}

double Measure::tolerance() const {
  return tolerance_of(kind, within);
}

void PlanConfig::fields(Fields& f) {
  f.required("machine", machine, "a file of a folder `machine` of recipes, or a file relative to this one");
  f.field("collectives", collectives, "auto, pairwise, ring, tree, hierarchical; empty: as lmx plan chooses");
  f.field("types", types, "FACTOR,EXPONENT of the number of different words; empty: Zipf's law");
  f.subtree("ranks", ranks, "number of ranks; default: those of the cell's recipe");
  f.subtree("epoch_tokens", epoch_tokens, "tokens of the training text; default: those of the corpus");
  f.subtree("spread", spread, "standard deviation of the time of a sub-batch, as a part of its mean");
  f.subtree("fill", fill, "the part of its token budget that a mean sub-batch holds");
  f.subtree("overlap", overlap, "0: gradients are exchanged after backward, not beside it");
  f.subtree("overrides", overrides, "of the planned recipe, after the cell's own; machine.KEY=VALUE, too");
  f.subtree("base", base, "axis: value; the cell whose efficiency is 1 differs from a cell in these values");
}

void Check::fields(Fields& f) {
  f.required("claim", claim, "the paper's statement, in one sentence");
  f.choice("class", kind, kClasses,
           "exact, formula, shape, quality, planned; hardware is reported only, unless --launcher starts the cells");
  f.subtree("scale", scale, "the scale, or a list of scales, at which the claim is judged, if others have other cells");
  f.field("paper", paper, "the paper's number, for the table");
  f.subtree("value", value, "formula over measures");
  f.subtree("expect", expect, "formula that value must be near");
  f.field("within", within, "how near, relative; -1: exact 0, formula 0.01, quality 0.02, planned and hardware 0.1",
          {-1, 1e6});
  f.subtree("at_least", at_least, "formula below which value refutes the claim");
  f.subtree("at_most", at_most, "formula above which value refutes the claim");
  f.subtree("ascending", ascending, "formulas whose values must rise from one to the next");
  f.field("incomparable", incomparable, "the reason why no measurement of this experiment can judge the claim");
  f.subtree("unless", unless, "formula; if it is not 0, `incomparable` does not apply and the claim is judged");
  f.field("by_construction", by_construction,
          "why the claim follows from how lmx is made, so that a value that fits says nothing about the paper");
  f.field("depends_on", depends_on,
          "what can decide the verdict: a setting that the paper does not state, or a size that differs");
  f.field("note", note, "printed after the verdict");
}

void Check::check(const std::string& where_it_is) const {
  if (given(ascending) && (given(value) || given(expect) || given(at_least) || given(at_most)))
    throw UserError(where_it_is + ": `ascending` cannot be combined with value, expect, at_least or at_most");
  if (given(ascending) && (ascending.kind != Node::Kind::list || ascending.items.size() < 2))
    throw UserError(where_it_is + ".ascending: expected a list of two formulas or more");
  if (given(unless) && incomparable.empty())
    throw UserError(where_it_is + ".unless: it needs `incomparable`, which says why there is nothing to judge");
  if (!by_construction.empty() && !depends_on.empty())
    throw UserError(where_it_is + ": give either `by_construction` or `depends_on`");
  const bool judged = given(expect) || given(at_least) || given(at_most);
  if (judged && !given(value)) throw UserError(where_it_is + ": there is no `value` to compare");
  if (!given(ascending) && incomparable.empty() && kind != "hardware" && !judged)
    throw UserError(where_it_is + ": give value with expect, at_least or at_most; or ascending; or incomparable");
}

bool Check::judged_at(const std::string& scale_id) const {
  if (!given(scale) || scale.text == scale_id) return true;
  return std::any_of(scale.items.begin(), scale.items.end(), [&](const Node& item) { return item.text == scale_id; });
}

double Check::tolerance() const {
  return tolerance_of(kind, within);
}

void Layer::fields(Fields& f) {
  f.choice("kind", kind, {"cells", "records", "line", "bars", "paper"},
           "cells: a point each; records: a curve each; line: y as a formula in x; bars: one each; paper: a point for "
           "each of the paper's numbers");
  f.field("label", label, "in the legend, before the series' own name");
  f.field("by", by, "axis whose values make one series each");
  f.field("split", split, "records: which");
  f.field("x_key", x_key, "records: key along x");
  f.field("y_key", y_key, "records: key along y");
  f.subtree("x", x, "cells, paper: formula of a cell's place; line: [from, to]; bars: an axis");
  f.subtree("y", y, "cells, bars: formula of a cell; line: formula in x; paper: a measure");
  f.subtree("only", only, "axis: values; cells that are drawn");
}

void TypesCell::fields(Fields& f) {
  f.field("sequence_length", sequence_length, "words of a drawn sequence", kPositive);
  f.field("max_tokens", max_tokens, "the largest number of tokens", kPositive);
  f.field("draws", draws, "draws that each number is the mean of", kPositive);
}

std::string Experiment::path_of(const std::string& name) const {
  return (std::filesystem::path(file).parent_path() / name).lexically_normal().string();
}

const Scale& Experiment::scale(const std::string& wanted) const {
  std::vector<std::string> names;
  for (const Scale& s : scales) {
    if (s.id == wanted) return s;
    names.push_back(s.id);
  }
  throw UserError(str("[experiment] ", file, " has no scale '", wanted, "'", did_you_mean(wanted, names), "; it has ",
                      joined(names)));
}

const Axis* Experiment::axis(const std::string& wanted) const {
  for (const Axis& a : axes)
    if (a.id == wanted) return &a;
  return nullptr;
}

const Measure* Experiment::measure(const std::string& wanted) const {
  for (const Measure& m : measures)
    if (m.id == wanted) return &m;
  return nullptr;
}

bool Experiment::averages(const std::string& axis_id) const {
  return std::find(average.begin(), average.end(), axis_id) != average.end();
}

Experiment read_experiment(const std::string& file) {
  const Node tree = parse_yaml_file(file);
  ExperimentFields read = read_config<ExperimentFields>(tree, "");
  Experiment e = std::move(read.e);
  e.file = file;
  e.id = id_of(file);
  for (const auto& [name, node] : {std::pair{"scales", &read.scales}, std::pair{"measures", &read.measures}})
    if (node->kind == Node::Kind::null)
      throw UserError(str(to_string(tree.mark), ": the experiment has no `", name, "`"));
  e.scales = read_scales(read.scales);
  e.axes = read_axes(read.axes);
  e.measures = read_measures(read.measures);
  if (given(read.checks)) e.checks = read_parts<Check>(read.checks, "checks");
  e.figure = read_figure(read.figure);
  e.break_even = read_break_even(read.break_even, e);
  e.plan = read_plan_config(read.plan, "plan");
  if (read.types.kind != Node::Kind::null) {
    e.types = read_config<TypesCell>(read.types, "types");
    e.types.wanted = true;
  }
  check_axes_named(e, tree);
  check_scales_named(e);
  return e;
}

}  // namespace lmx::app::experiment

#include "app/cells/plan_config.h"

#include "lmx/error.h"

namespace lmx_cli::experiments {
namespace {

using lmx::Fields;
using lmx::Node;
using lmx::str;

struct PlanFields {
  PlanConfig plan;
  Node anchors;
  void fields(Fields& f) {
    f.required("machine", plan.machine, "a file of a folder `machine` of recipes, or a file relative to this one");
    f.field("collectives", plan.collectives, "auto, pairwise, ring, tree, hierarchical; empty: as lmx plan chooses");
    f.field("types", plan.types, "FACTOR,EXPONENT of the number of different words; empty: Zipf's law");
    f.subtree("ranks", plan.ranks, "number of ranks; default: those of the cell's recipe");
    f.subtree("epoch_tokens", plan.epoch_tokens, "tokens of the training text; default: those of the corpus");
    f.subtree("spread", plan.spread, "standard deviation of the time of a sub-batch, as a part of its mean");
    f.subtree("fill", plan.fill, "the part of its token budget that a mean sub-batch holds");
    f.subtree("overlap", plan.overlap, "0: gradients are exchanged after backward, not beside it");
    f.subtree("overrides", plan.overrides, "of the planned recipe, after the cell's own; machine.KEY=VALUE, too");
    f.subtree("base", plan.base, "axis: value; the cell whose efficiency is 1 differs from a cell in these values");
    f.subtree("anchors", anchors, "cells of the paper that set the speed of the device");
  }
};

PlanAnchor read_anchor(const Node& node, const std::string& path) {
  PlanAnchor anchor = lmx::read_config<PlanAnchor>(node, path);
  anchor.mark = node.mark;
  anchor.path = path;
  const int values = given(anchor.step_s) + given(anchor.tokens_per_s) + given(anchor.hours_per_epoch);
  if (values != 1)
    throw lmx::UserError(str(to_string(node.mark), ": ", path,
                             ": give one of step_s, tokens_per_s and hours_per_epoch, got ", values, " of them"));
  return anchor;
}

}  // namespace

void PlanAnchor::fields(Fields& f) {
  f.required("cell", cell, "a cell of this scale");
  f.subtree("step_s", step_s, "seconds of a step");
  f.subtree("tokens_per_s", tokens_per_s, "tokens a second of all ranks");
  f.subtree("hours_per_epoch", hours_per_epoch, "hours of an epoch");
  f.subtree("only", only, "axis: values; the cells that the speed holds for");
}

PlanConfig read_plan_config(const Node& tree, const std::string& path) {
  if (!given(tree)) return {};
  PlanFields read = lmx::read_config<PlanFields>(tree, path);
  PlanConfig plan = std::move(read.plan);
  plan.given = true;
  plan.mark = tree.mark;
  plan.path = path;
  if (!given(read.anchors)) return plan;
  if (read.anchors.kind != Node::Kind::list)
    throw lmx::UserError(str(to_string(read.anchors.mark), ": ", path, ".anchors: expected a list"));
  for (size_t i = 0; i < read.anchors.items.size(); ++i)
    plan.anchors.push_back(read_anchor(read.anchors.items[i], str(path, ".anchors.", i)));
  return plan;
}

}  // namespace lmx_cli::experiments

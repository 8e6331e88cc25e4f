// The part `plan` of an experiment: how the planner computes the cells of measures that have a key `plan`.
#pragma once

#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx_cli::experiments {

// Whether an optional part of an experiment's file is there.
inline bool given(const lmx::Node& node) {
  return node.kind != lmx::Node::Kind::null;
}

// A cell of the paper that sets the speed of the device, in the form of one of its columns.
struct PlanAnchor {
  std::string cell;
  lmx::Node step_s, tokens_per_s, hours_per_epoch;  // formulas; exactly one is given
  lmx::Node only;                                   // axis: values; the cells that the speed holds for
  lmx::Mark mark;
  std::string path;  // "plan.anchors.0", for messages
  void fields(lmx::Fields& f);
};

// The options of `lmx plan`. A number is a formula of the cell, or `axis: {value: formula}`.
struct PlanConfig {
  bool given = false;
  std::string machine, collectives, types;               // ${axis} and ${variable} are those of the cell
  lmx::Node ranks, epoch_tokens, spread, fill, overlap;  // formulas
  lmx::Node overrides;                                   // list; after the cell's own
  lmx::Node base;                                        // map: axis -> value; the cell whose efficiency is 1
  std::vector<PlanAnchor> anchors;
  lmx::Mark mark;
  std::string path;  // "plan" or "scales.paper.plan"
};

// `tree`: null if there is no such part. UserError: unknown keys, wrong types, an anchor without its value.
PlanConfig read_plan_config(const lmx::Node& tree, const std::string& path);

}  // namespace lmx_cli::experiments

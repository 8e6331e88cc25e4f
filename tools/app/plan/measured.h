// Measurements as input of a plan: the records of a run, and steps that a machine file states (`known`).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/plan/plan.h"
#include "app/plan/variants.h"
#include "lmx/config.h"

namespace lmx::app::plan {

struct Measured {
  Node recipe;  // the run's config.yaml, with the batch that batch.fit has chosen
  int ranks = 1;
  double compute_s = 0;                // of a step, without the exchange of gradients that nothing hides; the median
  double spread = 0;                   // of the times of sub-batches (Spread::relative); 0: the run has none
  std::map<std::string, double> rows;  // by table: rows of its gradient in a step, all ranks together; the mean
};
// UserError: no run, a run without a record, one whose ranks share the cores of one process.
Measured read_measured(const std::string& run);

// The speed with which a known step takes its measured time.
struct KnownSpeed {
  double speed = 1, speed_alone = 1;  // as Row
  double step_s = 0;
  int64_t ranks = 0, batch = 0;
  std::string parts;  // of its recipe: parts_text()
};
// The settings on which a step depends beside ranks and batch.
std::string parts_text(const Node& tree);

// Plans known steps, each once for all plans that share the object.
class KnownSpeeds {
 public:
  struct Loaded {
    KnownStep step;
    Node tree;  // its composed recipe
    std::unique_ptr<Request> request;
    std::unique_ptr<KnownSpeed> speed;
  };
  using Steps = std::vector<Loaded>;
  // A known step whose recipe is like that of a variant. A step of the same recipe comes before one of the same model,
  // and that before one of another model of the same kind.
  struct Match {
    Loaded* step = nullptr;  // null: none is like it
    enum Kind { other, kind_of_model, model, recipe } kind = other;
  };
  // The steps of the request's machine. `variant`: any of the request.
  Steps& steps_of(const Request& request, const Variant& variant);

 private:
  std::map<std::string, Steps> machines_;  // by name and the folder of the recipes
};

// The step that is most like a recipe, of its precision or, with `any_precision`, of all. `recipe`: its name.
KnownSpeeds::Match most_like(KnownSpeeds::Steps& steps, const std::string& recipe, const Node& tree,
                             bool any_precision);
// UserError: no speed gives the time of the step.
const KnownSpeed& known_speed(KnownSpeeds::Loaded& step);

}  // namespace lmx::app::plan

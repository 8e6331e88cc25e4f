// Plans a training on a machine that need not exist here: time, memory and bytes of a step for each number of ranks and
// each variant of a recipe. Nothing is trained, and neither the corpus nor the machine is needed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/compose/compose.h"
#include "app/memory/counted.h"
#include "app/plan/machine.h"
#include "app/plan/step.h"
#include "app/plan/work.h"
#include "recipe/recipe.h"

namespace lmx::app::plan {

// `batch.fit: memory` on a planned machine: the search of a run, with the memory of the machine's file.

// The size of a pass that batch.fit has chosen.
struct ChosenPass {
  int64_t size = 0;  // sequences; with `pairs` target tokens
  bool pairs = false;
  int64_t passes = 1;  // of a rank in a step, at most
  bool fits = true;    // false: the size is the one that needs least memory, and even that is too much
  // The memory alone limits batch.global, because the size of the text is unknown.
  bool unknown_text = false;
  std::string text() const;  // "12 sequences"
};

// Bytes of a rank of this recipe.
using RankBytes = std::function<int64_t(const Recipe&)>;
// Chooses `recipe.batch` so that a rank needs at most 90 % of `memory_gb` (10^9 bytes), or at most memory.budget if the
// recipe has one and the machine as much. (In a run the ranks on a machine share the budget.) `outline`: of the recipe,
// with any batch. `epoch_tokens`: of the training text, if the request states them; NaN: they are not known.
ChosenPass fit_batch(Recipe& recipe, const Outline& outline, double memory_gb,
                     const std::optional<double>& epoch_tokens, const RankBytes& bytes);
// The memory that a choice may take, as an assumption of a plan.
std::string fit_note(const Recipe& recipe, double memory_gb);

// One measured step, which sets the speed of the device: all times of computation are multiplied by one factor, so that
// the first variant on `ranks` ranks takes `step_s`.
struct Anchor {
  int64_t ranks = 0;
  double step_s = 0;
};
inline constexpr int64_t kMostRanks = 20'000;
Anchor parse_anchor(const std::string& text);  // "8:0.348". UserError: another form
// "8.17,0.64" is the law U = min(V, 8.17 N^0.64) of the number of different words in N tokens. UserError: another form.
WordLaw parse_law(const std::string& text);

class KnownSpeeds;

struct Request {
  std::string recipe, machine;         // machine: a name of the group `machine`, or a file
  ComposeOptions compose;              // an override with several values, "sync=unique,allgather", makes variants
  std::vector<int64_t> ranks;          // empty: the number in the recipe
  std::optional<Algorithm> algorithm;  // default: that of the machine, or the fastest
  int64_t cores = 0;                   // of a CPU that the ranks use; 0: all
  std::optional<bool> overlap;         // units are exchanged beside backward; default: as the machine says
  double spread = 0;                   // Spread::relative
  double fill = 1;                     // part of its token budget that a mean sub-batch holds
  std::optional<double> epoch_tokens;  // default: those of the corpus, if it is available
  std::optional<WordLaw> law;          // default: Zipf's law
  bool calibrated = true;              // the machine's known steps set the speed, if neither `anchor` nor `from` does
  std::optional<Anchor> anchor;
  std::shared_ptr<KnownSpeeds> known;  // of the plans that share it; null: this plan alone
  std::string from;  // a run whose records set the speed of the device, the rows of tables and the spread; "": none
};

// Workers of a parameter server, which are asynchronous.
struct Workers {
  double updates_s = 0;  // updates a second, by all workers
  double staleness = 0;  // mean number of updates between a worker's pull and its push
  int64_t most_stale = 0;
  double speedup = 1;  // tokens a second, to those of one worker alone on the machine
};

// A variant of the recipe on a number of ranks. A step of asynchronous workers is one step of each of them.
struct Row {
  std::string
      variant;  // its values that differ between variants, "sync=unique precision=fp16"; "" if there is one only
  int ranks = 1;
  Algorithm algorithm = Algorithm::automatic;
  double speed = 1;  // factor of all times of computation
  // The step that sets the speed, divided by the time of its computation at speed 1: the speed of a model that has no
  // communication.
  double speed_alone = 1;
  bool sets_speed = false;  // it is a known step of the machine
  int64_t batch = 0;        // items of a step (batch.global)
  double step_tokens = 0;   // target tokens of a step, of all ranks
  RankMemory memory;
  std::optional<ChosenPass> fit;                              // of a recipe with batch.fit=memory
  bool out_of_memory = false;                                 // no sub-batch fits, or that of the recipe does not
  int64_t sent_bytes = 0, node_bytes = 0, network_bytes = 0;  // of a rank in a step; the first is the sum of the others
  StepTime time;
  // Seconds of a step of which one device computes the passes and exchanges of all ranks, one after the other, and
  // updates the parameters once: ranks that are threads of one process.
  double in_turn_s = 0;
  std::optional<Workers> workers;  // of an asynchronous variant
  double efficiency = 1;           // tokens a second of a rank, to those of the same variant on the fewest ranks
  std::optional<double> epoch_hours, total_hours;  // to the end of an epoch, and of the training
  std::optional<double> epoch_price;
  int64_t nodes = 1;      // of the machine that the ranks need
  double node_price = 0;  // of a node and an hour; 0: unknown
  double tokens_s() const { return step_tokens / time.step_s(); }
};

// The fastest variant that fits, on a number of ranks.
struct Winner {
  int ranks = 1;
  std::string variant, reason;  // variant "": none fits
};

// The bandwidth of the network between nodes at which two variants are equally fast.
struct Crossing {
  int ranks = 1;
  std::string below, above;  // the faster variant with less bandwidth, and with more
  double gb_s = 0;
};

// Tokens a second of a variant by the bandwidth of the network.
struct Curve {
  std::string variant;
  int ranks = 1;
  std::vector<std::pair<double, double>> points;  // GB/s, tokens/s
};

struct Plan {
  std::string recipe, machine_name;
  Machine machine;        // of the first variant
  std::vector<Row> rows;  // by variant, then by ranks
  std::vector<Winner> winners;
  std::vector<Crossing> crossings;  // on the largest number of ranks
  std::vector<Curve> curves;        // likewise
  std::vector<std::string> speeds;  // what sets the speed of the device, and how much slower it is than the file says
  std::vector<std::string> notes;   // assumptions that the plan depends on
};

// A request whose cases, one for each variant and number of ranks, are built once and planned at any speed.
class Planner {
 public:
  // UserError: an invalid recipe or machine, a run that has no times.
  explicit Planner(const Request& request);
  ~Planner();
  Planner(Planner&&) noexcept;
  // The factor of all times of computation with which the first variant takes the anchor's time. UserError: no factor
  // does.
  double speed_of(const Anchor& anchor);
  // The factor that the request sets by its anchor or run. Empty: none, so that each variant has that of the machine's
  // known steps.
  std::optional<double> speed();
  Plan rows(std::optional<double> speed);  // a plan without winners, crossings and curves
  Plan plan(std::optional<double> speed);
  size_t built() const;  // the number of cases that have been built

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The plan of a request at its own speed. UserError: as Planner, and an anchor that no speed reaches.
Plan make_plan(const Request& request);

}  // namespace lmx::app::plan

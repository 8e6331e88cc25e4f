#include "app/plan/case.h"

#include <algorithm>
#include <cmath>

#include "app/memory/counted.h"
#include "app/plan/divided.h"
#include "lmx/error.h"
#include "recipe/comm_config.h"
#include "recipe/sync_rules.h"

namespace lmx::app::plan {
namespace {

// The place that a message names for a number of ranks that is not the recipe's own.
Mark place_of_ranks(int ranks, const Request& request) {
  const bool listed = std::find(request.ranks.begin(), request.ranks.end(), ranks) != request.ranks.end();
  if (!listed && request.anchor && request.anchor->ranks == ranks) return {str("option '--anchor ", ranks, ":...'")};
  return {listed ? str("option '--ranks ", ranks, "'") : "the ranks of this plan"};
}

// `comm:` with `ranks` processes. Ranks of a cluster are processes, also if the recipe's own are threads or one. A
// number that the recipe has itself keeps its place.
void set_ranks(Node& tree, int ranks, const Request& request) {
  const Node* own = tree.find("comm");
  const bool processes = own && !in_one_process(*own, "comm");
  if (processes && ranks_of(tree) == ranks) return;
  const Mark mark = place_of_ranks(ranks, request);
  if (!processes) {
    Node comm = Node::map(mark);
    comm.set("name", Node::string("mpi", mark));
    tree.set("comm", comm);
  }
  tree.find("comm")->set("ranks", Node::scalar(std::to_string(ranks), mark));
}

// The ranks of each node; 0: the last node has fewer.
int nodes_of(const LinksConfig& links, int ranks) {
  const auto inner = static_cast<int>(std::min<int64_t>(links.ranks_per_node, ranks));
  return ranks % inner == 0 ? inner : 0;
}

// UserError: the files of machines have rates of exact products alone.
void require_exact_products(const Recipe& r) {
  if (r.products == "exact") return;
  throw UserError(str(r.products_place, "the file of a machine has no rate of products with ", r.products,
                      "; plan with products=exact"));
}

Recipe read_on(const Variant& variant, const std::string& name, int ranks, const Request& request) {
  Node tree = variant.tree;
  const int before = ranks_of(tree);
  set_ranks(tree, ranks, request);
  Recipe recipe = read_recipe(tree, name);
  if (!variant.keeps_batch && recipe.batch.global > 0)
    recipe.batch.global = std::max<int64_t>(1, recipe.batch.global * ranks / before);
  return recipe;
}

// The part of an exchange of `seconds` that takes longer than the `delay` steps beside which it may run.
double exposed_part(double seconds, int64_t delay, const Work& work) {
  const double step = work.passes * (work.forward_s + work.backward_s) + work.update_s;
  return seconds > 0 ? std::max(0.0, 1 - static_cast<double>(delay) * step / seconds) : 1;
}

}  // namespace

Case::Case(const Variant& variant, const std::string& name, int ranks, const Request& request)
    : recipe_(read_on(variant, name, ranks, request)),
      machine_(variant.machine),
      algorithm_(variant.algorithm),
      fill_(request.fill),
      spread_{request.spread},
      overlap_(request.overlap.value_or(!variant.machine.links.after_backward)) {
  machine_.device.require_products(compute_of(recipe_));
  require_exact_products(recipe_);
  const PlannedProducts products(machine_.device.support());
  if (request.cores > 0) machine_.device.use_cores(request.cores);
  const Outline outline = outline_of(recipe_, ranks, nodes_of(machine_.links, ranks));
  const Network& network = outline.network;
  const CountedGroup group{.device = machine_.device.support().gpu ? Device::Kind::cuda : Device::Kind::cpu,
                           .ranks = ranks,
                           .per_node = std::min<int64_t>(machine_.links.ranks_per_node, ranks),
                           .law = request.law.value_or(WordLaw())};
  divided_ = rules_with_divided_values(*outline.sync);
  int64_t values = 0;
  for (const ParameterSpec& spec : network.specs) values += 4 * spec.shape.numel();
  const auto count = [&](const Recipe& r) {
    RankCount counted = count_rank(r, outline.batch, group);
    if (ranks > 1 && !divided_.empty()) divide_values(counted, divided_, ranks, values);
    return counted;
  };
  if (recipe_.batch.fit == "memory")
    fit_ = fit_batch(recipe_, outline, machine_.device.memory_gb, request.epoch_tokens,
                     [&](const Recipe& r) { return count(r).memory.total(); });
  shares_ = shares_of(recipe_, outline.batch, ranks);
  count_ = count(recipe_);
  for (const auto& [key, rule] : full_sync_config(recipe_.sync, "sync").entries) strategies_[key] = strategy_text(rule);
  work_ = work_of(recipe_, network, shares_, count_, machine_.device);
  if (!outline.sync->servers().empty()) plan_workers(*outline.sync, network);
  if (const auto pass =
          machine_.device.pass(pass_text(recipe_), rules_text(recipe_), shares_.forward_tokens, shares_.length))
    work_.set_pass(1e-6 * pass->forward_us, 1e-6 * pass->backward_us);
}

void Case::plan_workers(const Exchanger& sync, const Network& network) {
  const int ranks = shares_.ranks;
  Served served;
  for (const ParameterSpec& spec : network.specs)
    if (!spec.frozen)
      served.exchange.pushed_values +=
          4 * count_.rows.at(spec.name) * (spec.shape.numel() / std::max<int64_t>(1, spec.shape[0]));
  const ServerBytes& all = count_.server;
  served.alone = served.exchange;
  served.alone.own_replied = all.replied;
  const auto others = [&](int64_t bytes) { return bytes - bytes / ranks; };
  served.exchange.others = {others(all.requested), others(all.replied), others(all.pushed)};
  served.exchange.own_replied = all.replied / ranks;
  served.times = WorkerTimes::of(sync.servers().front()->config(), ranks, simulated_steps(ranks), recipe_.seed);
  served_ = std::move(served);
}

void Case::add_workers(Row& row, const Work& work, const LinksConfig& links, double update_s) const {
  const auto simulate = [&](const WorkerBytes& exchange, const WorkerTimes& times, int ranks) {
    WorkerStep step = WorkerStep::of(exchange, ranks, machine_.device, links, update_s);
    step.compute_s = work.passes * (work.forward_s + work.backward_s) + work.clip_s;
    return simulate_workers(step, times, links);
  };
  const WorkerBytes& exchange = served_->exchange;
  const WorkersTime time = simulate(exchange, served_->times, row.ranks);
  const WorkersTime alone = simulate(served_->alone, {{{1, 1, 1, 1}}, {}}, 1);
  row.sent_bytes = exchange.others.requested + exchange.others.replied + exchange.others.pushed;
  const int64_t inner = std::min<int64_t>(links.ranks_per_node, row.ranks);
  row.network_bytes =
      row.ranks > 1 ? std::llround(static_cast<double>(row.sent_bytes) * crossing_part(row.ranks, inner)) : 0;
  row.node_bytes = row.sent_bytes - row.network_bytes;
  row.time.compute_s = time.step_s - time.exposed_s;
  row.time.comm_s = row.time.exposed_s = time.exposed_s;
  row.workers = {time.updates_s, time.staleness, time.most_stale, row.ranks * alone.step_s / time.step_s};
}

bool Case::exchange_is_measured() const {
  return served_ || shares_.ranks == 1 ||
         std::all_of(count_.units.begin(), count_.units.end(), [&](const UnitTime& unit) {
           return machine_.device.measures_exchange(strategies_.at(unit.rule));
         });
}

Row Case::row(double speed, double network_gb_s) const {
  LinksConfig links = machine_.links;
  if (network_gb_s > 0) links.network.gb_s = network_gb_s;
  Row row;
  row.ranks = shares_.ranks;
  row.batch = recipe_.batch.global;
  row.step_tokens = static_cast<double>(shares_.step_tokens) * (shares_.pairs ? fill_ : 1);
  row.memory = count_.memory;
  row.fit = fit_;
  row.out_of_memory = fit_ ? !fit_->fits : static_cast<double>(count_.memory.total()) > machine_.device.memory_gb * 1e9;
  Work work = work_;
  const double part = shares_.pairs ? speed * fill_ : speed;  // a pass over less tokens takes less time
  work.forward_s *= part;
  work.backward_s *= part;
  work.update_s *= speed;
  work.clip_s *= speed;
  row.in_turn_s = shares_.ranks * work.passes * (work.forward_s + work.backward_s) + work.update_s;
  if (served_) {
    row.in_turn_s += (shares_.ranks - 1) * work.update_s;  // each push is an update
    add_workers(row, work, links, work.update_s - work.clip_s);
    return row;
  }
  std::vector<UnitWork> units;
  std::vector<Gather> gathers;
  const bool hides = overlap_ && !machine_.device.support().gpu;  // as Replicas
  double beside = 0;  // seconds of exchanges that run in parallel with whole steps
  for (const UnitTime& unit : count_.units) {
    const UnitBytes& bytes = unit.bytes;
    const auto steps = static_cast<double>(unit.period);  // an exchange every so many steps: its part of each step
    const Transfer moved =
        transfer({bytes.sent, bytes.sent_between_nodes, bytes.collectives}, shares_.ranks, links, algorithm_);
    const bool gather = gathers_values(unit, divided_);
    const int64_t times = gather ? 2 * shares_.passes() : 1;  // in a step: before forward and before backward
    row.sent_bytes += times * bytes.sent / unit.period;
    row.node_bytes += times * moved.node_bytes / unit.period;
    row.network_bytes += times * moved.network_bytes / unit.period;
    double ready = unit.after_update && !gather ? work_.backward_s : 0;
    for (const std::string& name : unit.params) {  // without a gradient, a unit is exchanged after backward
      const auto found = work_.ready_s.find(name);
      ready = std::max(ready, found == work_.ready_s.end() ? work_.backward_s : found->second);
    }
    const double own = machine_.device.exchange_s(strategies_.at(unit.rule), shares_.ranks, bytes.moved) / steps;
    const double delay =
        machine_.device.beside * own + (links.node.delay_s(static_cast<double>(moved.node_bytes)) +
                                        links.network.delay_s(static_cast<double>(moved.network_bytes))) /
                                           steps;
    row.in_turn_s += shares_.ranks * own * static_cast<double>(times);
    const double exposed = hides ? exposed_part(moved.seconds + own * steps, unit.delay, work) : 1;
    beside += (1 - exposed) * (moved.seconds / steps + own);
    const UnitWork planned{ready * part, exposed * moved.seconds / steps, exposed * own, machine_.device.beside, delay};
    if (gather)
      gathers.push_back({planned, ready * part});
    else
      units.push_back(planned);
  }
  if (!gathers.empty()) add_gathers(units, gathers, work, overlap_);
  row.time = step_time(work, units, shares_.ranks, spread_, overlap_);
  row.time.comm_s += beside;
  return row;
}

namespace {

// From 1 Mbit/s to 1 TB/s.
constexpr double kSlowest = 1.25e-4, kFastest = 1000;
constexpr int kPoints = 240, kCurveStep = 4;  // a curve has a point for each fourth step

double at(int i) {
  return kSlowest * std::pow(kFastest / kSlowest, static_cast<double>(i) / kPoints);
}

struct Field {
  std::vector<std::pair<std::string, const Case*>> variants;
  std::vector<double> speeds;  // of the variants

  double tokens_s(size_t v, double gb_s) const { return variants[v].second->row(speeds[v], gb_s).tokens_s(); }
  // The fastest variant, or `before` if it is as fast: variants that exchange the same are equal.
  size_t fastest(double gb_s, size_t before) const {
    size_t best = before;
    double most = tokens_s(before, gb_s);
    for (size_t v = 0; v < variants.size(); ++v) {
      const double own = v == before ? 0 : tokens_s(v, gb_s);
      if (own > most * (1 + 1e-9)) best = v, most = own;
    }
    return best;
  }
  double crossing(size_t below, size_t above, double low, double high) const {
    for (int i = 0; i < 40; ++i) {
      const double middle = std::sqrt(low * high);
      (tokens_s(below, middle) >= tokens_s(above, middle) ? low : high) = middle;
    }
    return low;
  }
};

}  // namespace

void add_bandwidths(Plan& plan, const std::vector<std::pair<std::string, const Case*>>& variants) {
  Field field;
  int step = 1;
  for (const Row& row : plan.rows) {
    if (row.ranks != variants[0].second->ranks()) continue;
    if (row.workers) step = kCurveStep;  // each of their rows is a simulation
    if (row.out_of_memory) continue;
    for (const auto& variant : variants)
      if (variant.first == row.variant) field.variants.push_back(variant);
    field.speeds.push_back(row.speed);
  }
  if (field.variants.empty() || variants[0].second->one_node()) return;
  const int ranks = variants[0].second->ranks();
  for (size_t v = 0; v < field.variants.size(); ++v) {
    Curve curve{field.variants[v].first, ranks, {}};
    for (int i = 0; i <= kPoints; i += kCurveStep) curve.points.emplace_back(at(i), field.tokens_s(v, at(i)));
    plan.curves.push_back(std::move(curve));
  }
  size_t best = field.fastest(at(0), 0);
  for (int i = step; i <= kPoints; i += step) {
    const size_t next = field.fastest(at(i), best);
    if (next == best) continue;
    plan.crossings.push_back({ranks, field.variants[best].first, field.variants[next].first,
                              field.crossing(best, next, at(i - step), at(i))});
    best = next;
  }
}

}  // namespace lmx::app::plan

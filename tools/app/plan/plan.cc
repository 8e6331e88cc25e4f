#include "app/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "app/corpora/zipf.h"
#include "app/datasets/open.h"
#include "app/memory/batch_fit.h"
#include "app/plan/case.h"
#include "app/plan/measured.h"
#include "app/plan/output.h"
#include "app/plan/variants.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/row_sampling.h"
#include "recipe/sync_rules.h"

namespace lmx::app::plan {
namespace {

// The factor of all times of computation with which `c` takes the anchor's time.
double speed_of(const Case& c, const Anchor& anchor) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  const auto seconds = [&](double speed) { return c.row(speed).time.step_s(); };
  if (seconds(kLeast) > anchor.step_s || seconds(kMost) < anchor.step_s)
    throw UserError(str("[plan] --anchor: no speed of the device gives steps of ", anchor.step_s, " s on ", c.ranks(),
                        " ranks: the plan takes ", seconds(1), " s, of which ", seconds(kLeast),
                        " s are communication that no computation hides"));
  double low = kLeast, high = kMost;
  for (int i = 0; i < 64; ++i) {
    const double middle = std::sqrt(low * high);
    (seconds(middle) < anchor.step_s ? low : high) = middle;
  }
  return low;
}

// The law of the run's text: Zipf's law, multiplied by the factor by which the run's tables have more or fewer rows.
WordLaw law_of(const Measured& m, const Case& c) {
  const int64_t vocabulary = c.shares().vocab;
  double measured = 0, expected = 0;
  for (const auto& [table, rows] : m.rows) {
    measured += rows;
    expected += static_cast<double>(expected_words(c.shares().step_tokens, vocabulary));
  }
  if (expected == 0) return {};
  const double factor = measured / expected;
  return WordLaw::of_types(str(factor, " times Zipf"), [factor, vocabulary](double words) {
    constexpr double kMost = 1e15;  // an integer
    return factor * static_cast<double>(expected_words(std::llround(std::min(words, kMost)), vocabulary));
  });
}

// Takes speed, law and spread from the run, where the request does not state them.
double take_measured(Request& request, const Variant& variant) {
  const Measured m = read_measured(request.from);
  Variant own = variant;
  own.tree = m.recipe;
  own.keeps_batch = true;
  const auto planned = [&] { return Case(own, "run", m.ranks, request); };
  if (!request.law) request.law = law_of(m, planned());
  if (request.spread <= 0) request.spread = m.spread;
  return m.compute_s / planned().row(1).time.compute_s;
}

void add_hours(Row& row, const Recipe& r, const std::optional<double>& epoch_tokens, const Machine& machine) {
  if (epoch_tokens) row.epoch_hours = *epoch_tokens / row.tokens_s() / 3600;
  if (r.train.steps > 0)
    row.total_hours = static_cast<double>(r.train.steps) * row.time.step_s() / 3600;
  else if (row.epoch_hours)
    row.total_hours = r.train.epochs * *row.epoch_hours;
  const int64_t per_node = machine.links.ranks_per_node;
  row.nodes = (row.ranks + per_node - 1) / per_node;
  row.node_price = machine.price.node_hour;
  if (row.epoch_hours && row.node_price > 0)
    row.epoch_price = *row.epoch_hours * row.node_price * static_cast<double>(row.nodes);
}

// Why `best` is faster than `next`: the largest of the differences of their steps, per token.
std::string reason_of(const Row& best, const Row& next) {
  const double scale = best.step_tokens / next.step_tokens;  // variants may differ in the size of their step
  const double wait = scale * next.time.wait_s - best.time.wait_s;
  const double compute = scale * next.time.compute_s - best.time.compute_s - wait;
  const double exposed = scale * next.time.exposed_s - best.time.exposed_s;
  const std::string factor = format("%.4g", best.tokens_s() / next.tokens_s());
  std::string why = str("computes ", seconds_text(compute), " less");
  if (exposed >= compute && exposed >= wait)
    why = str("waits ", seconds_text(exposed), " less for the exchange");
  else if (wait >= compute)
    why = str("waits ", seconds_text(wait), " less for the slowest rank");
  return str(factor, " times as fast as ", next.variant, ": each step ", why);
}

Winner winner_of(const std::vector<const Row*>& rows) {
  constexpr double kEqual = 1.001;
  std::vector<const Row*> fit;
  for (const Row* row : rows)
    if (!row->out_of_memory) fit.push_back(row);
  std::stable_sort(fit.begin(), fit.end(), [](const Row* a, const Row* b) { return a->tokens_s() > b->tokens_s(); });
  if (fit.empty()) return {rows[0]->ranks, "", "every variant needs more memory than the device has"};
  if (fit.size() == 1)
    return {rows[0]->ranks, fit[0]->variant, "every other variant needs more memory than the device has"};
  if (fit.front()->tokens_s() < kEqual * fit.back()->tokens_s())
    return {rows[0]->ranks, "", "all variants that fit are equally fast"};
  if (fit[0]->tokens_s() < kEqual * fit[1]->tokens_s())
    return {rows[0]->ranks, fit[0]->variant, str("as fast as ", fit[1]->variant)};
  return {rows[0]->ranks, fit[0]->variant, reason_of(*fit[0], *fit[1])};
}

// Returns the tokens of the training text as published: provenance.corpus_tokens states them for a corpus. A recipe
// that trains on a part of it has as much less.
std::optional<double> published_tokens(const Recipe& r) {
  const Node *corpus = r.data.find("corpus"), *table = r.provenance.find("corpus_tokens");
  const Node* tokens = corpus && table ? table->find(corpus->text) : nullptr;
  if (!tokens) return {};
  const std::optional<double> value = parse_double(tokens->text);
  if (!value || !(*value > 0))
    throw UserError(str(config::at(tokens->mark, "provenance.corpus_tokens." + corpus->text),
                        "expected a number of tokens above 0, got ", config::describe_value(*tokens)));
  const Node* part = r.data.find("train_fraction");
  return *value * (part ? parse_double(part->text).value_or(1) : 1);
}

std::vector<std::string> notes_of(const Request& request, const Case& c, const Machine& machine, bool corpus,
                                  const std::optional<double>& published) {
  const Recipe& r = c.recipe();
  const bool pairs = c.shares().pairs;
  std::vector<std::string> notes;
  if (!request.law) notes.push_back("words follow Zipf's law; --types or --counts states another law");
  if (pairs) notes.push_back(str("sentences of ", kSentence, " tokens on both sides"));
  if (pairs && request.fill == 1)
    notes.push_back("every sub-batch holds as many tokens as its budget allows; --fill states the mean part");
  if (is_asynchronous(r.sync, "sync"))
    notes.push_back("the steps of a worker vary as the rule's clock says (sync.RULE.delay), around the planned time");
  else if (request.spread <= 0)
    notes.push_back("all passes of a rank take the same time; --spread states their deviation");
  if (!corpus)
    notes.push_back(
        "the corpus of `data:` is not here, so the hours of an epoch are unknown; --epoch-tokens states its size");
  if (published)
    notes.push_back(str("the corpus of `data:` is not here; an epoch has ", count_text(std::llround(*published)),
                        " tokens, as provenance.corpus_tokens of the recipe states"));
  if (r.precision != "fp32" && machine.device.kind == "cpu" && !(r.precision == "bf16" && machine.device.native_bf16))
    notes.push_back("the machine's CPU widens 16-bit operands to fp32 for products (device.native_bf16)");
  if (c.fit()) notes.push_back(fit_note(r, machine.device.memory_gb));
  if (c.fit() && c.fit()->unknown_text)
    notes.push_back("the size of the text is unknown, so only the memory limits the batch; --epoch-tokens states it");
  if (!c.fit() && r.batch.micro > 0)
    notes.push_back(str("forward passes of ", r.batch.micro, " sequences (batch.micro)"));
  std::string stops = r.stop.when.empty() ? "" : "stop.when";
  if (r.stop.patience > 0) stops += stops.empty() ? "stop.patience" : " or stop.patience";
  if (!stops.empty()) notes.push_back(str("the run makes all its steps, although ", stops, " may end it earlier"));
  return notes;
}

std::string speed_text(double speed) {
  return format("%.3g", speed);
}

// Adds the lines of variants, or one line if all variants have the same.
void add_speeds(Plan& plan, const std::vector<std::pair<std::string, std::string>>& lines) {
  const bool equal =
      std::all_of(lines.begin(), lines.end(), [&](const auto& l) { return l.second == lines[0].second; });
  for (const auto& [label, line] : lines) {
    if (!line.empty()) plan.speeds.push_back(equal ? line : label + ": " + line);
    if (equal) break;
  }
}

// The number after position `sign`, or NaN.
double number_after(const std::string& text, size_t sign) {
  return sign == std::string::npos ? NAN : parse_double(text.substr(sign + 1)).value_or(NAN);
}

}  // namespace

Anchor parse_anchor(const std::string& text) {
  const size_t colon = text.find(':');
  const std::optional<int64_t> ranks = parse_int(text.substr(0, colon));
  const double seconds = number_after(text, colon);
  if (!ranks || *ranks < 1 || *ranks > kMostRanks || !(seconds > 0) || !std::isfinite(seconds))
    throw UserError(str("[plan] --anchor takes RANKS:SECONDS of a measured step, such as 8:0.348, got '", text, "'"));
  return {*ranks, seconds};
}

WordLaw parse_law(const std::string& text) {
  const size_t comma = text.find(',');
  const auto factor = parse_double(text.substr(0, comma));
  const double exponent = number_after(text, comma);
  if (!factor || !(*factor > 0) || !(exponent > 0 && exponent <= 1))
    throw UserError(
        str("[plan] --types takes FACTOR,EXPONENT of the number of different words in N tokens, FACTOR N^EXPONENT, ",
            "such as 8.17,0.64: a factor above 0, and an exponent above 0 and at most 1; got '", text, "'"));
  return WordLaw::of_types(text, [law = PowerLaw{*factor, exponent, {}, 0}](double words) { return law.at(words); });
}

struct Planner::Impl {
  Request request;
  bool swept = false;
  std::vector<Variant> variants;
  std::string recipe;
  std::vector<int64_t> ranks;                        // ascending, each once
  std::optional<double> speed;                       // of the request's run
  std::optional<double> published;                   // request.epoch_tokens, if only the recipe states them
  std::map<std::pair<size_t, int64_t>, Case> cases;  // by variant and ranks
  std::shared_ptr<KnownSpeeds> shared;
  KnownSpeeds::Steps* known = nullptr;  // null: another step sets the speed
  std::vector<std::string> known_text;  // what known steps say about the text

  explicit Impl(const Request& asked) : request(asked), variants(variants_of(request, swept)) {
    recipe = std::filesystem::path(request.recipe).stem().string();
    ranks = request.ranks;
    if (ranks.empty()) ranks = {ranks_of(variants[0].tree)};
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    if (!request.from.empty()) speed = take_measured(request, variants[0]);
    load_known();
    if (!request.epoch_tokens) request.epoch_tokens = check_dataset(of(0, ranks[0]).recipe().data).train_tokens;
    if (!request.epoch_tokens) request.epoch_tokens = known_tokens;
    if (!request.epoch_tokens) {
      request.epoch_tokens = published = published_tokens(of(0, ranks[0]).recipe());
      if (published) cases.clear();  // batch.fit depends on the size of the text
    }
  }
  std::optional<double> known_tokens;  // of the recipe's text, as a known step states them
  // Takes what the machine's known steps say about the recipe's text, where the request does not state it.
  void load_known() {
    if (!request.calibrated || request.anchor || !request.from.empty()) return;
    shared = request.known ? request.known : std::make_shared<KnownSpeeds>();
    known = &shared->steps_of(request, variants[0]);
    const KnownSpeeds::Match match = most_like(*known, recipe, variants[0].tree, true);
    if (match.kind < KnownSpeeds::Match::model) return;
    const KnownStep& step = match.step->step;
    if (!request.law && !step.types.empty()) {
      request.law = parse_law(step.types);
      known_text.push_back(str("words as in the text of ", step.recipe, ", ", step.types, " (machine.known)"));
    }
    if (request.spread <= 0 && step.spread > 0) {
      request.spread = step.spread;
      known_text.push_back(str("sub-batches as of ", step.recipe, ", spread ", step.spread, " (machine.known)"));
    }
    if (request.fill == 1) request.fill = step.fill;
    if (match.kind == KnownSpeeds::Match::recipe && step.epoch_tokens > 0) known_tokens = step.epoch_tokens;
  }
  // The rows of a variant. `at`: as for Planner::rows(). `line`: about the step that sets the speed.
  std::vector<Row> rows_of(size_t v, std::optional<double> at, std::string& line) {
    Row as;  // at this speed
    as.speed = at.value_or(1);
    if (!at && known) line = calibrate(variants[v], as);
    std::vector<Row> rows;
    for (const int64_t n : ranks) {
      Row& row = rows.emplace_back(of(v, n).row(as.speed));
      row.variant = variants[v].label;
      row.algorithm = variants[v].algorithm;
      row.speed = as.speed;
      row.speed_alone = as.speed_alone;
      row.sets_speed = as.sets_speed && row.ranks == as.ranks && row.batch == as.batch;
    }
    return rows;
  }
  // Sets the speed of `as`, and, if the variant is the known step itself on some number of ranks, that number and its
  // batch.
  std::string calibrate(const Variant& variant, Row& as) {
    const KnownSpeeds::Match match = most_like(*known, recipe, variant.tree, false);
    const DeviceConfig& device = variant.machine.device;
    if (!match.step && !device.passes.items.empty()) return "";  // by lmx plan --calibrate
    if (!match.step)
      return "not calibrated: the machine's file has no measured step of such a model in this precision, so real steps "
             "can be much longer; --anchor and --from state one";
    const KnownSpeed& s = known_speed(*match.step);
    as.speed = s.speed;
    as.speed_alone = s.speed_alone;
    as.sets_speed = parts_text(variant.tree) == s.parts;
    as.ranks = static_cast<int>(s.ranks);
    as.batch = s.batch;
    return str("computation takes ", speed_text(s.speed), " times as long as the machine's file says",
               ": the known step of ", match.step->step.recipe, " on ", plural(s.ranks, "rank"), " takes ",
               seconds_text(s.step_s), match.kind < KnownSpeeds::Match::model ? ", of another model of this kind" : "");
  }
  const Case& of(size_t variant, int64_t n) {
    const auto found = cases.find({variant, n});
    if (found != cases.end()) return found->second;
    const auto made = [&](size_t v) { return Case(variants[v], recipe, static_cast<int>(n), request); };
    try {
      return cases.emplace(std::pair(variant, n), made(variant)).first->second;
    } catch (const UserError&) {
      std::vector<std::string> labels;
      for (const Variant& v : variants) labels.push_back(v.label);
      for_variants(labels, made);
      throw;
    }
  }
};

Planner::Planner(const Request& request) : impl_(std::make_unique<Impl>(request)) {}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;

double Planner::speed_of(const Anchor& anchor) {
  return plan::speed_of(impl_->of(0, anchor.ranks), anchor);
}

std::optional<double> Planner::speed() {
  return impl_->request.anchor ? speed_of(*impl_->request.anchor) : impl_->speed;
}

size_t Planner::built() const {
  return impl_->cases.size();
}

Plan Planner::rows(std::optional<double> speed) {
  Impl& p = *impl_;
  Plan plan;
  plan.recipe = p.recipe;
  plan.machine_name = p.request.machine;
  plan.machine = p.variants[0].machine;
  if (speed && *speed != 1)
    plan.speeds.push_back(str("computation takes ", speed_text(*speed), " times as long as the machine's file says"));
  const Case& first = p.of(0, p.ranks[0]);
  plan.notes = notes_of(p.request, first, plan.machine, p.request.epoch_tokens.has_value(), p.published);
  plan.notes.insert(plan.notes.end(), p.known_text.begin(), p.known_text.end());
  bool divides = false;
  for (size_t v = 0; v < p.variants.size(); ++v) divides = divides || p.of(v, p.ranks[0]).divides_values();
  if (divides) plan.notes.push_back("stage: 3 gathers the values of a unit before each use; no run of lmx does that");
  bool measured = true;
  for (size_t v = 0; v < p.variants.size(); ++v) measured = measured && p.of(v, p.ranks.back()).exchange_is_measured();
  if (!measured)
    plan.notes.push_back(
        "a rank's own work on an exchange, such as choosing, packing and adding values, is counted as the time of its "
        "bytes in memory; it often takes more, and --calibrate measures it");
  if (p.swept) plan.notes.push_back("the recipe's own values: the axes of its sweep are not planned");
  std::vector<std::pair<std::string, std::string>> lines;  // by variant
  for (size_t v = 0; v < p.variants.size(); ++v) {
    std::string line;
    std::vector<Row> rows = p.rows_of(v, speed, line);
    lines.emplace_back(p.variants[v].label, line);
    const double first_rate = rows[0].tokens_s() / rows[0].ranks;  // on the fewest ranks
    for (Row& row : rows) {
      row.efficiency = row.tokens_s() / row.ranks / first_rate;
      add_hours(row, p.of(v, row.ranks).recipe(), p.request.epoch_tokens, p.variants[v].machine);
      plan.rows.push_back(std::move(row));
    }
  }
  add_speeds(plan, lines);
  return plan;
}

Plan Planner::plan(std::optional<double> speed) {
  Impl& p = *impl_;
  Plan plan = rows(speed);
  std::map<int64_t, std::vector<const Row*>> by_ranks;
  for (size_t i = 0; i < plan.rows.size(); ++i) by_ranks[p.ranks[i % p.ranks.size()]].push_back(&plan.rows[i]);
  if (p.variants.size() > 1)
    for (const auto& [n, rows] : by_ranks) plan.winners.push_back(winner_of(rows));
  std::vector<std::pair<std::string, const Case*>> largest;
  for (size_t v = 0; v < p.variants.size(); ++v) largest.emplace_back(p.variants[v].label, &p.of(v, p.ranks.back()));
  add_bandwidths(plan, largest);
  return plan;
}

Plan make_plan(const Request& request) {
  Planner planner(request);
  return planner.plan(planner.speed());
}

std::string ChosenPass::text() const {
  return str(count_text(size), pairs ? " token" : " sequence", size == 1 ? "" : "s");
}

namespace {

// NaN: they are not known.
std::optional<int64_t> known_tokens(double tokens) {
  if (std::isnan(tokens)) return {};
  return std::llround(tokens);
}

}  // namespace

ChosenPass fit_batch(Recipe& recipe, const Outline& outline, double memory_gb,
                     const std::optional<double>& epoch_tokens, const RankBytes& bytes) {
  const double budget = recipe.memory.budget,
               allowed = budget > 0 ? std::min(budget, memory_gb) : kFittedPart * memory_gb;
  std::optional<int64_t> tokens = 0;
  if (recipe.batch.global == 0)
    tokens = epoch_tokens ? known_tokens(*epoch_tokens) : check_dataset(recipe.data).train_tokens;
  const FitSizes sizes(recipe, outline.batch, outline.shares.ranks, tokens.value_or(kUnknownTokens));
  Recipe own = recipe;
  const auto bytes_of = [&](const BatchConfig& batch) {
    own.batch = batch;
    return bytes(own);
  };
  const int64_t size =
      sizes.largest([&](const BatchConfig& batch) { return static_cast<double>(bytes_of(batch)) <= allowed * 1e9; });
  const int64_t chosen = size > 0 ? size : sizes.cheapest(bytes_of);
  recipe.batch = sizes.batch(chosen);
  return {chosen, sizes.pairs(), sizes.passes(chosen), size > 0, !tokens};
}

std::string fit_note(const Recipe& recipe, double memory_gb) {
  const double budget = recipe.memory.budget;
  const std::string most = budget > memory_gb
                               ? str("the memory of the device, ", bytes_text(std::llround(memory_gb * 1e9)))
                           : budget > 0 ? str("memory.budget, ", bytes_text(std::llround(budget * 1e9)))
                                        : str(std::llround(100 * kFittedPart), " % of the device's memory");
  return str("batch.fit chooses passes that take at most ", most,
             " on each rank; a run chooses less if its probe does not fit");
}

}  // namespace lmx::app::plan

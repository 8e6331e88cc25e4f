// Checks of sync strategies: the sum over ranks, equal on all of them; as many bytes as expected_bytes() returns; and a
// state from which a run continues as if it had not stopped. Uses virtual ranks, whose gradients are a function of rank
// and step.
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "conformance/rank.h"

namespace lmx_cli::check {
namespace {

using namespace lmx;

constexpr int kSteps = 5, kSavedStep = 3;  // the state is saved before this step

// The results of the ranks of one group.
struct Findings {
  std::mutex mutex;
  std::map<int, std::string> ledger, again, resumed, units;  // errors by rank; the lowest rank is reported
  std::vector<std::vector<Values>> values;                   // [rank][step]
  std::vector<SelectedRows> selected;                        // [step]
  std::vector<StateDict> states;                             // [rank], before kSavedStep
  bool server = false;
  std::string crashed;
};

class SyncCheck {
 public:
  explicit SyncCheck(const Subject& s) : s_(s) {}

  void run(Report& report) {
    for (const int ranks : {1, 2, 3}) groups_.push_back(observe(ranks));
    if (groups_[0]->server) {
      report.run("ranks in step", []() -> std::string {
        throw Skipped(
            "an asynchronous strategy, which has no reduce(): try it in a recipe, `lmx run recipes/quickstart.yaml "
            "--ranks 4`");
      });
      return;
    }
    report.run("units", [&] { return first(&Findings::units, "every parameter is exchanged once"); });
    report.run("ledger",
               [&] { return first(&Findings::ledger, "as many bytes as expected_bytes() says, on 1, 2 and 3 ranks"); });
    report.run("ranks", [&] { return ranks_agree(); });
    report.run("determinism", [&] { return first(&Findings::again, "a second run gives the same bits"); });
    report.run("state", [&] { return first(&Findings::resumed, state_text()); });
    report.run("sum", [&] { return sum(); });
    check_feedback(report, s_);
  }

 private:
  // Runs two passes, because the second needs the states of all ranks of the first.
  std::unique_ptr<Findings> observe(int ranks) const {
    auto found = std::make_unique<Findings>();
    found->values.resize(static_cast<size_t>(ranks));
    found->states.resize(static_cast<size_t>(ranks));
    virtual_group(ranks)->run([&](Communicator& comm) { first_pass(comm, *found); });
    if (!found->server) virtual_group(ranks)->run([&](Communicator& comm) { second_pass(comm, *found); });
    return found;
  }

  void first_pass(Communicator& comm, Findings& found) const {
    RankRun run(comm, s_);
    const auto rank = static_cast<size_t>(comm.rank());
    if (run.server()) {
      const std::lock_guard lock(found.mutex);
      found.server = true;
      return;
    }
    std::multiset<std::string> seen;
    for (const auto& unit : run.units()) seen.insert(unit.begin(), unit.end());
    std::vector<Values> values;
    std::vector<SelectedRows> selected;
    StateDict state;
    std::string wrong;
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSavedStep)
        for (const auto& [name, t] : run.strategy().state()) state.emplace(name, t.clone());
      const std::string ledger = run.step(step);
      if (wrong.empty()) wrong = ledger;
      values.push_back(run.values());
      selected.push_back(run.selected());
    }
    const std::lock_guard lock(found.mutex);
    for (const ParameterSpec& p : parameters())
      if (seen.count(p.name) != 1)
        found.units[comm.rank()] = str("units() has ", p.name, " ", seen.count(p.name), " times");
    if (!wrong.empty()) found.ledger[comm.rank()] = wrong;
    found.values[rank] = std::move(values);
    found.selected = std::move(selected);
    found.states[rank] = std::move(state);
  }

  void second_pass(Communicator& comm, Findings& found) const {
    RankRun again(comm, s_), resumed(comm, s_);
    const std::vector<Values>& first = found.values[static_cast<size_t>(comm.rank())];
    std::string differs, lost;
    const auto where = [&](int step) { return str("rank ", comm.rank(), " of ", comm.size(), ", step ", step, ": "); };
    for (int step = 0; step < kSteps; ++step) {
      again.step(step);
      if (differs.empty() && !same_bits(again.values(), first[static_cast<size_t>(step)]))
        differs = where(step) + "a second run gives other bits";
    }
    resumed.strategy().load(resumed.ctx(), found.states);
    for (int step = kSavedStep; step < kSteps; ++step) {
      resumed.step(step);
      if (lost.empty() && !same_bits(resumed.values(), first[static_cast<size_t>(step)]))
        lost = where(step) + str("a run that loads the state() of step ", kSavedStep, " continues differently");
    }
    const std::lock_guard lock(found.mutex);
    if (!differs.empty()) found.again[comm.rank()] = differs;
    if (!lost.empty()) found.resumed[comm.rank()] = lost;
  }

  std::string first(std::map<int, std::string> Findings::*what, const std::string& passed) const {
    for (const auto& f : groups_)
      if (!((*f).*what).empty()) fail(((*f).*what).begin()->second);
    return passed;
  }

  std::string state_text() const {
    const size_t kept = groups_.back()->states[0].size();
    return kept ? str(kept, " tensors saved and loaded; the run continues bit-exactly")
                : "the strategy has no state, and the run continues bit-exactly";
  }

  std::string ranks_agree() const {
    for (const auto& f : groups_) {
      for (size_t r = 1; r < f->values.size(); ++r)
        for (size_t step = 0; step < kSteps; ++step)
          if (!same_bits(f->values[r][step], f->values[0][step]))
            fail("step ", step, ": rank ", r, " of ", f->values.size(), " has other gradients than rank 0");
    }
    return "the same bits on all ranks";
  }

  // Compares all steps together, so that rounding errors that a step leaves for the next one are permitted.
  std::string sum() const {
    double worst = 0;
    const std::vector<ParameterSpec> specs = parameters();
    for (const auto& f : groups_) {
      for (size_t i = 0; i < specs.size(); ++i) {
        double error = 0, size = 0;
        for (int step = 0; step < kSteps; ++step) {
          const std::vector<double> wanted =
              sum_of(static_cast<int>(f->values.size()), step, specs[i], f->selected[static_cast<size_t>(step)]);
          const std::vector<float>& got = f->values[0][static_cast<size_t>(step)][i];
          for (size_t k = 0; k < wanted.size(); ++k) {
            if (!std::isfinite(got[k])) fail(specs[i].name, "[", k, "] is ", got[k], " in step ", step);
            error += std::pow(static_cast<double>(got[k]) - wanted[k], 2);
            size += std::pow(wanted[k], 2);
          }
        }
        worst = std::max(worst, std::sqrt(error / std::max(size, 1e-30)));
      }
    }
    constexpr double kExact = 1e-5;
    if (worst > kExact && !s_.approximate)
      fail("what comes out differs from the sum over ranks by ", worst,
           " of its size; a strategy that rounds or leaves out on purpose is checked with --approximate");
    return worst > kExact ? str("within ", worst, " of the sum's size over ", kSteps,
                                " steps; --approximate allows any difference here, the mean is checked below")
                          : "the exact sum, on 1, 2 and 3 ranks";
  }

  const Subject& s_;
  std::vector<std::unique_ptr<Findings>> groups_;
};

}  // namespace

void check_sync(Report& report, const Subject& subject) {
  report.run("construction", [&] {
    const SyncEnv env{"check", parameters(), 0, 1, RandomKey(3)};
    create<SyncFactory>(subject.plugin, subject.config, "sync.check", env);
    return std::string("for tables and matrices");
  });
  if (report.failures() > 0) return;
  try {
    SyncCheck(subject).run(report);
  } catch (const std::exception& e) {
    const std::string text = e.what();
    report.run("ranks in step", [&]() -> std::string { fail(text); });
  }
}

}  // namespace lmx_cli::check

#include "app/jobs/launcher.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "app/compose/override.h"
#include "app/records/records.h"
#include "base/clock.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "recipe/comm_config.h"

namespace lmx::app::jobs {
namespace {

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// Returns the number of threads for `cores`, limited by the user's own OMP_NUM_THREADS.
std::string threads_on(size_t cores) {
  const char* set = std::getenv("OMP_NUM_THREADS");
  const auto wanted = set ? parse_int(set) : std::nullopt;
  const auto most = static_cast<int64_t>(cores);
  return std::to_string(wanted && *wanted > 0 ? std::min(*wanted, most) : most);
}

// `jobs` children (or `children` if this is fewer) run at a time. Each is bound to its share of the cores and has as
// many threads. A child that requests more gets more, and fewer run at the same time. If there are more jobs than
// cores, each child has one thread and none is bound, because the kernel's scheduling is better than fixed cores.
class Cores {
 public:
  Cores(int64_t jobs, size_t children) : free_(own_cores()), all_(free_.size()) {
    const size_t most = std::max<size_t>(1, std::min(static_cast<size_t>(std::max<int64_t>(1, jobs)), children));
    bound_ = most <= all_;
    share_ = std::max<size_t>(1, all_ / most);
  }
  // Returns whether enough cores are free. Always true if no child runs.
  bool free_for(const Demand& demand) const { return !bound_ || need(demand) <= free_.size(); }
  // Takes cores for a child that starts now. When it has ended, pass its `cores` to give_back().
  Surroundings take(const Demand& demand) {
    Surroundings around;
    if (bound_) {
      const auto end = free_.begin() + static_cast<std::ptrdiff_t>(std::min(need(demand), free_.size()));
      around.cores.assign(free_.begin(), end);
      free_.erase(free_.begin(), end);
    }
    // MPI ranks divide their cores among themselves.
    if (demand.processes == 1)
      around.environment.emplace_back("OMP_NUM_THREADS", threads_on(std::max<size_t>(1, around.cores.size())));
    return around;
  }
  void give_back(const std::vector<int>& cores) {
    free_.insert(free_.end(), cores.begin(), cores.end());
    std::sort(free_.begin(), free_.end());
  }

 private:
  size_t need(const Demand& demand) const {
    const auto asked = static_cast<size_t>(demand.processes * std::max<int64_t>(1, demand.threads));
    return std::min(all_, std::max(share_, asked));
  }

  std::vector<int> free_;
  size_t all_, share_;
  bool bound_;
};

using Clock = std::chrono::steady_clock;

constexpr auto kPollEvery = std::chrono::milliseconds(50);
// How long to wait for a run that another process still holds. If its sweep was killed, the run ends within a second.
constexpr auto kPatience = std::chrono::seconds(30);

class LocalLauncher final : public Launcher {
 public:
  LocalLauncher(int64_t jobs, size_t most)
      : jobs_(static_cast<size_t>(std::max<int64_t>(1, jobs))), cores_(jobs, most) {}

  size_t start(const std::deque<Job>& waiting) override {
    size_t started = 0;
    for (const Job& job : waiting) {
      if (running_.size() >= jobs_ || told_ > 0 || !cores_.free_for(job.demand) || held(job.run)) break;
      prepare(job);
      const Surroundings around = cores_.take(job.demand);
      running_.push_back({job.id, Child(job.words, job.log, around), Clock::now(), around.cores, memory_kills()});
      ++started;
    }
    return started;
  }

  std::vector<Ended> poll() override {
    pass_signals_on();
    std::vector<Ended> all;
    for (auto r = running_.begin(); r != running_.end();) {
      const std::optional<int> code = r->child.poll();
      if (!code) {
        ++r;
        continue;
      }
      cores_.give_back(r->cores);
      all.push_back({r->id, *code, seconds_since(r->since), memory_kills() > r->kills});
      r = running_.erase(r);
    }
    return all;
  }

  std::vector<std::string> running() const override {
    std::vector<std::string> ids;
    for (const Running& r : running_) ids.push_back(r.id);
    return ids;
  }
  bool outlives() const override { return false; }
  void stop() override {
    for (const Running& r : running_) r.child.send(SIGTERM);
  }

 private:
  struct Running {
    std::string id;
    Child child;  // is killed if it still runs at the end of this process
    Clock::time_point since;
    std::vector<int> cores;
    int64_t kills;  // memory_kills() at its start
  };

  void pass_signals_on() {
    if (SignalNote::count() == told_) return;
    told_ = SignalNote::count();
    stop();
  }

  // True while another process still trains in `run`. UserError: that process does not end.
  bool held(const std::string& run) {
    if (!is_locked(run)) {
      held_since_.reset();
      return false;
    }
    if (!held_since_) held_since_ = Clock::now();
    if (Clock::now() - *held_since_ > kPatience)
      throw UserError(
          str("[jobs] another process trains in ", run, " (its status.json names it); end it, then continue"));
    return true;
  }

  const size_t jobs_;
  Cores cores_;
  std::list<Running> running_;
  std::optional<Clock::time_point> held_since_;
  int told_ = 0;  // number of signals that were sent to the children
};

}  // namespace

int64_t own_core_count() {
  return static_cast<int64_t>(own_cores().size());
}

Demand demand_of(const Node& recipe) {
  const auto number = [&](const char* path) { return static_cast<int64_t>(number_at(recipe, path)); };
  const Node* comm = recipe.find("comm");
  const bool processes = comm && !in_one_process(*comm, "comm");
  return {processes ? std::max<int64_t>(1, number("comm.ranks")) : 1, number("threads")};
}

Launcher::~Launcher() = default;

void Launcher::say(LogLevel level, const std::string& text) const {
  before_message();
  log(level, text);
}

std::unique_ptr<Launcher> local_launcher(int64_t jobs, size_t most) {
  return std::make_unique<LocalLauncher>(jobs, most);
}

Runner::Runner(Launcher& launcher, Progress& progress) : launcher_(launcher), progress_(progress) {
  launcher.before_message = [&progress] { progress.hide(); };
}

Runner::~Runner() {
  launcher_.before_message = [] {};
}

void Runner::start() {
  const size_t count = waiting_.empty() ? 0 : launcher_.start(waiting_);
  for (size_t i = 0; i < count; ++i) {
    const Job job = std::move(waiting_.front());
    waiting_.pop_front();
    started(job);
    progress_.started(job.id);
  }
}

void Runner::drive() {
  while (!waiting_.empty() || !launcher_.running().empty()) {
    if (!interrupted()) start();
    const std::vector<Ended> all = launcher_.poll();
    if (SignalNote::count() > 0 && launcher_.outlives()) break;
    if (!all.empty()) progress_.hide();
    for (const Ended& job : all) {
      ended(job);
      launcher_.recorded(job.id);
    }
    if (interrupted() && launcher_.running().empty()) break;
    if (all.empty()) std::this_thread::sleep_for(kPollEvery);
    progress_.show();
  }
  progress_.hide();
}

void Runner::stop() {
  stopped_ = true;
  launcher_.stop();
}

std::vector<std::string> run_command(const std::string& recipe, const std::string& directory,
                                     const std::vector<std::string>& plugin_directories) {
  std::vector<std::string> words{own_program(), "run", recipe, "run.dir=" + value_text(Node::string(directory)),
                                 "--resume",    "auto"};
  for (const std::string& plugins : plugin_directories) words.insert(words.end(), {"--plugin-dir", plugins});
  return words;
}

void prepare(const Job& job) {
  if (job.prepare) job.prepare();
  std::error_code error;
  std::filesystem::remove(job.run + "/status.json", error);
}

}  // namespace lmx::app::jobs

// Points as processes on this machine.
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "../jobs/pool.h"
#include "launcher.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using Clock = std::chrono::steady_clock;
using lmx::str;

// How long a run that another process still holds is waited for. One whose sweep was killed ends within a second.
constexpr auto kPatience = std::chrono::seconds(30);

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

class LocalLauncher : public Launcher {
 public:
  LocalLauncher(const Plan& plan, const Folder& folder, const LaunchOptions& options)
      : plan_(plan),
        folder_(folder),
        jobs_(static_cast<size_t>(std::max<int64_t>(1, options.jobs))),
        free_(own_cores()) {
    all_ = free_.size();
    pinned_ = jobs_ <= all_;  // more points than cores: the kernel divides better than fixed places do
    share_ = std::max<size_t>(1, all_ / jobs_);
  }

  // Points die with the process that started them.
  std::vector<size_t> recover(const std::vector<Batch>&) override { return {}; }

  size_t launch(const std::vector<Work>& waiting) override {
    size_t started = 0;
    for (const Work& work : waiting) {
      const size_t cores = need(plan_.points[work.point]);
      if (pool_.size() >= jobs_ || pool_.signal()) break;
      if (pinned_ && cores > free_.size() && pool_.size() > 0) break;
      if (held(work.point)) break;
      start(work, cores);
      ++started;
    }
    return started;
  }

  std::vector<Finished> poll() override {
    std::vector<Finished> all;
    while (const std::optional<jobs::Ended> ended = pool_.poll()) {
      const auto place = running_.find(static_cast<size_t>(std::stoull(ended->id)));
      free_.insert(free_.end(), place->second.cores.begin(), place->second.cores.end());
      std::sort(free_.begin(), free_.end());
      all.push_back({place->first, {ended->code, memory_kills() > place->second.memory_kills, ""}, ended->seconds});
      running_.erase(place);
    }
    return all;
  }

  std::vector<size_t> running() const override {
    std::vector<size_t> points;
    for (const auto& [point, place] : running_) points.push_back(point);
    return points;
  }
  int signal() const override { return pool_.signal(); }
  bool outlives() const override { return false; }
  void stop() override {
    for (const auto& [point, place] : running_) pool_.send(std::to_string(point), SIGTERM);
  }

 private:
  struct Place {
    std::vector<int> cores;
    int64_t memory_kills = 0;
  };

  // Cores of a point: its share, or what its ranks and threads ask for.
  size_t need(const Point& point) const {
    const auto asked = static_cast<size_t>(point.processes * std::max<int64_t>(1, point.threads));
    return std::min(all_, std::max(share_, asked));
  }

  // True while another process still trains the point. UserError where it does not end.
  bool held(size_t point) {
    if (!jobs::is_locked(folder_.run(plan_.points[point]))) {
      held_since_.reset();
      return false;
    }
    if (!held_since_) held_since_ = Clock::now();
    if (Clock::now() - *held_since_ > kPatience)
      throw lmx::UserError(str("[sweep] another process trains in ", folder_.run(plan_.points[point]),
                               " (its status.json names it); end it, then --resume ", folder_.path));
    return true;
  }

  void start(const Work& work, size_t cores) {
    const Point& point = plan_.points[work.point];
    Place place;
    if (pinned_) {
      cores = std::min(cores, free_.size());
      place.cores.assign(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(cores));
      free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(cores));
    }
    place.memory_kills = memory_kills();
    jobs::Surroundings around{place.cores, {}};
    // Ranks of MPI divide their cores among themselves.
    if (point.processes == 1) around.environment.emplace_back("OMP_NUM_THREADS", threads(pinned_ ? cores : 1));
    forget_status(folder_, point);
    pool_.start({std::to_string(work.point), point_command(plan_, folder_, work), folder_.log(point), around});
    running_.emplace(work.point, std::move(place));
  }

  static std::string threads(size_t cores) {
    const char* set = std::getenv("OMP_NUM_THREADS");
    const auto wanted = set ? lmx::parse_int(set) : std::nullopt;
    return std::to_string(wanted && *wanted > 0 ? std::min<int64_t>(*wanted, static_cast<int64_t>(cores))
                                                : static_cast<int64_t>(cores));
  }

  const Plan& plan_;
  const Folder folder_;
  const size_t jobs_;
  std::vector<int> free_;  // cores that no point has
  size_t all_ = 1, share_ = 1;
  bool pinned_ = true;
  std::map<size_t, Place> running_;
  std::optional<Clock::time_point> held_since_;
  jobs::Pool pool_;
};

}  // namespace

Launcher::~Launcher() = default;

std::unique_ptr<Launcher> local_launcher(const Plan& plan, const Folder& folder, const LaunchOptions& options) {
  return std::make_unique<LocalLauncher>(plan, folder, options);
}

std::vector<std::string> point_command(const Plan& plan, const Folder& folder, const Work& work) {
  const Point& point = plan.points[work.point];
  std::vector<std::string> words = jobs::run_command(folder.recipe(point), folder.run(point), plan.request.plugin_dirs);
  if (work.until > 0) words.insert(words.end(), {"--until", std::to_string(work.until)});
  return words;
}

void forget_status(const Folder& folder, const Point& point) {
  std::error_code error;
  std::filesystem::remove(folder.run(point) + "/status.json", error);
}

}  // namespace lmx_cli::sweeps

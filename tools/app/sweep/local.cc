// Runs points as processes on this machine.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "app/jobs/cores.h"
#include "app/jobs/pool.h"
#include "app/sweep/launcher.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using Clock = std::chrono::steady_clock;
using lmx::str;

// How long to wait for a run that another process still holds. If its sweep was killed, the run ends within a second.
constexpr auto kPatience = std::chrono::seconds(30);

class LocalLauncher : public Launcher {
 public:
  LocalLauncher(const Plan& plan, const Folder& folder, const LaunchOptions& options)
      : plan_(plan),
        folder_(folder),
        jobs_(static_cast<size_t>(std::max<int64_t>(1, options.jobs))),
        cores_(options.jobs, plan.points.size()) {}

  // Points end together with the process that started them, so there are none to recover.
  std::vector<size_t> recover(const std::vector<Batch>&) override { return {}; }

  size_t launch(const std::vector<Work>& waiting) override {
    size_t started = 0;
    for (const Work& work : waiting) {
      if (pool_.size() >= jobs_ || pool_.signal()) break;
      if (!cores_.free_for(plan_.points[work.point].demand) || held(work.point)) break;
      start(work);
      ++started;
    }
    return started;
  }

  std::vector<Finished> poll() override {
    std::vector<Finished> all;
    while (const std::optional<jobs::Ended> ended = pool_.poll()) {
      const auto run = running_.find(static_cast<size_t>(std::stoull(ended->id)));
      cores_.give_back(ended->cores);
      all.push_back({run->first, {ended->code, memory_kills() > run->second, ""}, ended->seconds});
      running_.erase(run);
    }
    return all;
  }

  std::vector<size_t> running() const override {
    std::vector<size_t> points;
    for (const auto& [point, kills] : running_) points.push_back(point);
    return points;
  }
  int signal() const override { return pool_.signal(); }
  bool outlives() const override { return false; }
  void stop() override {
    for (const auto& [point, kills] : running_) pool_.send(std::to_string(point), SIGTERM);
  }

 private:
  // True while another process still trains the point. UserError: that process does not end.
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

  void start(const Work& work) {
    const Point& point = plan_.points[work.point];
    const int64_t kills = memory_kills();
    forget_status(folder_, point);
    pool_.start({std::to_string(work.point), point_command(plan_, folder_, work), folder_.log(point),
                 cores_.take(point.demand)});
    running_.emplace(work.point, kills);
  }

  const Plan& plan_;
  const Folder folder_;
  const size_t jobs_;
  jobs::Cores cores_;
  std::map<size_t, int64_t> running_;  // by point: memory_kills() at its start
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

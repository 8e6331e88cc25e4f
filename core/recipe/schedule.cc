// The schedule that a recipe names. Errors in the functions of a plugin name the plugin.
#include "schedule/schedule.h"

#include <cmath>
#include <utility>

#include "plugin/choice.h"

namespace lmx {
namespace {

Choice<ScheduleFactory> choose_schedule(const Node& config, const std::string& path) {
  return {PluginKind::schedule, schedules::entries(), config, path, schedules::kUsual};
}

// The schedule of a plugin.
class PluginSchedule final : public Schedule {
 public:
  PluginSchedule(const PluginInfo& plugin, std::unique_ptr<Schedule> own) : plugin_(plugin), own_(std::move(own)) {}

  double rate(const ScheduleState& s) const override {
    const double rate = in_plugin(plugin_, "rate()", [&] { return own_->rate(s); });
    if (std::isfinite(rate) && rate >= 0) return rate;
    throw RunError(str("[plugin] rate() of the schedule plugin '", plugin_.name, "' (", plugin_.path, ") returns ",
                       rate, " for update ", s.update, "; a learning rate is finite and not negative"));
  }
  void validated(double perplexity) override {
    in_plugin(plugin_, "validated()", [&] { own_->validated(perplexity); });
  }
  std::vector<double> state() const override {
    return in_plugin(plugin_, "state()", [&] { return own_->state(); });
  }
  void load(const std::vector<double>& state) override {
    in_plugin(plugin_, "load()", [&] { own_->load(state); });
  }

 private:
  const PluginInfo& plugin_;
  std::unique_ptr<Schedule> own_;
};

}  // namespace

std::unique_ptr<Schedule> make_schedule(const Node& config, const std::string& path, double base_lr) {
  const Choice<ScheduleFactory> choice = choose_schedule(config, path);
  std::unique_ptr<Schedule> schedule = choice.make(base_lr);
  if (!choice.plugin()) return schedule;
  return std::make_unique<PluginSchedule>(*choice.plugin(), std::move(schedule));
}

Node full_schedule_config(const Node& config, const std::string& path) {
  return choose_schedule(config, path).full();
}

}  // namespace lmx

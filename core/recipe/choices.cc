// The loss and the schedule that a recipe names. Errors in the functions of a plugin name the plugin.
#include "lmx/loss.h"

#include <cmath>
#include <utility>

#include "nn/losses.h"
#include "plugin/choice.h"
#include "recipe/choices.h"
#include "schedule/schedule.h"

namespace lmx {
namespace {

Choice<LossFactory> choose_loss(const Node& config, const std::string& path) {
  return {PluginKind::loss, losses::entries(), config, path, losses::kUsual};
}

// The loss of a plugin.
class PluginLoss final : public Loss {
 public:
  PluginLoss(const PluginInfo& plugin, std::unique_ptr<Loss> own) : plugin_(plugin), own_(std::move(own)) {}

  std::vector<ParameterSpec> parameters() const override {
    return in_plugin(plugin_, "parameters()", [&] { return own_->parameters(); });
  }
  LossValue forward(Context& ctx, const ParameterStore& params, const Var& features, const Tensor& targets,
                    const StepPlan& plan) const override {
    const WrappedTape wrapped(ctx.tape, plugin_);
    return in_plugin(plugin_, "forward()", [&] { return own_->forward(ctx, params, features, targets, plan); });
  }
  Tensor evaluate(Context& ctx, const ParameterStore& params, const Tensor& features,
                  const Tensor& targets) const override {
    return in_plugin(plugin_, "evaluate()", [&] { return own_->evaluate(ctx, params, features, targets); });
  }
  Tensor logits(Context& ctx, const ParameterStore& params, const Tensor& features) const override {
    return in_plugin(plugin_, "logits()", [&] { return own_->logits(ctx, params, features); });
  }
  LossPlan plan() const override {
    return in_plugin(plugin_, "plan()", [&] { return own_->plan(); });
  }
  const std::string& normalize() const override {
    return *in_plugin(plugin_, "normalize()", [&] { return &own_->normalize(); });
  }
  bool draws_candidates() const override {
    return in_plugin(plugin_, "draws_candidates()", [&] { return own_->draws_candidates(); });
  }
  void check_planned(const std::string& rule) const override {
    in_plugin(plugin_, "check_planned()", [&] { own_->check_planned(rule); });
  }

 private:
  // While it exists, the closures that are recorded on the tape are functions of the plugin.
  class WrappedTape {
   public:
    WrappedTape(Tape* tape, const PluginInfo& plugin) : tape_(tape) {
      if (!tape_) return;
      tape_->wrap = [&plugin](Tape::Backward backward) -> Tape::Backward {
        return [&plugin, backward = std::move(backward)](Tape& running) {
          in_plugin(plugin, "backward of forward()", [&] { backward(running); });
        };
      };
    }
    ~WrappedTape() {
      if (tape_) tape_->wrap = nullptr;
    }
    WrappedTape(const WrappedTape&) = delete;
    WrappedTape& operator=(const WrappedTape&) = delete;

   private:
    Tape* tape_;
  };

  const PluginInfo& plugin_;
  std::unique_ptr<Loss> own_;
};

}  // namespace

std::unique_ptr<Loss> make_loss(const Node& config, const std::string& path, const LossEnv& env) {
  const Choice<LossFactory> choice = choose_loss(config, path);
  std::unique_ptr<Loss> loss = choice.make(env);
  if (!choice.plugin()) return loss;
  return std::make_unique<PluginLoss>(*choice.plugin(), std::move(loss));
}

Node full_loss_config(const Node& config, const std::string& path) {
  return choose_loss(config, path).full();
}

std::string train::loss_trait(const Node& config, const std::string& path, const char* trait) {
  return choose_loss(config, path).trait(trait);
}

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

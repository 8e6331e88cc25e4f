// The loss, the schedule and the codecs that a recipe names. Errors in the functions of a plugin name the plugin.
#include "recipe/choices.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/codec/codecs.h"
#include "config/messages.h"
#include "lmx/codec.h"
#include "lmx/error.h"
#include "lmx/loss.h"
#include "lmx/plugin.h"
#include "nn/losses.h"
#include "plugin/choice.h"
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
  Tensor evaluate(Context& ctx, const ParameterStore& params, const Tensor& features, const Tensor& targets,
                  const LogitsVisitor& visit) const override {
    return in_plugin(plugin_, "evaluate()", [&] { return own_->evaluate(ctx, params, features, targets, visit); });
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

std::string loss_trait(const Node& config, const std::string& path, const char* trait) {
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

// `codec:` of a rule of `sync:`: a codec that is built into lmx, or a plugin.

namespace {

bool is_plugin(const std::string& kind) {
  const std::vector<std::string>& built_in = comm::built_in_codecs();
  return std::find(built_in.begin(), built_in.end(), kind) == built_in.end();
}

Node with_name(const std::string& kind, const Node& options) {
  Node config = options;
  config.kind = Node::Kind::map;
  config.set("name", Node::string(kind));
  return config;
}

void check_kind(const std::string& kind, const Node& map, const std::string& path) {
  std::vector<std::string> names = comm::built_in_codecs();
  for (const std::string& name : plugin_names(PluginKind::codec)) names.push_back(name);
  if (std::find(names.begin(), names.end(), kind) != names.end()) return;
  throw UserError(str(place_of_key(map, path, "kind"), "expected one of ", config::join(names), ", got '", kind, "'",
                      did_you_mean(kind, names)));
}

// The codec of a plugin.
class PluginCodec final : public VectorCodec {
 public:
  PluginCodec(const PluginInfo& plugin, std::unique_ptr<VectorCodec> own) : plugin_(plugin), own_(std::move(own)) {}
  int64_t bytes(int64_t n) const override {
    return in_plugin(plugin_, "bytes()", [&] { return own_->bytes(n); });
  }
  void encode(Context& ctx, const Tensor& values, Tensor encoded) const override {
    in_plugin(plugin_, "encode()", [&] { own_->encode(ctx, values, std::move(encoded)); });
  }
  void decode(Context& ctx, const Tensor& encoded, Tensor values) const override {
    in_plugin(plugin_, "decode()", [&] { own_->decode(ctx, encoded, std::move(values)); });
  }
  double feedback() const override {
    return in_plugin(plugin_, "feedback()", [&] { return own_->feedback(); });
  }

 private:
  const PluginInfo& plugin_;
  std::unique_ptr<VectorCodec> own_;
};

}  // namespace

void CodecConfig::fields(Fields& f) {
  const std::string usual = kind;
  f.field("kind", kind, "encoding of gradients for the exchange: none, fp16, bf16, one_bit, or a plugin of kind codec");
  const bool plugin = is_plugin(kind);
  if (!plugin) {
    f.field("scale", scale, "fp16: factor before rounding, divided out after", {1.0 / 65536, 65504});
    f.choice("reduce", reduce, {"fp16", "fp32"}, "fp16: type in which ranks' values are added");
  }
  f.choice("residual", residual, {"rows", "none"},
           "error feedback on row-sparse gradients: keep the residual of every row that was ever sent, or discard it");
  if (kind != usual || !plugin) options = Node::map();
  if (!plugin) return;
  f.rest(options, [this](const Node& map, const Node& rest, const std::string& path) {
    check_kind(kind, map, path);
    Node full = full_component(PluginKind::codec, with_name(kind, rest), path);
    full.erase("name");
    return full;
  });
}

bool CodecConfig::feedback() const {
  return make_codec(*this)->feedback();
}

void CodecConfig::check(const std::string& where) const {
  const CodecConfig usual;
  const auto refuse = [&](const char* key, const std::string& value, const char* reader, const char* remedy) {
    throw UserError(str(where, ".codec.", key, ": ", value, " is read by ", reader, " alone, and kind is ", kind,
                        "; leave it out, or give ", remedy));
  };
  if (kind != "fp16" && scale != usual.scale) refuse("scale", str(scale), "kind fp16", "kind: fp16");
  if (kind != "fp16" && reduce != usual.reduce) refuse("reduce", reduce, "kind fp16", "kind: fp16");
  if (residual != usual.residual && !feedback())
    refuse("residual", residual, "kinds with error feedback", "kind: one_bit");
}

std::unique_ptr<Codec> make_codec(const CodecConfig& config) {
  if (auto codec = comm::built_in_codec(config)) return codec;
  const PluginInfo& plugin = Registry::instance().find(PluginKind::codec, config.kind);
  auto own = create<CodecFactory>(plugin, with_name(config.kind, config.options), "codec");
  if (!own) throw UserError(str("[plugin] ", plugin.path, ": its factory returns no codec"));
  return comm::block_codec(plugin.name.c_str(), std::make_unique<PluginCodec>(plugin, std::move(own)));
}

}  // namespace lmx

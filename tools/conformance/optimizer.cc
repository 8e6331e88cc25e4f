// Checks of optimizers: dense and row-sparse gradients, learning rate, scale of the gradients, state and its size, f32
// against f64.
#include "lmx/optim.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "backend/cuda.h"
#include "conformance/conformance.h"

namespace lmx::app::conformance {
namespace {

constexpr double kRate = 0.01;
constexpr double kSameUpdate = 1e-5;  // relative difference that roundings in f32 explain
constexpr const char* kTable = "table";

std::vector<ParameterSpec> specs() {
  return {{kTable, {7, 4}, {}, true}, {"matrix", {5, 3}, {}, false}, {"bias", {6}, {}, false}};
}

uint64_t seed_of(const ParameterSpec& spec, int64_t number) {
  return static_cast<uint64_t>(spec.shape.numel() * 1000 + number);
}

// Some parameters and their optimizer.
class Run {
 public:
  explicit Run(const Subject& s, DType type = DType::f32, Device device = {}) : type_(type) {
    if (device.kind == Device::Kind::cpu)
      ctx_.allocator = Allocator::counting(Allocator::cpu());
    else
      compute_on(ctx_, device);
    if (type == DType::f64) ctx_.compute = DType::f64;
    for (const ParameterSpec& spec : specs()) {
      params_.add(ctx_, spec, RandomKey(1));
      params_.at(spec.name).value().copy_from(ctx_.upload(normal_values(spec.shape, type, seed_of(spec, 0), 0.5)));
    }
    own_ = create<OptimizerFactory>(s.plugin, s.config, "optimizer");
    if (!own_) fail("the factory returns no optimizer");
  }

  Optimizer& own() { return *own_; }
  Context& ctx() { return ctx_; }
  ParameterStore& params() { return params_; }
  Var& at(const std::string& name) { return params_.at(name); }
  int64_t allocated() const { return ctx_.allocator->stats().current[static_cast<size_t>(MemClass::optimizer)]; }

  // Gives each parameter the gradient of update `number`, times `factor`. `rows`: of the table's row-sparse gradient;
  // null: a dense one.
  void give(int64_t number, double factor = 1, const std::vector<int32_t>* rows = nullptr) {
    for (const ParameterSpec& spec : specs()) {
      Gradient& g = at(spec.name).grad();
      g.clear();
      const Tensor all = normal_values(spec.shape, type_, seed_of(spec, number), factor);
      if (rows && spec.name == kTable)
        g.pieces.push_back({*rows, ctx_.upload(rows_of(all, *rows)), true});
      else
        g.dense = ctx_.upload(all);
    }
  }
  void update(int64_t number, double rate = kRate, double scale = 1) {
    std::vector<ParameterUpdate> updates;
    for (const std::string& name : params_.names()) updates.push_back({&at(name), scale});
    own_->update_all(ctx_, updates, rate, number);
  }
  void step(int64_t number) {
    give(number);
    update(number);
  }

 private:
  static Tensor rows_of(const Tensor& all, const std::vector<int32_t>& rows) {
    Shape shape = all.shape();
    shape[0] = static_cast<int64_t>(rows.size());
    Tensor some = Tensor::empty(Allocator::cpu(), shape, all.dtype());
    for (size_t i = 0; i < rows.size(); ++i)
      some.slice(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1).copy_from(all.slice(rows[i], rows[i] + 1));
    return some;
  }

  DType type_;
  Context ctx_;
  ParameterStore params_;
  std::unique_ptr<Optimizer> own_;
};

// The updates `first` to `last` of two runs.
void step_both(Run& a, Run& b, int64_t first, int64_t last) {
  for (int64_t number = first; number <= last; ++number) a.step(number), b.step(number);
}

// Returns the name of the first parameter whose values differ by more than `most` of their size; "" if there is none.
std::string differing(Run& a, Run& b, double most) {
  for (const std::string& name : a.params().names())
    if (!(difference(a.at(name).value(), b.at(name).value()) <= most)) return name;
  return "";
}

// The same, and then for the states, where an error can be one that no parameter shows yet.
std::string differing_update(Run& a, Run& b) {
  if (const std::string name = differing(a, b, kSameUpdate); !name.empty()) return name;
  const StateDict other = b.own().state();
  for (const auto& [name, t] : a.own().state())
    if (!other.contains(name) || !(difference(t, other.at(name)) <= kSameUpdate)) return "state " + name;
  return "";
}

StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& [name, t] : state) copy.emplace(name, t.clone());
  return copy;
}

class OptimizerCheck {
 public:
  explicit OptimizerCheck(const Subject& s) : s_(s) {}

  void run(Report& report) {
    report.run("rate", [&] { return rate(); });
    report.run("update", [&] { return update(); });
    report.run("direction", [&] { return direction(); });
    report.run("zeros", [&] { return zeros(); });
    report.run("gradient", [&] { return gradient(); });
    report.run("scale", [&] { return scale(); });
    report.run("dense rows", [&] { return dense_rows(); });
    report.run("other rows", [&] { return other_rows(); });
    report.run("parts", [&] { return parts(); });
    report.run("determinism", [&] { return determinism(); });
    report.run("state", [&] { return state(); });
    report.run("wrong state", [&] { return wrong_state(); });
    report.run("memory", [&] { return memory(); });
    report.run("precision", [&] { return precision(); });
  }

 private:
  // The trait, and that the rate of an update is the one that the schedule gives.
  std::string rate() const {
    const std::string stated = trait_of(PluginKind::optimizer, s_.config, "optimizer", trait::kLearningRate);
    const std::optional<double> number = parse_double(stated);
    if (!number || !(*number >= 0) || !std::isfinite(*number))
      fail("the trait learning_rate is '", stated, "', expected a finite number from 0; the config's traits() returns ",
           "{lmx::trait::kLearningRate, lmx::trait_value(RATE)}");
    Run a(s_), b(s_);
    for (Run* run : {&a, &b}) {
      run->give(1);
      run->update(1, run == &a ? kRate : 2 * kRate);
    }
    if (differing(a, b, 0).empty())
      fail("update() makes the same change for another `lr`; schedules and lr_rule would have no effect");
    return str("the config states ", stated, "; updates take that of the schedule");
  }

  std::string update() const {
    Run run(s_), before(s_);
    run.update(1);  // without gradients
    if (!differing(run, before, 0).empty())
      fail("update() changes ", differing(run, before, 0), ", which has no gradient");
    std::map<std::string, uint64_t> versions;
    for (const std::string& name : run.params().names()) versions[name] = run.at(name).version();
    run.step(1);
    expect_finite(run, "an update");
    for (const std::string& name : run.params().names()) {
      const Tensor& value = run.at(name).value();
      if (difference(value, before.at(name).value()) == 0) fail("update() does not change ", name);
      if (run.at(name).version() == versions[name])
        fail("update() does not call changed() of ", name, "; packed copies of the earlier values would be used");
    }
    return "changes parameters that have a gradient, and no others";
  }

  static void expect_finite(Run& run, const char* after) {
    for (const std::string& name : run.params().names()) {
      const Tensor& value = run.at(name).value();
      for (int64_t i = 0; i < value.numel(); ++i)
        if (!std::isfinite(at(value, i))) fail(name, "[", i, "] is ", at(value, i), " after ", after);
    }
  }

  // A first update with a gradient g, and one with -g, which has the same decay: their difference is against g.
  std::string direction() const {
    Run along(s_), against(s_);
    along.give(1);
    against.give(1, -1);
    for (Run* run : {&along, &against}) run->update(1);
    for (const std::string& name : along.params().names()) {
      const Tensor &p = along.at(name).value(), &q = against.at(name).value(), &g = along.at(name).grad().dense;
      double product = 0;
      for (int64_t i = 0; i < g.numel(); ++i) product += (at(p, i) - at(q, i)) * at(g, i);
      if (!(product < 0)) fail("the first update moves ", name, " along its gradient: the loss would rise");
    }
    return "the first update is against the gradient";
  }

  std::string zeros() const {
    Run run(s_);
    run.give(1, 0);
    run.update(1);
    expect_finite(run, "an update with gradients of 0");
    run.step(2);
    expect_finite(run, "an update that follows one with gradients of 0");
    return "gradients of 0 leave finite parameters";
  }

  std::string gradient() const {
    Run run(s_);
    run.step(1);
    for (const ParameterSpec& spec : specs()) {
      const Gradient& g = run.at(spec.name).grad();
      if (!g.dense.defined() || !same_bytes(g.dense, normal_values(spec.shape, DType::f32, seed_of(spec, 1))))
        fail("update() changes the gradient of ", spec.name, ", which ranks share");
    }
    return "is read only";
  }

  std::string scale() const {
    Run scaled(s_), plain(s_);
    for (int64_t number = 1; number <= 3; ++number) {
      scaled.give(number, 4);
      scaled.update(number, kRate, 0.25);
      plain.step(number);
    }
    if (const std::string name = differing_update(scaled, plain); !name.empty())
      fail("grad_scale 0.25 with gradients that are 4 times as large gives another ", name,
           "; clipping and loss scales are applied by grad_scale");
    return "grad_scale multiplies the gradient";
  }

  std::string dense_rows() const {
    Run sparse(s_), dense(s_);
    const std::vector<int32_t> all{0, 1, 2, 3, 4, 5, 6};
    for (int64_t number = 1; number <= 3; ++number) {
      sparse.give(number, 1, &all);
      sparse.update(number);
      dense.step(number);
    }
    if (const std::string name = differing_update(sparse, dense); !name.empty())
      fail("a row-sparse gradient of all rows gives another ", name, " than the dense gradient");
    return "a row-sparse gradient of all rows is the dense one";
  }

  std::string other_rows() const {
    Run run(s_);
    run.step(1);
    const Tensor before = run.at(kTable).value().clone();
    const std::vector<int32_t> some{1, 4};
    run.give(2, 1, &some);
    run.update(2);
    const Tensor& after = run.at(kTable).value();
    for (int32_t row = 0; row < 7; ++row) {
      const bool own = row == 1 || row == 4, same = same_bytes(before.slice(row, row + 1), after.slice(row, row + 1));
      if (own && same) fail("row ", row, " of a row-sparse gradient is not updated");
      if (!own && !same)
        fail("row ", row,
             " is changed, although a row-sparse gradient does not contain it; averages of parameters and ",
             "exchanges of rows rely on this");
    }
    return "a row-sparse gradient changes its rows only";
  }

  // Ranks that divide the update give blocks of a parameter to separate objects (lmx/shard_strategy.h).
  std::string parts() const {
    const auto make = [&] { return create<OptimizerFactory>(s_.plugin, s_.config, "optimizer"); };
    const auto whole = make(), first = make(), second = make();
    const ParameterSpec spec{"long", {3 * kSumBlock + 100}, {"normal", 0.5}};
    if (whole->grain(spec.name) != Grain::element) throw Skipped("it needs whole parameters");
    Context ctx;
    ParameterStore all, divided;
    all.add(ctx, spec, RandomKey(1));
    divided.add(ctx, spec, RandomKey(1));
    const int64_t n = spec.shape[0], middle = 2 * kSumBlock;
    ParameterStore begin = divided.parts({{spec.name, {0, middle}}}), end = divided.parts({{spec.name, {middle, n}}});
    for (int64_t number = 1; number <= 3; ++number) {
      const Tensor gradient = normal_values(spec.shape, DType::f32, seed_of(spec, number));
      const auto step = [&](Optimizer& optimizer, Var& param, const Tensor& own) {
        param.grad().dense = own;
        optimizer.update(ctx, param, kRate, number);
      };
      step(*whole, all.at(spec.name), gradient);
      step(*first, begin.at(spec.name), gradient.slice(0, middle));
      step(*second, end.at(spec.name), gradient.slice(middle, n));
    }
    if (!same_bytes(all.at(spec.name).value(), divided.at(spec.name).value()))
      fail("grain() is element, but the update of two parts of a parameter gives other bits than that of the whole");
    return "the parts of a parameter get the bits of the whole";
  }

  std::string determinism() const {
    Run a(s_), b(s_);
    step_both(a, b, 1, 3);
    if (const std::string name = differing(a, b, 0); !name.empty()) fail("a second run gives another ", name);
    return "a second run gives the same bits";
  }

  // A run that is resumed in the middle continues in the same bits.
  std::string state() const {
    Run whole(s_), first(s_), second(s_);
    step_both(whole, first, 1, 3);
    const StateDict saved = copy_of(first.own().state());
    for (const auto& [name, t] : saved) {
      const bool known = std::any_of(first.params().names().begin(), first.params().names().end(),
                                     [&](const std::string& param) { return name.starts_with(param + "."); });
      if (!known) fail("the state '", name, "' does not begin with the name of a parameter and a dot");
    }
    for (const std::string& name : first.params().names()) second.at(name).value().copy_from(first.at(name).value());
    second.own().load(second.ctx(), second.params(), saved);
    const StateDict loaded = second.own().state();
    for (const auto& [name, t] : saved)
      if (!loaded.contains(name) || !same_bytes(loaded.at(name), t)) fail("load() does not restore '", name, "'");
    step_both(whole, second, 4, 6);
    if (const std::string name = differing(whole, second, 0); !name.empty())
      fail("a run that is resumed after update 3 gives another ", name,
           " after update 6; state() must return all that ", "update() remembers");
    return saved.empty() ? "none to save; a resumed run continues in the same bits"
                         : str(saved.size(), " tensors saved and loaded; a resumed run continues in the same bits");
  }

  std::string wrong_state() const {
    Run run(s_);
    run.step(1);
    const StateDict good = copy_of(run.own().state());
    const auto refused = [&](const StateDict& bad) {
      Run other(s_);
      try {
        other.own().load(other.ctx(), other.params(), bad);
      } catch (const UserError&) {
        return true;
      }
      return false;
    };
    StateDict more = good;
    more["table.no_such_slot"] = normal_values({7, 4}, DType::f32, 1);
    if (!refused(more)) fail("load() accepts a state that it does not have, 'table.no_such_slot'");
    if (good.empty()) return "a state of another optimizer is refused";
    StateDict other_shape = good;
    other_shape.begin()->second = normal_values({2, 9}, good.begin()->second.dtype(), 1);
    if (!refused(other_shape)) fail("load() accepts '", good.begin()->first, "' of another shape");
    return "unknown tensors and other shapes are refused";
  }

  std::string memory() const {
    Run run(s_);
    run.step(1);
    int64_t stored = 0;
    for (const auto& [name, t] : run.own().state()) stored += t.bytes();
    if (stored != run.allocated())
      fail("state() has ", stored, " bytes, and update() has allocated ", run.allocated(),
           " as MemClass::optimizer; the records of memory need equal numbers");
    return str(stored, " bytes of state");
  }

  std::string precision() const {
    Run narrow(s_), wide(s_, DType::f64);
    step_both(narrow, wide, 1, 5);
    if (const std::string name = differing(narrow, wide, kSameUpdate); !name.empty())
      fail("f32 and f64 give another ", name, " (by ", difference(narrow.at(name).value(), wide.at(name).value()),
           " of its size) after 5 updates");
    return "f32 and f64 agree";
  }

  const Subject& s_;
};

// An f32 tensor of a device, in the host's memory.
Tensor on_host(const Context& ctx, const Tensor& t) {
  const Reading<float> read = ctx.read<float>(t);
  return Tensor::from<float>(Allocator::cpu(), t.shape(), read.get());
}

// Some updates, the second one with a row-sparse gradient, on a device and on the CPU.
std::string compare_with_cpu(const Subject& s, Device device) {
  constexpr double kRounding = 1e-4;  // a device contracts products and sums, and has another square root
  Run there(s, DType::f32, device), here(s);
  const std::vector<int32_t> rows{0, 2, 3, 6};
  for (Run* run : {&there, &here})
    for (int64_t number = 1; number <= 3; ++number) {
      run->give(number, 1, number == 2 ? &rows : nullptr);
      run->update(number);
    }
  double most = 0;
  const auto compare = [&](const std::string& name, const Tensor& own, const Tensor& cpu) {
    const double apart = difference(on_host(there.ctx(), own), cpu);
    if (!(apart <= kRounding))
      fail(name, " differs on ", name_of(device), " by ", apart, " of its size after 3 updates");
    most = std::max(most, apart);
  };
  for (const std::string& name : here.params().names()) compare(name, there.at(name).value(), here.at(name).value());
  const StateDict states = there.own().state();
  for (const auto& [name, t] : here.own().state()) compare("the state " + name, states.at(name), t);
  return str("the same parameters and states as on the CPU, up to ", most, " of their size");
}

}  // namespace

void check_optimizer_on(Report& report, const Subject& subject, Device device) {
  report.run("on device", [&] { return compare_with_cpu(subject, device); });
}

void check_optimizer(Report& report, const Subject& subject) {
  report.run("construction", [&] {
    Run(subject).own();
    return std::string("for a table, a matrix and a vector");
  });
  if (report.failures() == 0) OptimizerCheck(subject).run(report);
}

}  // namespace lmx::app::conformance

#include "lmx/parameters.h"

#include <cmath>
#include <numeric>

#include "backend/cuda.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx {

namespace {

const std::vector<std::string>& kinds() {
  static const std::vector<std::string> all{"zeros",  "ones",           "constant",     "uniform",
                                            "normal", "xavier_uniform", "xavier_normal"};
  return all;
}

template <class T, class Draw>
void fill(Tensor& t, Draw&& draw) {
  T* x = t.data<T>();
  parallel_for(t.numel(), 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = static_cast<T>(draw(static_cast<uint64_t>(i)));
  });
}

template <class Draw>
void fill(Tensor& t, Draw&& draw) {
  if (t.dtype() == DType::f64) return fill<double>(t, draw);
  fill<float>(t, draw);
}

template <class Entries>
const auto& entry_of(const Entries& entries, const std::string& name, const std::vector<std::string>& names) {
  const auto it = entries.find(name);
  if (it == entries.end())
    throw UserError(str("[model] there is no parameter '", name, "'", did_you_mean(name, names)));
  return it->second;
}

}  // namespace

void Init::fields(Fields& f) {
  f.choice("kind", kind, kinds(), "distribution of the initial values");
  f.field("scale", scale, "half width (uniform), standard deviation (normal), value (constant) or gain (xavier)");
}

void initialise(Tensor& t, const Init& init, RandomKey key) {
  if (t.device().counts) return;
  if (t.device().kind != Device::Kind::cpu) {
    // Random values are made on the host, so that every device starts with the same bits.
    Tensor host = Tensor::empty(Allocator::cpu(), t.shape(), t.dtype(), MemClass::other);
    initialise(host, init, key);
    return copy_values(t, host);
  }
  // Glorot and Bengio 2010: fan-in and fan-out of a (out, in) matrix; a vector is treated as (n, 1).
  const double fan_out = t.rank() > 0 ? static_cast<double>(t.dim(0)) : 1;
  const double fan_in = t.rank() > 1 ? static_cast<double>(t.numel() / std::max<int64_t>(t.dim(0), 1)) : 1;
  const auto uniform = [&](double half) { fill(t, [&](uint64_t i) { return (2 * key.uniform(i) - 1) * half; }); };
  const auto normal = [&](double deviation) { fill(t, [&](uint64_t i) { return key.normal(i) * deviation; }); };
  if (init.kind == "zeros") {
    t.zero();
  } else if (init.kind == "ones" || init.kind == "constant") {
    const double value = init.kind == "ones" ? 1.0 : init.scale;
    fill(t, [&](uint64_t) { return value; });
  } else if (init.kind == "uniform") {
    uniform(init.scale);
  } else if (init.kind == "normal") {
    normal(init.scale);
  } else if (init.kind == "xavier_uniform") {
    uniform(init.scale * std::sqrt(6.0 / (fan_in + fan_out)));
  } else if (init.kind == "xavier_normal") {
    normal(init.scale * std::sqrt(2.0 / (fan_in + fan_out)));
  } else {
    throw UserError(str("[model] there is no initialiser '", init.kind, "'", did_you_mean(init.kind, kinds()),
                        "; there are: ", config::join(kinds())));
  }
}

namespace {

void check(const ParameterSpec& spec) {
  if (spec.shape.numel() <= 0)
    throw UserError(str("[model] parameter '", spec.name, "' has an empty shape ", spec.shape));
  if (!spec.parts.empty() && std::accumulate(spec.parts.begin(), spec.parts.end(), int64_t{0}) != spec.shape[0])
    throw UserError(
        str("[model] the parts of parameter '", spec.name, "' do not add up to its ", spec.shape[0], " rows"));
}

}  // namespace

Var& ParameterStore::add(Context& ctx, const ParameterSpec& spec, RandomKey key) {
  check(spec);
  const DType type = ctx.compute == DType::f64 ? DType::f64 : DType::f32;
  // The host computes the values, which are then the same on every device.
  const bool here = ctx.device.kind == Device::Kind::cpu || ctx.device.counts;
  const auto& memory = here ? ctx.allocator : ctx.host;
  Tensor value = Tensor::empty(memory, spec.shape, type, MemClass::parameters);
  initialise(value, spec.init, key.fold(spec.name));
  return add(spec, ctx.upload(value));
}

Var& ParameterStore::add(const ParameterSpec& spec, Tensor value) {
  check(spec);
  LMX_CHECK(value.shape() == spec.shape, spec.name, " ", spec.shape, " with a value ", value.shape());
  const auto [at, fresh] = entries_.emplace(spec.name, Entry{spec, Var(std::move(value), !spec.frozen, spec.name)});
  if (!fresh) throw UserError(str("[model] two parameters are named '", spec.name, "'"));
  order_.push_back(spec.name);
  return at->second.var;
}

const Var& ParameterStore::at(const std::string& name) const {
  return entry_of(entries_, name, order_).var;
}

Var& ParameterStore::at(const std::string& name) {
  return const_cast<Var&>(std::as_const(*this).at(name));
}

bool ParameterStore::contains(const std::string& name) const {
  return entries_.contains(name);
}

const ParameterSpec& ParameterStore::spec(const std::string& name) const {
  return entry_of(entries_, name, order_).spec;
}

int64_t ParameterStore::count() const {
  int64_t n = 0;
  for (const auto& [name, entry] : entries_) n += entry.var.value().numel();
  return n;
}

ParameterStore ParameterStore::replica() const {
  ParameterStore other;
  other.order_ = order_;
  for (const auto& [name, entry] : entries_) other.entries_.emplace(name, Entry{entry.spec, entry.var.replica()});
  return other;
}

ParameterStore ParameterStore::copy(Context& ctx) const {
  return copy(ctx, {order_.begin(), order_.end()});
}

ParameterStore ParameterStore::copy(Context& ctx, const std::set<std::string>& names) const {
  ParameterStore other = replica();
  for (const std::string& name : names) {
    const Tensor& from = at(name).value();
    Tensor value = ctx.empty(from.shape(), from.dtype(), MemClass::parameters);
    copy_values(value, from);
    other.at(name) = Var(std::move(value), !spec(name).frozen, name);
  }
  return other;
}

ParameterStore ParameterStore::subset(const std::set<std::string>& names, bool in) const {
  ParameterStore other;
  for (const std::string& name : order_) {
    if (names.contains(name) != in) continue;
    other.order_.push_back(name);
    other.entries_.emplace(name, entries_.at(name));
  }
  return other;
}

ParameterStore ParameterStore::parts(const std::map<std::string, std::pair<int64_t, int64_t>>& elements) const {
  ParameterStore other;
  for (const std::string& name : order_) {
    const auto found = elements.find(name);
    if (found == elements.end()) continue;
    const auto [first, last] = found->second;
    const Tensor& whole = at(name).value();
    ParameterSpec part = spec(name);
    const bool all = last - first == whole.numel();
    if (!all) part.shape = {last - first}, part.parts.clear();
    Tensor value = all ? whole : whole.reshape({-1}).slice(first, last);
    other.order_.push_back(name);
    other.entries_.emplace(name, Entry{std::move(part), Var(std::move(value), !spec(name).frozen, name)});
  }
  return other;
}

ParameterStore ParameterStore::views(const std::vector<std::string>& names,
                                     const std::function<std::pair<int64_t, int64_t>(int64_t rows)>& range) const {
  ParameterStore other;
  for (const std::string& name : names) {
    const Tensor& whole = at(name).value();
    const auto [first, last] = range(whole.dim(0));
    if (first == last) continue;
    ParameterSpec part = spec(name);
    part.shape[0] = last - first;
    other.order_.push_back(name);
    other.entries_.emplace(name, Entry{std::move(part), Var(whole.slice(first, last), !spec(name).frozen, name)});
  }
  return other;
}

void ParameterStore::clear_gradients() {
  for (auto& [name, entry] : entries_) entry.var.grad().clear();
}

}  // namespace lmx

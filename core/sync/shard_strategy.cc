#include "lmx/shard_strategy.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

#include "backend/cuda.h"
#include "base/text.h"
#include "comm/rows.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"
#include "optim/states.h"

namespace lmx {
namespace {

int64_t blocks_in(int64_t elements) {
  return (elements + kSumBlock - 1) / kSumBlock;
}

Tensor flat(const Tensor& t) {
  return t.reshape({-1});
}

// The elements [begin, end) of a parameter that a rank owns.
struct Piece {
  std::string name;
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Parameters that are exchanged together.
struct Unit {
  std::vector<std::string> names;
  std::vector<std::vector<Piece>> pieces;  // by rank
  std::vector<int64_t> sizes;              // elements, by rank
};

// The pieces of some tensors, one after the other. A copy.
template <class TensorOf>
Tensor joined(Context& ctx, std::span<const Piece> pieces, DType type, TensorOf&& tensor_of) {
  std::vector<Tensor> parts;
  for (const Piece& p : pieces) parts.push_back(flat(tensor_of(p.name)).slice(p.begin, p.end));
  return comm::joined(ctx, type, parts);
}

// A tensor of an optimizer's state, and the shape that each rank has of it.
struct SlotOfRanks {
  DType type = DType::f32;
  std::vector<std::vector<int64_t>> shapes = {};
};

std::string line_of(const std::string& name, const Tensor& t) {
  std::string line = str(name, '\t', static_cast<int>(t.dtype()));
  for (const int64_t n : t.shape().dims()) line += str('\t', n);
  return line + "\n";
}

std::map<std::string, SlotOfRanks> slots_in(const std::vector<std::string>& texts) {
  std::map<std::string, SlotOfRanks> all;
  for (size_t r = 0; r < texts.size(); ++r) {
    std::istringstream lines(texts[r]);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name;
      int type = 0;
      words >> name >> type;
      SlotOfRanks& slot = all[name];
      slot.type = static_cast<DType>(type);
      slot.shapes.resize(texts.size());
      for (int64_t n = 0; words >> n;) slot.shapes[r].push_back(n);
    }
  }
  return all;
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  return shape.empty() ? 0 : Shape(shape).numel();
}

}  // namespace

void ShardConfig::fields(Fields& f) {
  f.field("stage", stage,
          "1: only the optimizer's state is divided; 2: also gradients, of which a rank keeps only its part of the "
          "sum; 3: also values, which only lmx plan can compute",
          {1, 3});
  f.field("bucket_mb", bucket_mb,
          "megabytes of parameters whose gradients share one message; 0: one message for each gradient", kNonNegative);
  f.group("codec", codec, "encoding of gradients for the exchange");
}

void ShardConfig::check(const std::string& where) const {
  codec.check(where);
}

Traits ShardConfig::traits() const {
  return {{trait::kShards, "true"}};
}

struct ShardStrategy::Impl {
  Impl(const ShardConfig& c, SyncEnv e) : config(c), env(std::move(e)), reducer(c.codec, env.group) {}

  ShardConfig config;
  SyncEnv env;
  Reducer reducer;
  ParameterStore* params = nullptr;  // all values
  std::unique_ptr<Optimizer> optimizer;
  OwnersOf owners;
  ParameterStore parts;
  std::vector<Unit> units;
  std::map<std::string, size_t> unit_of;  // by parameter
  std::vector<int64_t> blocks;            // by rank: of the gradients that it owns
  Uploaded<int32_t> block_order;          // the place of each block among those of all ranks, by parameter
  std::vector<Tensor> kept;               // the gradients of this step, in stage 1

  const ParameterSpec& spec(const std::string& name) const { return params->spec(name); }
  bool is_whole(const std::string& param) const { return parts.at(param).shape() == spec(param).shape; }
  void check_owners() const;
  void make_units(const std::vector<std::vector<std::string>>& names);
  void make_parts(int rank);
  void order_blocks(Context& ctx);
  void give(const std::string& name, const Tensor& sum);
  void reduce_encoded(Context& ctx, const Unit& unit, std::map<std::string, Tensor>& gradients);
  void set_values(const Unit& unit, const Tensor& all);
  Tensor collect(Context& ctx, const std::string& name, const SlotOfRanks& slot, const Tensor& own) const;
};

void ShardStrategy::Impl::check_owners() const {
  for (const ParameterSpec& p : env.params) {
    const auto found = owners.find(p.name);
    LMX_CHECK(found != owners.end(), "owners() has no '", p.name, "'");
    const Owners& begin = found->second;
    const int64_t n = p.shape.numel();
    const bool divided = begin.size() == static_cast<size_t>(env.ranks) + 1 && begin.front() == 0 &&
                         begin.back() == n && std::is_sorted(begin.begin(), begin.end());
    LMX_CHECK(
        divided && std::all_of(begin.begin(), begin.end(), [n](int64_t at) { return at == n || at % kSumBlock == 0; }),
        "owners() does not divide the ", n, " elements of '", p.name, "' into blocks for ", env.ranks, " ranks");
  }
}

void ShardStrategy::Impl::make_units(const std::vector<std::vector<std::string>>& names) {
  for (const std::vector<std::string>& unit : names) {
    Unit& u = units.emplace_back(Unit{unit, {}, {}});
    for (int r = 0; r < env.ranks; ++r) {
      int64_t size = 0;
      std::vector<Piece>& pieces = u.pieces.emplace_back();
      for (const std::string& name : unit) {
        const Owners& begin = owners.at(name);
        const auto i = static_cast<size_t>(r);
        if (begin[i] < begin[i + 1]) pieces.push_back({name, begin[i], begin[i + 1]});
        size += begin[i + 1] - begin[i];
      }
      u.sizes.push_back(size);
    }
    for (const std::string& name : unit) unit_of[name] = units.size() - 1;
  }
}

void ShardStrategy::Impl::make_parts(int rank) {
  std::map<std::string, std::pair<int64_t, int64_t>> own;
  for (const auto& [name, begin] : owners) {
    const auto r = static_cast<size_t>(rank);
    if (begin[r] < begin[r + 1]) own[name] = {begin[r], begin[r + 1]};
  }
  parts = params->parts(own);
}

// Ranks gather the sums of their blocks in rank order, by parameter in the order of parts(). They are used in the order
// of a whole parameter.
void ShardStrategy::Impl::order_blocks(Context& ctx) {
  const auto ranks = static_cast<size_t>(env.ranks);
  blocks.assign(ranks, 0);
  std::map<std::string, std::vector<int64_t>> first;  // by parameter and rank: among those of the rank
  for (size_t r = 0; r < ranks; ++r) {
    for (const std::string& name : params->names()) {
      const auto found = owners.find(name);
      if (found == owners.end()) continue;
      first[name].push_back(blocks[r]);
      blocks[r] += blocks_in(found->second[r + 1] - found->second[r]);
    }
  }
  std::vector<int32_t> places;
  const std::vector<int64_t> before = RankRows(blocks).begins();
  for (const auto& [name, begin] : owners)
    for (size_t r = 0; r < ranks; ++r)
      for (int64_t b = 0; b < blocks_in(begin[r + 1] - begin[r]); ++b)
        places.push_back(static_cast<int32_t>(before[r] + first.at(name)[r] + b));
  block_order = ctx.upload(std::move(places));
}

// `sum`: of the gradient of this rank's part.
void ShardStrategy::Impl::give(const std::string& name, const Tensor& sum) {
  Var& part = parts.at(name);
  part.grad().dense = sum.reshape(part.shape());
}

void ShardStrategy::Impl::reduce_encoded(Context& ctx, const Unit& unit, std::map<std::string, Tensor>& gradients) {
  std::vector<Reducer::Divided> divided;
  for (const std::string& name : unit.names)
    if (gradients.contains(name)) divided.push_back({name, flat(gradients.at(name)), owners.at(name)});
  gradients.clear();
  const std::vector<Tensor> sums = reducer.reduce_scatter(ctx, divided);
  for (size_t i = 0; i < sums.size(); ++i)
    if (sums[i].numel() > 0) give(divided[i].name, sums[i]);
}

ShardStrategy::ShardStrategy(const ShardConfig& config, SyncEnv env)
    : impl_(std::make_unique<Impl>(config, std::move(env))) {}
ShardStrategy::~ShardStrategy() = default;

const SyncEnv& ShardStrategy::env() const {
  return impl_->env;
}

int64_t ShardStrategy::stage() const {
  return impl_->config.stage;
}

const ParameterStore& ShardStrategy::parts() const {
  return impl_->parts;
}

std::vector<std::vector<std::string>> ShardStrategy::units(const std::vector<ParameterSpec>& params) const {
  return buckets_of(params, impl_->config.bucket_mb, [](const ParameterSpec& p) { return p.shape.numel() * 4; });
}

OwnersOf ShardStrategy::owners(const std::set<std::string>& whole) const {
  std::map<std::string, const ParameterSpec*> specs;
  std::vector<ParameterSpec> complete;
  for (const ParameterSpec& p : env().params) {
    specs[p.name] = &p;
    if (whole.contains(p.name)) complete.push_back(p);
  }
  std::vector<int64_t> load(static_cast<size_t>(env().ranks));
  OwnersOf all = whole_owners(complete, load);
  for (const std::vector<std::string>& unit : units({env().params.rbegin(), env().params.rend()})) {
    std::vector<ParameterSpec> divided;
    for (const std::string& name : unit)
      if (!whole.contains(name)) divided.push_back(*specs.at(name));
    all.merge(block_owners(divided, load));
  }
  return all;
}

Tensor ShardStrategy::reduce_scatter(Context& ctx, const Tensor& gradients, const RankRows& parts) {
  return ctx.comm->reduce_scatter(gradients, parts, env().group);
}

Tensor ShardStrategy::gather(Context& ctx, const Tensor& values, const RankRows& parts) {
  return ctx.comm->all_gather(values, parts, env().group);
}

std::string ShardStrategy::describe(int ranks) const {
  if (ranks == 1 || impl_->owners.empty()) return {};
  std::vector<int64_t> own(static_cast<size_t>(ranks));
  for (const auto& [name, begin] : impl_->owners)
    for (size_t r = 0; r < own.size(); ++r) own[r] += begin[r + 1] - begin[r];
  const auto total = static_cast<double>(std::accumulate(own.begin(), own.end(), int64_t{0}));
  const double share = static_cast<double>(*std::max_element(own.begin(), own.end())) * ranks / total;
  return format("each of %d ranks updates its part of the parameters; the largest part is %.2f of the mean", ranks,
                share);
}

void ShardStrategy::attach(Context& ctx, ParameterStore& params, std::unique_ptr<Optimizer> optimizer) {
  Impl& self = *impl_;
  self.params = &params;
  self.optimizer = std::move(optimizer);
  std::set<std::string> whole;
  for (const ParameterSpec& p : self.env.params)
    if (self.optimizer->grain(p.name) == Grain::parameter) whole.insert(p.name);
  self.owners = owners(whole);
  self.check_owners();
  self.make_units(units({self.env.params.rbegin(), self.env.params.rend()}));
  self.make_parts(ctx.rank);
  self.order_blocks(ctx);
}

void ShardStrategy::reduce(Context& ctx, std::span<Var> unit) {
  Impl& self = *impl_;
  LMX_CHECK(self.params, "reduce() before attach()");
  const Unit& u = self.units[self.unit_of.at(unit[0].name())];
  std::map<std::string, Tensor> gradients;
  for (const Var& p : unit) {
    if (p.grad().sparse())
      throw UserError(str("[sync] the gradient of ", p.name(),
                          " is row-sparse, but the model's parameters() says that it ",
                          "is dense; shards hold dense gradients"));
    if (ctx.comm->size() > 1 || !p.grad().empty()) gradients[p.name()] = dense_of(ctx, p.grad(), p.value());
    if (self.config.stage == 1) self.kept.push_back(p.grad().dense);
    p.grad().clear();
  }
  if (self.config.codec.kind != "none") return self.reduce_encoded(ctx, u, gradients);
  if (ctx.comm->size() == 1) {
    for (const auto& [name, gradient] : gradients) self.give(name, gradient);
    return;
  }
  std::vector<Piece> all;
  for (const std::vector<Piece>& pieces : u.pieces) all.insert(all.end(), pieces.begin(), pieces.end());
  const DType type = unit[0].value().dtype();
  Tensor message = unit.size() == 1 ? flat(gradients.at(unit[0].name()))
                                    : joined(ctx, all, type, [&](const std::string& n) { return gradients.at(n); });
  gradients.clear();
  const Tensor sum = reduce_scatter(ctx, message, u.sizes);
  int64_t at = 0;
  for (const Piece& p : u.pieces[static_cast<size_t>(ctx.rank)]) {
    self.give(p.name, sum.slice(at, at + p.size()));
    at += p.size();
  }
}

std::map<std::string, Tensor> ShardStrategy::squares(Context& ctx) {
  const Impl& self = *impl_;
  std::vector<Tensor> own;
  std::vector<std::string> names;
  for (const std::string& name : self.parts.names()) {
    const Tensor& gradient = self.parts.at(name).grad().dense;
    if (!gradient.defined()) continue;
    own.push_back(gradient);
    names.push_back(name);
  }
  std::map<std::string, Tensor> all;
  Tensor sums = block_squares(ctx, own);
  int64_t at = 0;
  const auto add = [&](const std::string& name) {
    const int64_t end = at + blocks_in(self.spec(name).shape.numel());
    all.emplace(name, sums.slice(std::exchange(at, end), end));
  };
  if (ctx.comm->size() == 1) {
    for (const std::string& name : names) add(name);
    return all;
  }
  sums = comm::gather_rows(ctx, ctx.comm->all_gather(sums, self.blocks, "control"), self.block_order);
  for (const auto& [name, begin] : self.owners) add(name);
  return all;
}

void ShardStrategy::update(Context& ctx, const GradientMeasure& measure, double lr, int64_t number) {
  Impl& self = *impl_;
  std::vector<ParameterUpdate> updates;
  for (const std::string& name : self.parts.names())
    if (Var& part = self.parts.at(name); !part.grad().empty()) updates.push_back({&part, measure.scale(name)});
  if (!updates.empty()) self.optimizer->update_all(ctx, updates, lr, number);
}

void ShardStrategy::publish(Context& ctx, const std::vector<std::string>& unit) {
  Impl& self = *impl_;
  const Unit& u = self.units[self.unit_of.at(unit[0])];
  Tensor all;
  if (ctx.comm->size() > 1) {
    const auto& own = u.pieces[static_cast<size_t>(ctx.rank)];
    const auto value_of = [&](const std::string& name) { return self.params->at(name).value(); };
    all = gather(ctx, joined(ctx, own, value_of(unit[0]).dtype(), value_of), u.sizes);
  }
  ctx.comm->once<int>([&] {
    if (all.defined()) self.set_values(u, all);
    for (const std::string& name : unit) self.params->at(name).changed();
    return 0;
  });
}

void ShardStrategy::after_step(Context&) {
  impl_->parts.clear_gradients();
  impl_->kept.clear();
  impl_->reducer.commit();
}
void ShardStrategy::discard() {
  impl_->reducer.discard();
}
void ShardStrategy::rescale(double factor) {
  impl_->reducer.rescale(factor);
}
StateDict ShardStrategy::state() const {
  return impl_->reducer.state();
}
void ShardStrategy::load(Context& ctx, const std::vector<StateDict>& ranks) {
  impl_->reducer.load(ctx, ranks);
}
std::map<std::string, CodecHealth> ShardStrategy::take_health() {
  return impl_->reducer.take_health();
}
std::vector<std::string> ShardStrategy::warnings(bool loss_scaled) const {
  return impl_->config.codec.warnings(str("sync.", env().group, ".codec"), loss_scaled);
}

// `all`: the values of a unit, in rank order.
void ShardStrategy::Impl::set_values(const Unit& unit, const Tensor& all) {
  int64_t at = 0;
  for (const std::vector<Piece>& pieces : unit.pieces) {
    for (const Piece& p : pieces) {
      flat(params->at(p.name).value()).slice(p.begin, p.end).copy_from(all.slice(at, at + p.size()));
      at += p.size();
    }
  }
}

// The tensor of all ranks on rank 0, which needs only this one beside its own.
Tensor ShardStrategy::Impl::collect(Context& ctx, const std::string& name, const SlotOfRanks& slot,
                                    const Tensor& own) const {
  std::vector<int64_t> to(slot.shapes.size()), from(slot.shapes.size());
  const Tensor mine = own.defined() ? flat(own) : ctx.empty({0}, slot.type, MemClass::communication);
  to[0] = mine.numel();
  if (ctx.rank == 0) std::transform(slot.shapes.begin(), slot.shapes.end(), from.begin(), elements_of);
  const std::vector<Tensor> parts_of = ctx.comm->all_to_all(mine, to, from, "checkpoint");
  if (ctx.rank != 0) return {};
  const ParameterSpec& param =
      spec(optim::param_of_slot(name, [&](const std::string& p) { return owners.contains(p); }));
  const int64_t n = std::accumulate(from.begin(), from.end(), int64_t{0});
  const auto alone = std::find(from.begin(), from.end(), n);  // the only rank that has it
  LMX_CHECK(n == param.shape.numel() || alone != from.end(), "slot '", name, "' does not have the shape of ",
            param.name);
  const Shape shape =
      n == param.shape.numel() ? param.shape : Shape(slot.shapes[static_cast<size_t>(alone - from.begin())]);
  Tensor all = Tensor::empty(ctx.host, {n}, slot.type, MemClass::other);
  int64_t at = 0;
  for (const Tensor& part : parts_of) {
    Tensor place = all.slice(at, at + part.numel());
    if (part.numel() > 0) copy_values(place, part);
    at += part.numel();
  }
  return all.reshape(shape);
}

StateDict ShardStrategy::own_state() const {
  return impl_->optimizer->state();
}

StateDict ShardStrategy::gather_optimizer(Context& ctx) const {
  const StateDict own = own_state();
  std::string text;
  for (const auto& [name, t] : own) text += line_of(name, t);
  StateDict all;
  for (const auto& [name, slot] : slots_in(ctx.comm->gather_texts(text, "checkpoint"))) {
    const auto found = own.find(name);
    Tensor whole = impl_->collect(ctx, name, slot, found == own.end() ? Tensor() : found->second);
    if (ctx.rank == 0) all.emplace(name, std::move(whole));
  }
  return all;
}

void ShardStrategy::load_optimizer(Context& ctx, const StateDict& state) {
  Impl& self = *impl_;
  StateDict own;
  for (const auto& [name, t] : state) {
    const std::string param = optim::param_of_slot(name, [&](const std::string& p) { return self.owners.contains(p); });
    LMX_CHECK(!param.empty(), "a state '", name, "' of no parameter of sync.", self.env.group);
    if (!self.parts.contains(param)) continue;
    if (self.is_whole(param)) {
      own.emplace(name, t);
      continue;
    }
    if (t.shape() != self.spec(param).shape)
      throw UserError(
          str("[optimizer] state '", name, "' is ", lmx::describe(t), ", the parameter ", self.spec(param).shape));
    const Owners& begin = self.owners.at(param);
    const auto r = static_cast<size_t>(ctx.rank);
    own.emplace(name, flat(t).slice(begin[r], begin[r + 1]));
  }
  self.optimizer->load(ctx, self.parts, own);
}

}  // namespace lmx

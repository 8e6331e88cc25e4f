// Requirements for `sampled_rows` beyond the conformance suite: the selected rows, also for losses, and the treatment
// of the other rows.
#include "lmx/error.h"
#include "lmx/loss.h"
#include "lmx/ops.h"
#include "lmx/param_server.h"
#include "lmx/row_sampling.h"
#include "recipe/sync_rules.h"
#include "sync/group.h"
#include "test.h"

namespace lmx::sync_test {
namespace {

using namespace lmx_test;
using RowsOf = std::vector<int32_t>;

constexpr int64_t kV = 80, kD = 5, kT = 3;

// One sequence per rank: input words 10 r + 20, ..., target words 10 r + 21, ...
Batch batch_of(Context& ctx) {
  RowsOf in, out;
  for (int t = 0; t < kT; ++t) {
    in.push_back(10 * ctx.rank % 50 + 20 + t);
    out.push_back(in.back() + 1);
  }
  Batch batch;
  batch.inputs = Tensor::from<int32_t>(ctx.allocator, {1, kT}, in);
  batch.targets = Tensor::from<int32_t>(ctx.allocator, {1, kT}, out);
  batch.slots = {ctx.rank};
  batch.fresh = {1};
  return batch;
}

// A model with one table and a square matrix between it and the loss, its strategy, and a step of one rank.
class SampledWorker {
 public:
  SampledWorker(Communicator& comm, const std::string& rule, const std::string& loss, int64_t words = kV,
                int64_t width = kD)
      : comm_(comm), ctx_(rank_context(comm)) {
    const std::vector<ParameterSpec> model{{"embedding.weight", {words, width}, {"normal", 0.5}, true},
                                           {"hidden.weight", {width, width}, {"normal", 0.5}, false},
                                           {"hidden.bias", {width}, {"normal", 0.5}, false}};
    loss_ = make_loss(parse_yaml(loss, "r.yaml"), "loss", {words, width, nullptr, model});
    const std::vector<ParameterSpec> specs = all_parameters(model, *loss_);
    for (const ParameterSpec& p : specs) params_.add(ctx_, p, RandomKey(4));
    sync_ = make_exchanger(parse_yaml(rule, "r.yaml"), "sync", SyncEnv{"", specs, ctx_.rank, ctx_.ranks, RandomKey(2)});
  }
  // `idle`: this rank has no sequences.
  void step(int64_t step, bool idle = false) {
    params_.clear_gradients();
    const Batch batch = batch_of(ctx_);
    const std::span<const Batch> share(&batch, idle ? 0 : 1);
    plan_ = {};
    plan_.step = step;
    plan_.sampler_key = RandomKey(6).fold(static_cast<uint64_t>(step));
    sync_->begin_step(ctx_, params_, share, plan_);
    if (!idle) differentiate(batch);
    for (const std::string& name : params_.names()) own_[name] = dense(name);
    sync_->finish();
  }
  void differentiate(const Batch& batch) {
    Tape tape;
    ctx_.tape = &tape;
    const Var words = embedding(ctx_, params_.at("embedding.weight"), batch.inputs.reshape({kT}));
    const Var h = linear(ctx_, words, params_.at("hidden.weight"), params_.at("hidden.bias"));
    tape.backward(ctx_, loss_->forward(ctx_, params_, h, batch.targets.reshape({kT}), plan_).loss);
    ctx_.tape = nullptr;
  }
  std::vector<float> dense(const std::string& name) {
    const Var& p = params_.at(name);
    std::vector<float> all(static_cast<size_t>(p.value().numel()));
    const auto width = static_cast<int64_t>(all.size()) / p.value().dim(0);
    if (p.grad().dense.defined())
      all.assign(p.grad().dense.values<float>().begin(), p.grad().dense.values<float>().end());
    for (const RowSparse& piece : p.grad().pieces)
      for (int64_t i = 0; i < piece.rows.numel(); ++i)
        all[static_cast<size_t>(piece.indices[static_cast<size_t>(i / width)] * width + i % width)] +=
            piece.rows.data<float>()[i];
    return all;
  }
  const std::vector<float>& own(const std::string& name) const { return own_.at(name); }
  const Gradient& gradient(const std::string& name) { return params_.at(name).grad(); }
  const StepPlan& plan() const { return plan_; }
  Communicator& comm() { return comm_; }
  Context& ctx() { return ctx_; }

 private:
  Communicator& comm_;
  Context ctx_;
  std::unique_ptr<Loss> loss_;
  ParameterStore params_;
  std::unique_ptr<Exchanger> sync_;
  StepPlan plan_;
  std::map<std::string, std::vector<float>> own_;
};

std::string rule(const std::string& keys) {
  return "all: {params: '.*', strategy: sampled_rows" + std::string(keys.empty() ? "" : ", ") + keys + "}";
}

std::set<int32_t> as_set(const RowsOf& rows) {
  return {rows.begin(), rows.end()};
}

// In the rows that each rank selected, the gradient must be the sum over ranks; it must have no other rows.
void expect_selected_sum(SampledWorker& w, const std::string& name, const RowsOf& selected) {
  const std::vector<float>& own = w.own(name);
  const auto n = static_cast<int64_t>(own.size());
  const int64_t rows = w.gradient(name).pieces.empty() ? 1 : name.ends_with("bias") ? n : n / kD;
  const int64_t width = n / rows;
  std::vector<double> mine(static_cast<size_t>(n));
  for (const int32_t row : selected)
    for (int64_t c = 0; c < width; ++c)
      mine[static_cast<size_t>(row * width + c)] = static_cast<double>(own[static_cast<size_t>(row * width + c)]);
  const std::vector<double> all = w.comm().gather_numbers(mine, "test");
  const std::vector<float> got = w.dense(name);
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int r = 0; r < w.ctx().ranks; ++r) sum += all[static_cast<size_t>(r * n + i)];
    ASSERT_NEAR(static_cast<double>(got[static_cast<size_t>(i)]), sum, 1e-5) << name << ' ' << i;
  }
}

TEST(SampledRows, SelectedRowsAreSummedAndOthersStay) {
  for (const std::string loss :
       {"name: full_softmax", "name: two_stage_softmax", "{name: sampled_softmax, samples: 40}"}) {
    for (const int ranks : {1, 3}) {
      make_group(ranks)->run([&](Communicator& comm) {
        SampledWorker w(comm, rule("p: 10, q: 20, hidden_q: 40"), loss);
        for (int64_t step = 0; step < 3; ++step) {
          w.step(step);
          const RowsOf& words = w.plan().rows.at("softmax.weight");
          EXPECT_EQ(words, w.plan().rows.at("softmax.bias"));
          EXPECT_GE(words.size(), 16u);
          EXPECT_LT(words.size(), 30u);
          for (int32_t t = 0; t < kT; ++t) EXPECT_TRUE(as_set(words).contains(10 * comm.rank() % 50 + 21 + t));
          expect_selected_sum(w, "softmax.weight", words);
          expect_selected_sum(w, "softmax.bias", words);
          ASSERT_EQ(w.gradient("hidden.weight").pieces.size(), 1u) << loss;
          const RowsOf hidden = w.gradient("hidden.weight").pieces[0].indices;
          EXPECT_EQ(hidden.size(), 2u);
          expect_selected_sum(w, "hidden.weight", hidden);
          EXPECT_TRUE(w.gradient("hidden.bias").dense.defined());
        }
      });
    }
  }
}

// The rows that get gradients in the two-stage softmax are those that are exchanged, so no gradient is lost.
TEST(SampledRows, TheLossTakesTheRowsOfThePlan) {
  make_group(2)->run([&](Communicator& comm) {
    SampledWorker w(comm, rule(""), "{name: two_stage_softmax, p: 100, q: 100}");
    w.step(0);
    const std::set<int32_t> words = as_set(w.plan().rows.at("softmax.weight"));
    for (int32_t row = 0; row < kV; ++row) {
      bool any = false;
      for (int64_t c = 0; c < kD; ++c) any |= w.own("softmax.weight")[static_cast<size_t>(row * kD + c)] != 0;
      EXPECT_EQ(any, words.contains(row)) << row;
    }
  });
}

TEST(SampledRows, RanksDrawForThemselvesOrTogether) {
  std::mutex mutex;
  std::map<std::string, std::set<uint64_t>> keys;
  std::map<std::string, std::set<RowsOf>> noise;  // sampled rows that are no targets
  for (const std::string draw : {"rank", "step"}) {
    make_group(4)->run([&](Communicator& comm) {
      SampledWorker w(comm, rule("p: 0, q: 10, draw: " + draw), "name: two_stage_softmax");
      w.step(1);
      RowsOf others = w.plan().rows.at("softmax.weight");
      std::erase_if(others, [](int32_t row) { return row > 20 && row < 60; });
      const std::lock_guard lock(mutex);
      keys[draw].insert(w.plan().sampler_key.value());
      noise[draw].insert(others);
    });
  }
  EXPECT_EQ(keys["rank"].size(), 4u);
  EXPECT_GT(noise["rank"].size(), 1u);
  EXPECT_EQ(keys["step"].size(), 1u);
  EXPECT_EQ(noise["step"].size(), 1u);
}

TEST(SampledRows, WithAllRowsItIsTheSum) {
  make_group(3)->run([&](Communicator& comm) {
    SampledWorker all(comm, rule("p: 100, hidden_q: 100"), "name: full_softmax"),
        sum(comm, "all: {params: '.*', strategy: allreduce}", "name: full_softmax");
    all.step(0);
    sum.step(0);
    for (const char* name : {"embedding.weight", "hidden.weight", "hidden.bias", "softmax.weight", "softmax.bias"})
      EXPECT_EQ(all.dense(name), sum.dense(name)) << name;
    EXPECT_TRUE(all.gradient("hidden.weight").dense.defined());  // all of its rows are exchanged
  });
}

TEST(SampledRows, RanksWithoutSequences) {
  for (const bool everyone : {false, true}) {
    make_group(3)->run([&](Communicator& comm) {
      SampledWorker w(comm, rule("p: 5, q: 5, hidden_q: 60"), "name: full_softmax");
      const bool idle = everyone || comm.rank() == 1;
      w.step(0, idle);
      expect_selected_sum(w, "softmax.weight", idle ? RowsOf{} : w.plan().rows.at("softmax.weight"));
      const std::vector<float> hidden = w.dense("hidden.weight");
      EXPECT_EQ(std::all_of(hidden.begin(), hidden.end(), [](float v) { return v == 0; }), everyone);
    });
  }
}

TEST(SampledRows, AVocabularyOfFewerWordsThanRanks) {
  make_group(8)->run([&](Communicator& comm) {
    Context ctx = rank_context(comm);
    const std::vector<ParameterSpec> params{{"softmax.weight", {3, 2}, {}, true}, {"w", {2, 2}, {}, false}};
    const auto sync = make_exchanger(parse_yaml(rule("p: 90, q: 90, hidden_q: 50"), "r.yaml"), "sync",
                                     SyncEnv{"", params, ctx.rank, 8, RandomKey(2)});
    ParameterStore store;
    for (const ParameterSpec& p : params) store.add(ctx, p, RandomKey(1));
    StepPlan plan;
    sync->begin_step(ctx, store, {}, plan);
    EXPECT_EQ(plan.rows.at("softmax.weight"), (RowsOf{0, 1, 2}));
    for (const ParameterSpec& p : params) {
      store.at(p.name).grad().dense = ctx.zeros(p.shape);
      for (float& v : store.at(p.name).grad().dense.values<float>()) v = 1;
    }
    sync->finish();
    EXPECT_EQ(store.at("softmax.weight").grad().pieces[0].indices, (RowsOf{0, 1, 2}));
    for (const float v : store.at("softmax.weight").grad().pieces[0].rows.values<float>()) EXPECT_EQ(v, 8);
    EXPECT_EQ(store.at("w").grad().pieces[0].indices.size(), 1u);
  });
}

TEST(SampledRows, ATiedTable) {
  for (const std::string loss : {"full_softmax", "two_stage_softmax"}) {
    make_group(2)->run([&](Communicator& comm) {
      SampledWorker w(comm, rule("softmax: 'embedding|softmax', p: 5, q: 5"),
                      "{name: " + loss + ", tie: embedding.weight}");
      w.step(0);
      const RowsOf& words = w.plan().rows.at("embedding.weight");
      EXPECT_EQ(words, w.plan().rows.at("softmax.bias"));
      RowsOf inputs;
      for (int32_t t = 0; t < kT; ++t) inputs.push_back(10 * comm.rank() + 20 + t);
      expect_selected_sum(w, "embedding.weight", union_rows(words, inputs));
    });
  }
}

// Eight ranks that use one table of 4,000 words for input and output: `unique` exchanges rows, and no rank makes a
// dense gradient of the table.
TEST(Tied, UniqueNeverMakesTablesOfGradients) {
  constexpr int64_t kWords = 4000, kWidth = 32, kTable = kWords * kWidth * 4;
  std::mutex mutex;
  int64_t parameters = 0, others = 0;
  make_group(8)->run([&](Communicator& comm) {
    SampledWorker w(comm, "all: {params: '.*', strategy: unique}",
                    "{name: sampled_softmax, samples: 30, tie: embedding.weight}", kWords, kWidth);
    const auto p = static_cast<size_t>(MemClass::parameters);
    w.step(0);
    const MemoryStats m = comm.allocator()->stats();
    const std::lock_guard lock(mutex);
    parameters += m.peak[p];
    others += m.total_peak - m.current[p];
    EXPECT_EQ(w.gradient("embedding.weight").pieces.size(), 1u);
    EXPECT_LE(w.gradient("embedding.weight").pieces[0].indices.size(), 8u * (30 + 2 * kT));
  });
  EXPECT_GE(parameters, 8 * kTable);  // in this test each rank has separate parameters
  EXPECT_LT(others, 4 * kTable);      // of all eight ranks together
}

// Over a server a worker pulls and pushes selected rows, including hidden rows that it selects itself. All other rows
// stay unchanged.
TEST(SampledRows, OverAServerRowsArePulledAndPushed) {
  std::mutex mutex;
  std::map<std::string, std::set<RowsOf>> chosen;
  make_group(2)->run([&](Communicator& comm) {
    Context ctx = rank_context(comm);
    const std::vector<ParameterSpec> specs{
        {"softmax.weight", {40, 2}, {}, true}, {"w", {10, 2}, {}, false}, {"b", {4}, {}, false}};
    const auto store = comm.once<std::shared_ptr<ParameterStore>>([&] {
      auto made = std::make_shared<ParameterStore>();
      for (const ParameterSpec& p : specs) made->add(ctx, p, RandomKey(1));
      return made;
    });
    ParameterStore replica = store->copy(ctx), before = store->copy(ctx);
    const SyncEnv env{"all", specs, ctx.rank, ctx.ranks, RandomKey(3)};
    const Node config = parse_yaml("{name: sampled_rows, transport: param_server, hidden_q: 50}", "r.yaml");
    const PluginInfo& plugin = Registry::instance().find(PluginKind::sync, config, "sync.all");
    const auto strategy = create<SyncFactory>(plugin, config, "sync.all", env);
    ServerStrategy* server = strategy->server();
    ASSERT_NE(server, nullptr);
    EXPECT_THAT(strategy->describe(2), HasSubstr("50 % of the rows of w"));
    server->attach(ctx, {store.get(), &replica,
                         [] { return make_optimizer(parse_yaml("{name: sgd, lr: 1}", "o.yaml"), "optimizer"); }});
    StepPlan plan;
    server->begin_step(ctx, {}, plan);
    const RowsOf words = plan.rows.at("softmax.weight");
    comm.turns()->announce(comm.rank());
    comm.turns()->wait();
    server->pull(ctx);
    for (const ParameterSpec& p : specs) {
      Tensor ones = ctx.empty(p.shape);
      for (float& v : ones.values<float>()) v = 1;
      replica.at(p.name).grad().dense = ones;
    }
    server->select(ctx);
    // Clipping uses the norm of the pushed rows.
    const ClipResult clipped = measure_gradients(ctx, replica, read_clip(parse_yaml("1e9", "r.yaml"), "clip"));
    EXPECT_NEAR(clipped.norm, std::sqrt(2.0 * static_cast<double>(words.size()) + 2 * 5 + 4), 1e-5);
    server->push(ctx, 1, {});
    comm.turns()->announce(10);
    comm.barrier();
    const auto moved = [&](const std::string& name, int64_t row) {
      const auto at = static_cast<size_t>(row * (name == "b" ? 1 : 2));
      return std::lround(before.at(name).value().values<float>()[at] - store->at(name).value().values<float>()[at]);
    };
    const auto changed = [&](const std::string& name) {
      RowsOf rows;
      for (int32_t row = 0; row < store->at(name).shape()[0]; ++row)
        for (int64_t k = 0; k < moved(name, row); ++k) rows.push_back(row);
      return rows;
    };
    EXPECT_EQ(changed("b"), (RowsOf{0, 0, 1, 1, 2, 2, 3, 3}));
    EXPECT_EQ(changed("w").size(), 10u);  // five rows of each worker
    EXPECT_THAT(changed("softmax.weight"), testing::IsSupersetOf(words));
    // The rows that were not selected are as old as the replica: only rank 1 pulled after a push.
    RowsOf fresh;
    for (int32_t row = 0; row < 40; ++row)
      if (replica.at("softmax.weight").value().data<float>()[2 * row] !=
          before.at("softmax.weight").value().data<float>()[2 * row])
        fresh.push_back(row);
    EXPECT_THAT(fresh, testing::IsSubsetOf(words));
    EXPECT_EQ(fresh.empty(), comm.rank() == 0);
    const std::lock_guard lock(mutex);
    chosen["softmax"].insert(words);
    chosen["changed"].insert(changed("softmax.weight"));
  });
  ASSERT_EQ(chosen["softmax"].size(), 2u);  // each worker samples separately
  RowsOf both;
  for (const RowsOf& words : chosen["softmax"]) both.insert(both.end(), words.begin(), words.end());
  std::sort(both.begin(), both.end());
  EXPECT_EQ(*chosen["changed"].begin(), both);
}

TEST(SampledRows, Messages) {
  make_group(1);
  const auto refused = [](const std::string& yaml) {
    return lmx_test::user_error([&] { full_component(PluginKind::sync, parse_yaml(yaml, "r.yaml"), "sync.all"); });
  };
  EXPECT_THAT(refused("{name: sampled_rows, p: 101}"), Names("sync.all.p:", "[0, 100]"));
  EXPECT_THAT(refused("{name: sampled_rows, softmax: '('}"), Names("sync.all.softmax: '('"));
  EXPECT_THAT(refused("{name: sampled_rows, transport: tcp}"), Names("allreduce, param_server"));
  for (const char* clocked : {"replay: x", "schedule: x", "delay: {mean: 2}", "delay: {kind: fixed}",
                              "delay: {spread: 0.1}", "delay: {kind: trace, file: x}"})
    EXPECT_THAT(refused(str("{name: sampled_rows, ", clocked, "}")),
                Names("transport: allreduce", "transport: param_server"));
  EXPECT_THAT(refused("{name: sampled_rows, transport: param_server, bucket_mb: 1}"), Names("sync.all.bucket_mb"));
  EXPECT_THAT(refused("{name: sampled_rows, transport: param_server, codec: {kind: fp16, reduce: fp32}}"),
              Names("sync.all.codec.reduce:", "server"));
  EXPECT_EQ(refused("{name: sampled_rows, codec: {kind: fp16, reduce: fp32}}"), "no error");
  EXPECT_EQ(refused("{name: sampled_rows, transport: param_server, delay: {mean: 2}}"), "no error");
  const Node full = full_component(PluginKind::sync, parse_yaml("name: sampled_rows", "r.yaml"), "sync.all");
  for (const auto& [key, value] :
       {std::pair("p", "10.0"), {"q", "10.0"}, {"hidden_q", "90.0"}, {"draw", "rank"}, {"transport", "allreduce"}})
    EXPECT_EQ(full.at_path(key)->text, value) << key;
}

}  // namespace
}  // namespace lmx::sync_test

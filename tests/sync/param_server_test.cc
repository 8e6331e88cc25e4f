// The server's strategy in isolation: bytes, exchanged rows, residuals of error feedback. tests/train/workers_test.cc
// tests whole runs.
#include "lmx/param_server.h"

#include <cstring>

#include "conformance/sync.h"
#include "lmx/row_sync.h"
#include "sync/group.h"
#include "sync/server/server_link.h"
#include "test.h"

namespace lmx::sync_test {
namespace {

using app::conformance::give;
using app::conformance::kSteps;
using app::conformance::Own;
using app::conformance::own_of;
using app::conformance::parameters;

using namespace lmx_test;
using Rows = std::map<std::string, std::vector<int32_t>>;

// Workers that choose rows of two parameters with dense and with row-sparse gradients, as sampled transmission does.
class SomeRows final : public ServerStrategy {
 public:
  using ServerStrategy::ServerStrategy;
  static Rows rows(int rank, int step) {
    Rows chosen;
    for (const auto& [name, n] : {std::pair{"gate", 24}, std::pair{"softmax", 101}})
      for (int i = 0; i < n; ++i)
        if ((i + rank + step) % 3 == 0) chosen[name].push_back(i);
    return chosen;
  }

 protected:
  Rows choose_rows(Context& ctx, std::span<const Batch>, StepPlan& plan) override {
    return rows(ctx.rank, static_cast<int>(plan.step));
  }
};

// The worker of one rank, and a server whose update is p <- p - lr g.
class Worker {
 public:
  Worker(Communicator& comm, const std::string& yaml, bool some_rows)
      : comm_(comm), ctx_(rank_context(comm)), specs_(parameters()) {
    store_ = comm.once<std::shared_ptr<ParameterStore>>([&] {
      auto made = std::make_shared<ParameterStore>();
      for (const ParameterSpec& spec : specs_) made->add(ctx_, spec, RandomKey(1));
      return made;
    });
    replica_ = store_->copy(ctx_);
    const auto config = read_config<ServerConfig>(parse_yaml(yaml, "case.yaml"), "sync.all");
    const SyncEnv env{"all", specs_, ctx_.rank, ctx_.ranks, RandomKey(3)};
    server_ = some_rows ? std::make_unique<SomeRows>(config, env) : std::make_unique<ServerStrategy>(config, env);
    server_->attach(ctx_, {store_.get(), &replica_,
                           [] { return make_optimizer(parse_yaml("{name: sgd, lr: 1}", "o.yaml"), "optimizer"); }});
  }

  // Ranks take turns: first all pulls in rank order, then all pushes.
  void step(int step, double lr = 1) {
    StepPlan plan;
    plan.step = step;
    server_->begin_step(ctx_, {}, plan);
    comm_.turns()->announce(2 * step);
    comm_.turns()->wait();
    server_->pull(ctx_);
    for (const ParameterSpec& p : specs_) give(ctx_, replica_.at(p.name), own_of(ctx_.rank, step, p));
    for (const ParameterSpec& p : specs_) replica_.at(p.name).grad().coalesce(ctx_);
    comm_.turns()->announce(2 * step + 1);
    comm_.turns()->wait();
    server_->select(ctx_);
    server_->push(ctx_, lr, {});
    replica_.clear_gradients();
    server_->count_served(ctx_);
    comm_.barrier();
  }

  ServerStrategy& server() { return *server_; }
  ParameterStore& store() { return *store_; }
  ParameterStore& replica() { return replica_; }
  Context& ctx() { return ctx_; }
  const std::vector<ParameterSpec>& specs() const { return specs_; }

 private:
  Communicator& comm_;
  Context ctx_;
  std::vector<ParameterSpec> specs_;
  std::shared_ptr<ParameterStore> store_;
  ParameterStore replica_;
  std::unique_ptr<ServerStrategy> server_;
};

// Runs `body` on every rank; its results are failures.
std::vector<std::string> on_ranks(int ranks, const std::function<std::vector<std::string>(Communicator&)>& body) {
  std::mutex mutex;
  std::vector<std::string> failures;
  make_group(ranks)->run([&](Communicator& comm) {
    const std::vector<std::string> own = body(comm);
    const std::lock_guard lock(mutex);
    failures.insert(failures.end(), own.begin(), own.end());
  });
  return failures;
}

std::vector<int64_t> by_shard(const std::vector<int32_t>& rows, int64_t n, int ranks) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks));
  for (const int32_t row : rows)
    for (int r = 0; r < ranks; ++r)
      if (row >= chunk_begin(n, r, ranks) && row < chunk_begin(n, r + 1, ranks)) ++counts[static_cast<size_t>(r)];
  return counts;
}

// The rows of a parameter that a worker pulls, and those of its gradient that it pushes. Null: all rows.
struct WorkerRows {
  std::unique_ptr<std::vector<int32_t>> pulled, pushed;
};
WorkerRows rows_of_worker(int rank, int step, const ParameterSpec& p, bool some_rows) {
  WorkerRows rows;
  const Own own = own_of(rank, step, p);
  std::set<int32_t> with_gradient(own.indices.begin(), own.indices.end());
  if (some_rows && SomeRows::rows(0, step).contains(p.name)) {
    rows.pulled = std::make_unique<std::vector<int32_t>>(SomeRows::rows(rank, step).at(p.name));
    std::set<int32_t> both;
    for (const int32_t row : *rows.pulled)
      if (!p.sparse || with_gradient.contains(row)) both.insert(row);
    with_gradient = both;
  }
  if (p.sparse || rows.pulled)
    rows.pushed = std::make_unique<std::vector<int32_t>>(with_gradient.begin(), with_gradient.end());
  return rows;
}

// The bytes that pass between a worker and a shard in a step, in both directions.
struct StepBytes {
  int64_t to_shard = 0, to_worker = 0;
};
StepBytes expected_bytes(const Codec& codec, int worker, int shard, int ranks, int step, bool some_rows) {
  StepBytes bytes;
  for (const ParameterSpec& p : parameters()) {
    const WorkerRows rows = rows_of_worker(worker, step, p, some_rows);
    const int64_t width = row_width(p.shape),
                  all = chunk_begin(p.shape[0], shard + 1, ranks) - chunk_begin(p.shape[0], shard, ranks);
    const auto of_shard = [&](const std::vector<int32_t>& some) {
      return by_shard(some, p.shape[0], ranks)[static_cast<size_t>(shard)];
    };
    const auto encoded = [&](int64_t n) { return codec.columns() ? codec.bytes(n, width) : codec.bytes(n * width, 1); };
    bytes.to_worker += 4 * width * (rows.pulled ? of_shard(*rows.pulled) : all);
    if (rows.pulled) bytes.to_shard += 8 + 4 * of_shard(*rows.pulled);
    if (!rows.pushed)
      bytes.to_shard += encoded(all);
    else if (all > 0)
      bytes.to_shard += 8 + 4 * of_shard(*rows.pushed) + encoded(of_shard(*rows.pushed));
  }
  return bytes;
}

struct ServerCase {
  std::string codec;
  bool some_rows;
  int ranks;
};
class ParamServer : public testing::TestWithParam<ServerCase> {};
class ParamServerFeedback : public ParamServer {};  // strategies that forget no residuals

// Steps 0, 3 and 4 of the data, in which every rank has a gradient for every parameter.
constexpr int kWhole[] = {0, 3, 4};

TEST_P(ParamServer, SendsWhatItsFormulaSays) {
  const ServerCase c = GetParam();
  const auto failures = on_ranks(c.ranks, [&](Communicator& comm) {
    std::vector<std::string> wrong;
    Worker worker(comm, "codec: " + c.codec, c.some_rows);
    const std::unique_ptr<Codec> codec = make_codec(worker.server().config().codec);
    int64_t sent = 0, received = 0, all_sent = 0;
    for (const int step : kWhole) {
      comm.clear_ledger();
      worker.step(step);
      worker.server().count_served(worker.ctx());
      int64_t own = 0;
      for (const LedgerEntry& e : comm.ledger()) {
        own += e.sent;
        received += e.received;
        if (e.group != "all" || (e.collective != "pull" && e.collective != "push"))
          wrong.push_back("an entry of " + e.group + " " + e.collective);
      }
      sent += own;
      int64_t expected = 0;
      for (int r = 0; r < comm.size(); ++r)
        if (r != comm.rank())
          expected += expected_bytes(*codec, comm.rank(), r, comm.size(), step, c.some_rows).to_shard +
                      expected_bytes(*codec, r, comm.rank(), comm.size(), step, c.some_rows).to_worker;
      if (own != expected) wrong.push_back(str("rank ", comm.rank(), " sent ", own, " bytes, expected ", expected));
      if (comm.size() > 1 && own == 0) wrong.push_back("nothing was sent");
    }
    const double mine[] = {static_cast<double>(sent), static_cast<double>(received)};
    const std::vector<double> all = comm.gather_numbers(mine, "control");
    for (size_t i = 0; i < all.size(); i += 2) all_sent += static_cast<int64_t>(all[i] - all[i + 1]);
    if (all_sent != 0) wrong.push_back(str(all_sent, " bytes were sent and not received"));
    return wrong;
  });
  EXPECT_THAT(failures, IsEmpty());
}

// The change of the server's values must equal the gradients of all ranks and steps minus the residuals.
TEST_P(ParamServerFeedback, NothingIsLost) {
  const ServerCase c = GetParam();
  const auto failures = on_ranks(c.ranks, [&](Communicator& comm) {
    std::vector<std::string> wrong;
    Worker worker(comm, "codec: " + c.codec, c.some_rows);
    std::map<std::string, std::vector<double>> owed, size;
    for (const ParameterSpec& p : worker.specs()) {
      const auto start = worker.store().at(p.name).value().values<float>();
      owed[p.name].assign(start.begin(), start.end());
      size[p.name].assign(start.size(), 1);
    }
    comm.barrier();
    for (int step = 0; step < kSteps; ++step) {
      worker.step(step);
      for (const ParameterSpec& p : worker.specs()) {
        const auto width = static_cast<size_t>(row_width(p.shape));
        for (int r = 0; r < comm.size(); ++r) {
          const Own own = own_of(r, step, p);
          const Rows chosen = SomeRows::rows(r, step);
          const bool part = c.some_rows && chosen.contains(p.name);
          for (size_t i = 0; i < own.values.size(); ++i) {
            const size_t row = p.sparse ? static_cast<size_t>(own.indices[i / width]) : i / width;
            if (part && !std::binary_search(chosen.at(p.name).begin(), chosen.at(p.name).end(), static_cast<int>(row)))
              continue;
            owed[p.name][row * width + i % width] -= static_cast<double>(own.values[i]);
            size[p.name][row * width + i % width] += std::abs(static_cast<double>(own.values[i]));
          }
        }
      }
    }
    // Each rank sends its residuals, as a dense block.
    const StateDict state = worker.server().state();
    for (const ParameterSpec& p : worker.specs()) {
      const auto width = static_cast<size_t>(row_width(p.shape));
      std::vector<double> kept(owed[p.name].size());
      const std::string key = "residual/" + p.name + ".push";
      if (const auto found = state.find(key); found != state.end()) {
        const auto values = found->second.values<float>();
        const auto index = state.find(key + ".rows");
        for (size_t i = 0; i < values.size(); ++i) {
          const size_t row =
              index == state.end() ? i / width : static_cast<size_t>(index->second.data<int32_t>()[i / width]);
          kept[row * width + i % width] = static_cast<double>(values[i]);
        }
      }
      const std::vector<double> all = comm.gather_numbers(kept, "control");
      const auto values = worker.store().at(p.name).value().values<float>();
      const bool rounds = c.codec.find("fp16") != std::string::npos || c.codec.find("bf16") != std::string::npos;
      for (size_t i = 0; i < values.size(); ++i) {
        double expected = owed[p.name][i];
        for (size_t r = 0; r < all.size() / kept.size(); ++r) expected += all[r * kept.size() + i];
        const double tolerance = (rounds && comm.size() > 1 ? 0x1p-8 : 1e-5) * size[p.name][i];
        if (std::abs(expected - static_cast<double>(values[i])) <= tolerance) continue;
        wrong.push_back(str("rank ", comm.rank(), ' ', p.name, '[', i, "] is ", values[i], ", expected ", expected));
        break;
      }
    }
    return wrong;
  });
  EXPECT_THAT(failures, IsEmpty());
}

std::vector<ServerCase> cases(std::vector<std::string> codecs) {
  std::vector<ServerCase> all;
  for (const std::string& codec : codecs)
    for (const bool some_rows : {false, true})
      for (const int ranks : {1, 2, 3, 4, 8}) all.push_back({codec, some_rows, ranks});
  return all;
}
std::string name_of(const testing::TestParamInfo<ServerCase>& one) {
  std::string name;
  for (const char ch : one.param.codec)
    if (isalnum(static_cast<unsigned char>(ch))) name += ch;
  return str(name, one.param.some_rows ? "_rows_" : "_", one.param.ranks);
}
INSTANTIATE_TEST_SUITE_P(All, ParamServer,
                         testing::ValuesIn(cases({"{kind: none}", "{kind: fp16}", "{kind: bf16}", "{kind: one_bit}",
                                                  "{kind: one_bit, residual: none}"})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(All, ParamServerFeedback,
                         testing::ValuesIn(cases({"{kind: none}", "{kind: fp16}", "{kind: bf16}", "{kind: one_bit}"})),
                         name_of);

// A worker's replica gets the pushes of others only in the rows that the worker pulls.
TEST(ParamServerRows, OthersStayOld) {
  const auto failures = on_ranks(3, [](Communicator& comm) {
    std::vector<std::string> wrong;
    Worker worker(comm, "{}", true);
    worker.step(0);
    const Tensor before = worker.replica().at("gate").value().clone();
    StepPlan plan;
    plan.step = 3;
    worker.server().begin_step(worker.ctx(), {}, plan);
    comm.turns()->announce(10);
    comm.turns()->wait();
    worker.server().pull(worker.ctx());
    const auto chosen = SomeRows::rows(comm.rank(), 3).at("gate");
    const float *old = before.data<float>(), *now = worker.replica().at("gate").value().data<float>(),
                *whole = worker.store().at("gate").value().data<float>();
    for (int row = 0; row < 24; ++row) {
      const bool is_new = std::binary_search(chosen.begin(), chosen.end(), row);
      if (std::memcmp(now + row * 33, (is_new ? whole : old) + row * 33, 33 * sizeof(float)) != 0)
        wrong.push_back(str("row ", row, " is ", is_new ? "old" : "new"));
    }
    if (std::memcmp(old, whole, 24 * 33 * sizeof(float)) == 0) wrong.push_back("nothing had changed");
    return wrong;
  });
  EXPECT_THAT(failures, IsEmpty());
}

// Two processes cannot update the same memory.
class Elsewhere final : public Communicator {
 public:
  Elsewhere() : Communicator(Allocator::cpu()) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }

 protected:
  Tensor do_all_gather(const Tensor&, const RankRows&) override { return {}; }
  std::vector<Tensor> do_all_to_all(const Tensor&, const RankRows&, const RankRows&) override { return {}; }
  Tensor do_broadcast(const Tensor&, int) override { return {}; }
  void do_barrier() override {}
};

TEST(ParamServerMessages, RanksOfSeveralProcessesThatCannotServeEachOther) {
  Elsewhere comm;
  EXPECT_THAT(user_error([&] { const server::Link link(comm); }),
              AllOf(Names("[sync]", "comm.name: virtual", "comm.name: mpi"), Not(HasSubstr("--ranks"))));
}

}  // namespace
}  // namespace lmx::sync_test

// The rules of `sync:`, the group of one, and what `allreduce` does between two ranks.
#include "lmx/sync.h"

#include <gmock/gmock.h>

#include "lmx/plugin.h"
#include "train/fixture.h"

namespace lmx::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void load_plugins() {
  static const bool once = [] {
    Registry::instance().add_default_directories();
    return true;
  }();
  static_cast<void>(once);
}

// Rank 0 of two ranks whose other one always holds the same tensors: sums double, gathers repeat.
class Twins : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(Tensor& t, const std::string& group) override {
    for (float& v : t.values<float>()) v *= 2;
    enter(group, "all_reduce", t.bytes(), t.bytes());
  }
  Tensor all_gather(const Tensor& t, const std::string& group) override {
    Shape shape = t.shape();
    shape[0] *= 2;
    Tensor both = Tensor::empty(t.allocator(), shape, t.dtype());
    both.slice(0, t.dim(0)).copy_from(t);
    both.slice(t.dim(0), 2 * t.dim(0)).copy_from(t);
    enter(group, "all_gather", t.bytes(), t.bytes());
    return both;
  }
  void broadcast(Tensor&, int, const std::string&) override {}
  void barrier() override {}
};

class Sync : public testing::Test {
 protected:
  Sync() {
    load_plugins();
    ctx_.comm = &twins_;
  }
  Node rules(const std::string& yaml) { return parse_yaml(yaml, "r.yaml"); }
  std::string refused(const std::string& yaml) {
    return message<UserError>([&] {
      SyncRules(rules(yaml), "sync", {"embedding.weight", "lstm.0.bias", "softmax.weight"});
    });
  }
  Twins twins_;
  Context ctx_;
};

TEST(SelfCommunicator, IsTheIdentity) {
  const auto comm = make_self_communicator();
  Tensor t = floats({2}, {1, 2});
  comm->set_step(3);
  comm->all_reduce(t, "g");
  EXPECT_EQ(comm->all_gather(t, "g").raw(), t.raw());
  EXPECT_THAT(t.values<float>(), ElementsAre(1, 2));
  ASSERT_EQ(comm->ledger().size(), 2u);
  EXPECT_EQ(comm->ledger()[0].step, 3);
  EXPECT_EQ(comm->ledger()[0].collective, "all_reduce");
  EXPECT_EQ(comm->ledger()[0].sent + comm->ledger()[0].received, 0);
}

TEST_F(Sync, FirstMatchWins) {
  SyncRules rules_of(
      rules("tables: {params: 'embedding|softmax', strategy: allreduce}\nrest: {params: '.*', strategy: allreduce}"),
      "sync", {"embedding.weight", "lstm.0.bias"});
  StepPlan plan;
  rules_of.begin_step(ctx_, plan);
  for (const char* name : {"embedding.weight", "lstm.0.bias"}) {
    const Var param(floats({1}, {0}), true, name);
    param.grad().dense = floats({1}, {3});
    rules_of.grad_ready(ctx_, param);
    EXPECT_FALSE(rules_of.owns_update(param));
  }
  rules_of.before_step(ctx_);
  ASSERT_EQ(twins_.ledger().size(), 2u);
  EXPECT_EQ(twins_.ledger()[0].group, "tables");
  EXPECT_EQ(twins_.ledger()[1].group, "rest");
  EXPECT_TRUE(rules_of.state().empty());
}

TEST_F(Sync, Messages) {
  EXPECT_THAT(refused("a: {params: lstm, strategy: allreduce}"),
              AllOf(HasSubstr("no rule of sync covers"), HasSubstr("softmax.weight")));
  EXPECT_THAT(refused("a: {params: '.*', strategy: allreduce}\nb: {params: x, strategy: allreduce}"),
              HasSubstr("sync.b.params"));
  EXPECT_THAT(refused("a: {params: '.*', strategy: alreduce}"), HasSubstr("did you mean 'allreduce'?"));
  EXPECT_THAT(refused("a: {params: '.*', name: allreduce}"), HasSubstr("did you mean 'strategy'?"));
  EXPECT_THAT(refused("a: 3"), HasSubstr("expected a rule"));
  EXPECT_THAT(refused("3"), HasSubstr("expected rules by name"));
  EXPECT_THAT(refused("a: {params: '[', strategy: allreduce}"), HasSubstr("no regular expression"));
}

TEST_F(Sync, FullConfigKeepsParamsFirst) {
  const Node full = SyncRules::full_config(rules("rest: {strategy: allreduce, params: x}"), "sync");
  EXPECT_THAT(full.find("rest")->keys(), ElementsAre("params", "strategy", "bucket_mb"));
}

class Buckets : public Sync, public testing::WithParamInterface<const char*> {};

// Two ranks with equal gradients: every gradient doubles, whatever the size of a bucket.
TEST_P(Buckets, DenseGradientsAreSummed) {
  SyncRules rules_of(rules(str("all: {params: '.*', strategy: allreduce, bucket_mb: ", GetParam(), "}")), "sync",
                     {"a", "b", "c", "d"});
  StepPlan plan;
  rules_of.begin_step(ctx_, plan);
  std::vector<Var> params;
  for (const char* name : {"a", "b", "c", "d"}) {
    params.emplace_back(floats({3}, {0, 0, 0}), true, name);
    if (std::string(name) != "d") params.back().grad().dense = floats({3}, {1, 2, static_cast<float>(name[0])});
    rules_of.grad_ready(ctx_, params.back());
  }
  rules_of.before_step(ctx_);
  for (const Var& p : params) {
    if (p.name() == "d")
      EXPECT_TRUE(p.grad().empty());
    else
      EXPECT_THAT(p.grad().dense.values<float>(), ElementsAre(2, 4, 2.0f * static_cast<float>(p.name()[0])));
  }
  int64_t sent = 0;
  for (const LedgerEntry& e : twins_.ledger()) sent += e.sent;
  EXPECT_EQ(sent, 3 * 3 * 4);
}
INSTANTIATE_TEST_SUITE_P(Sizes, Buckets, testing::Values("0", "0.000024", "100"));

TEST_F(Sync, SparseGradientsAreGathered) {
  SyncRules rules_of(rules("all: {params: '.*', strategy: allreduce}"), "sync", {"t"});
  StepPlan plan;
  rules_of.begin_step(ctx_, plan);
  const Var table(floats({5, 2}, std::vector<float>(10)), true, "t");
  table.grad().pieces.push_back({{4, 1}, floats({2, 2}, {1, 2, 3, 4}), false});
  table.grad().pieces.push_back({{4}, floats({1, 2}, {10, 20}), false});
  rules_of.grad_ready(ctx_, table);
  rules_of.before_step(ctx_);
  ASSERT_EQ(table.grad().pieces.size(), 1u);
  EXPECT_THAT(table.grad().pieces[0].indices, ElementsAre(1, 4));
  EXPECT_THAT(table.grad().pieces[0].rows.values<float>(), ElementsAre(6, 8, 22, 44));
}

}  // namespace
}  // namespace lmx::train

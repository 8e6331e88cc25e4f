// Ranks that are started with different values must detect it, and all report the same message.
#include "app/run/agreement.h"

#include <barrier>
#include <thread>

#include "lmx/error.h"
#include "test.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

// Ranks as threads that can gather, the only operation that an agreement needs.
struct Table {
  explicit Table(int ranks) : parts(static_cast<size_t>(ranks)), meeting(ranks) {}
  std::vector<Tensor> parts;
  std::barrier<> meeting;
};

class Gatherer : public Communicator {
 public:
  Gatherer(Table& table, int rank) : Communicator(Allocator::cpu()), table_(table), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(table_.parts.size()); }

 protected:
  Tensor do_all_gather(const Tensor& own, const RankRows& rows) override {
    table_.parts[static_cast<size_t>(rank_)] = own;
    table_.meeting.arrive_and_wait();
    const std::vector<int64_t> begins = rows.begins();
    Tensor all = Tensor::empty(allocator(), {begins.back()}, own.dtype());
    for (size_t r = 0; r < table_.parts.size(); ++r) all.slice(begins[r], begins[r + 1]).copy_from(table_.parts[r]);
    table_.meeting.arrive_and_wait();
    return all;
  }
  std::vector<Tensor> do_all_to_all(const Tensor&, const RankRows&, const RankRows&) override { return unused(); }
  Tensor do_broadcast(const Tensor&, int) override { return unused()[0]; }
  void do_barrier() override { unused(); }

 private:
  static std::vector<Tensor> unused() { throw InternalError("an agreement gathers, nothing else"); }
  Table& table_;
  int rank_;
};

using Texts = std::vector<std::vector<Agreed>>;  // of each rank

// The error of each rank, or "no error".
std::vector<std::string> outcomes(const Texts& texts) {
  Table table(static_cast<int>(texts.size()));
  std::vector<std::string> said(texts.size());
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < texts.size(); ++r) {
    ranks.emplace_back([&, r] {
      Gatherer comm(table, static_cast<int>(r));
      said[r] = user_error([&] { check_equal_everywhere(comm, texts[r]); });
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return said;
}

// The message, which must be the same on all ranks.
std::string message(const Texts& texts) {
  const std::vector<std::string> said = outcomes(texts);
  for (const std::string& text : said) EXPECT_EQ(text, said[0]);
  return said[0];
}

const std::string kRecipe = "model: {name: lstm, cells: 8}\noptimizer:\n  lr: 0.2\n  name: sgd\nseed: 1\n";

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kRecipe;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Agreement, EqualTextsPass) {
  EXPECT_EQ(message({{{"recipe", kRecipe}, {"build", "a"}}}), "no error");
  const std::vector<Agreed> same{{"recipe", kRecipe}, {"build", ""}, {"plugin sync/unique", "12:34:\n::"}};
  EXPECT_EQ(message({same, same, same}), "no error");
}

TEST(Agreement, NamesTheFirstRankAndTheKey) {
  const std::vector<Agreed> usual{{"recipe", kRecipe}}, other{{"recipe", changed("lr: 0.2", "lr: 0.1")}};
  EXPECT_THAT(message({usual, usual, other, other}), Names("rank 2", "optimizer.lr", "0.1 there", "0.2 on rank 0"));
  EXPECT_THAT(message({other, usual}), Names("rank 1", "optimizer.lr", "0.2 there", "0.1 on rank 0"));
}

TEST(Agreement, KeysThatOneRankLacks) {
  const std::vector<Agreed> usual{{"recipe", kRecipe}};
  EXPECT_THAT(message({usual, {{"recipe", kRecipe + "threads: 2\n"}}}),
              Names("threads", "2 there", "not given on rank 0"));
  EXPECT_THAT(message({usual, {{"recipe", changed(", cells: 8", "")}}}),
              Names("model.cells", "not given there", "8 on rank 0"));
  EXPECT_THAT(message({usual, {{"recipe", changed("{name: lstm, cells: 8}", "[1, 2]")}}}),
              Names("model is [1", "there", "lstm"));
}

TEST(Agreement, TextsThatAreNoMapsAreShown) {
  EXPECT_THAT(message({{{"build", "gcc-12"}}, {{"build", "gcc-13"}}}),
              Names("rank 1", "build", "gcc-13 there", "gcc-12 on rank 0"));
  const std::string text = message({{{"x", std::string(5000, 'a')}}, {{"x", std::string(5000, 'b')}}});
  EXPECT_LT(text.size(), 700u);
}

TEST(Agreement, ThingsThatOneRankLacks) {
  const Agreed build{"build", "a"}, plugin{"plugin sync/unique", "77"};
  EXPECT_THAT(message({{build, plugin}, {build}}), Names("rank 1 has no", "sync/unique", "rank 0"));
  EXPECT_THAT(message({{build}, {build, plugin}}), Names("rank 1 has a", "sync/unique", "none"));
}

// The order of a list of plugins does not matter.
TEST(Agreement, OrderDoesNotMatter) {
  const Agreed build{"build", "a"}, plugin{"plugin sync/unique", "77"};
  EXPECT_EQ(message({{build, plugin}, {plugin, build}}), "no error");
}

}  // namespace
}  // namespace lmx::app

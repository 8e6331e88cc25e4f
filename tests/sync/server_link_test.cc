// Turns, meetings and requests between workers without shared memory: here ranks are threads that exchange messages
// through a `Hall` in memory.
#include "sync/server/server_link.h"

#include <array>
#include <barrier>
#include <chrono>
#include <cstring>

#include "lmx/error.h"
#include "test.h"

namespace lmx::sync_test {
namespace {

using namespace lmx_test;
using server::Event;
using server::Link;
using server::Request;
using server::Stand;

// Messages by sender, receiver and tag.
struct Hall {
  std::mutex mutex;
  std::map<std::array<int, 3>, std::deque<Tensor>> messages;
  std::barrier<> together;
  explicit Hall(int size) : together(size) {}
};

class End final : public Connection {
 public:
  End(std::shared_ptr<Hall> hall, int rank) : hall_(std::move(hall)), rank_(rank) {}
  void send(const Tensor& t, int to, int tag) override { post(t, to, tag); }
  void post(const Tensor& t, int to, int tag) override {
    const std::lock_guard lock(hall_->mutex);
    hall_->messages[{rank_, to, tag}].push_back(t.clone());
  }
  void receive(Tensor& t, int from, int tag) override {
    for (;; std::this_thread::yield()) {
      const std::lock_guard lock(hall_->mutex);
      std::deque<Tensor>& queue = hall_->messages[{from, rank_, tag}];
      if (queue.empty()) continue;
      LMX_CHECK(t.bytes() == queue.front().bytes(), "a message of ", queue.front().bytes(), " bytes, not ", t.bytes());
      t.copy_from(queue.front());
      queue.pop_front();
      return;
    }
  }
  int probe(int tag) override {
    const std::lock_guard lock(hall_->mutex);
    for (const auto& [key, queue] : hall_->messages)
      if (key[1] == rank_ && key[2] == tag && !queue.empty()) return key[0];
    return -1;
  }

 private:
  std::shared_ptr<Hall> hall_;
  int rank_;
};

class Connected final : public Communicator {
 public:
  Connected(std::shared_ptr<Hall> hall, int rank, int size)
      : Communicator(Allocator::cpu()), hall_(std::move(hall)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::unique_ptr<Connection>> connections(int n) override {
    std::vector<std::unique_ptr<Connection>> all;
    for (int i = 0; i < n; ++i) all.push_back(std::make_unique<End>(hall_, rank_));
    return all;
  }

 protected:
  Tensor do_all_gather(const Tensor& own, const RankRows&) override { return own; }
  std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows&, const RankRows&) override { return {own}; }
  Tensor do_broadcast(const Tensor& t, int) override { return t; }
  void do_barrier() override { hall_->together.arrive_and_wait(); }

 private:
  std::shared_ptr<Hall> hall_;
  int rank_, size_;
};

Tensor number(int64_t value) {
  Tensor t = Tensor::empty(Allocator::cpu(), {8}, DType::u8, MemClass::other);
  std::memcpy(t.raw(), &value, sizeof value);
  return t;
}
int64_t number_in(const Tensor& t) {
  int64_t value = 0;
  std::memcpy(&value, t.raw(), sizeof value);
  return value;
}

// The worker of one rank with two rules. Each shard of a rule counts pushes.
class Rank {
 public:
  Rank(std::shared_ptr<Hall> hall, int rank, int size) : comm_(std::move(hall), rank, size), link_(comm_) {
    for (int rule = 0; rule < 2; ++rule)
      link_.add(rule ? "b" : "a", 3, [this, rule](int worker, const Request& request) {
        if (request.kind == Event::pull) return number(updates_[rule]);
        LMX_CHECK(number_in(request.body) == 100 * worker + rule && request.extents[2] == 7, "another's push");
        if (throws_) throw RunError("the shard is full");
        ++updates_[rule];
        return Tensor();
      });
  }

  bool pull(int64_t meeting, bool stop = false) {
    if (!link_.ask(Event::pull, meeting, stop)) return false;
    for (int rule = 0; rule < 2; ++rule)
      for (int shard = 0; shard < comm_.size(); ++shard) link_.send(rule, shard, {.kind = Event::pull});
    std::vector<int64_t> seen;
    for (int rule = 0; rule < 2; ++rule)
      for (int shard = 0; shard < comm_.size(); ++shard) seen.push_back(number_in(link_.receive(rule, shard, 8)));
    LMX_CHECK(std::count(seen.begin(), seen.end(), seen[0]) == static_cast<int64_t>(seen.size()),
              "shards that are not at the same update");
    pulls_.push_back(seen[0]);
    return true;
  }
  bool push(int64_t meeting, bool stop = false) {
    if (!link_.ask(Event::push, meeting, stop)) return false;
    for (int rule = 0; rule < 2; ++rule)
      for (int shard = 0; shard < comm_.size(); ++shard)
        link_.send(rule, shard,
                   {.kind = Event::push, .lr = 1, .extents = {0, 1, 7}, .body = number(100 * comm_.rank() + rule)});
    return true;
  }

  Connected comm_;
  std::array<int64_t, 2> updates_{};
  std::vector<int64_t> pulls_;
  bool throws_ = false;
  Link link_;  // is destroyed first
};

// Runs `body` in one thread for each of `size` ranks. Returns the errors that they threw.
std::vector<std::string> on_ranks(int size, const std::function<void(Rank&)>& body) {
  auto hall = std::make_shared<Hall>(size);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<Rank>(hall, r, size));
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(*ranks[r]);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

std::vector<std::string> none(int size) {
  return std::vector<std::string>(static_cast<size_t>(size));
}

constexpr int64_t kNever = 1'000'000;

// Each worker takes `steps` steps, with a meeting after each `every` steps. At a meeting all shards have the same
// number of updates, and the slowest worker has just completed the step.
void work(Rank& rank, const std::vector<Stand>& stands, const std::vector<int32_t>& replay, int64_t steps,
          int64_t every, std::vector<int64_t>& met) {
  rank.link_.start(stands, replay, steps);
  Stand at = stands[static_cast<size_t>(rank.comm_.rank())];
  int64_t meeting = every;
  const auto meet = [&] {
    met.push_back(rank.updates_[0]);
    LMX_CHECK(rank.updates_[0] == rank.updates_[1], "rules that are not at the same update");
    meeting += every;
    rank.comm_.barrier();  // no rank may push while another still reads
  };
  while (at.step < steps) {
    if (!at.pulled) {
      while (!rank.pull(meeting)) meet();
      at.pulled = true;
    }
    while (!rank.push(meeting)) meet();
    at = {at.step + 1, false};
  }
  while (meeting <= steps) {
    LMX_CHECK(!rank.link_.ask(Event::none, meeting, false), "a turn for nothing");
    meet();
  }
}

TEST(ServerLink, ManyWorkersAreAsOneServer) {
  for (const int size : {2, 3, 5}) {
    std::vector<std::vector<int64_t>> met(static_cast<size_t>(size)), again = met;
    std::vector<int32_t> order;
    std::vector<std::vector<int64_t>> pulls(met.size());
    const std::vector<Stand> begin(met.size());
    EXPECT_EQ(on_ranks(size,
                       [&](Rank& r) {
                         work(r, begin, {}, 40, 8, met[static_cast<size_t>(r.comm_.rank())]);
                         pulls[static_cast<size_t>(r.comm_.rank())] = r.pulls_;
                         if (r.comm_.rank() == 0) order = r.link_.take_order();
                       }),
              none(size));
    EXPECT_EQ(order.size(), static_cast<size_t>(80 * size));
    EXPECT_EQ(met[0].size(), 5u);
    EXPECT_EQ(met[0].back(), 40 * size);
    for (const auto& other : met) EXPECT_EQ(other, met[0]);
    // The recorded order must agree with the numbers of updates that the workers saw.
    std::vector<std::vector<int64_t>> told(met.size());
    int64_t updates = 0;
    for (const int32_t event : order)
      event % 2 ? static_cast<void>(++updates) : told[static_cast<size_t>(event / 2)].push_back(updates);
    EXPECT_EQ(pulls, told);
    // A replay of the order repeats all of it, including the meetings.
    std::vector<int32_t> repeated;
    EXPECT_EQ(on_ranks(size,
                       [&](Rank& r) {
                         work(r, begin, order, 40, 8, again[static_cast<size_t>(r.comm_.rank())]);
                         EXPECT_EQ(r.pulls_, told[static_cast<size_t>(r.comm_.rank())]);
                         if (r.comm_.rank() == 0) repeated = r.link_.take_order();
                       }),
              none(size));
    EXPECT_EQ(repeated, order);
    EXPECT_EQ(again, met);
  }
}

// Continues from the state of a checkpoint: worker 0 has finished, worker 1 has pulled, and there are no steps after
// the last one.
TEST(ServerLink, AReplayGoesOnWhereItWas) {
  const std::vector<int32_t> replay{0, 1, 2, 4, 0, 1, 5, 3, 0, 4, 5, 2, 1, 3, 4, 5};
  std::vector<int32_t> order;
  std::vector<std::vector<int64_t>> met(3);
  const std::vector<Stand> stands{{2, false}, {0, true}, {0, true}};
  EXPECT_EQ(on_ranks(3,
                     [&](Rank& r) {
                       work(r, stands, replay, 2, 2, met[static_cast<size_t>(r.comm_.rank())]);
                       if (r.comm_.rank() == 0) order = r.link_.take_order();
                     }),
            none(3));
  EXPECT_THAT(order, ElementsAre(5, 3, 4, 5, 2, 3));
}

TEST(ServerLink, AllMeetWhenOneWantsToStop) {
  std::vector<int64_t> updates(3);
  EXPECT_EQ(on_ranks(3,
                     [&](Rank& r) {
                       r.link_.start(std::vector<Stand>(3), {}, kNever);
                       const int me = r.comm_.rank();
                       for (int64_t step = 0;; ++step) {
                         const bool stop = me == 1 && step == 10;
                         if (!r.pull(kNever, stop) || !r.push(kNever)) break;
                       }
                       updates[static_cast<size_t>(me)] = r.updates_[0];
                     }),
            none(3));
  EXPECT_GE(updates[0], 10);
  EXPECT_EQ(updates[1], updates[0]);
  EXPECT_EQ(updates[2], updates[0]);
}

TEST(ServerLink, WhatIsLeftOutChangesNothing) {
  std::vector<int64_t> met(2);
  EXPECT_EQ(on_ranks(2,
                     [&](Rank& r) {
                       r.link_.start(std::vector<Stand>(2), {}, 10);
                       for (int64_t step = 0; step < 10; ++step) {
                         ASSERT_TRUE(r.pull(10));
                         if (step % 2) {
                           ASSERT_TRUE(r.push(10));
                         } else {
                           ASSERT_TRUE(r.link_.ask(Event::push, 10, false));
                           r.link_.leave_out();
                         }
                       }
                       EXPECT_FALSE(r.link_.ask(Event::none, 10, false));
                       met[static_cast<size_t>(r.comm_.rank())] = r.updates_[1];
                     }),
            none(2));
  EXPECT_THAT(met, ElementsAre(10, 10));
}

TEST(ServerLink, TheLedgerHasEveryByteAndWhatTheWorkerWaited) {
  EXPECT_EQ(on_ranks(3,
                     [&](Rank& r) {
                       std::vector<int64_t> met;
                       const auto start = std::chrono::steady_clock::now();
                       work(r, std::vector<Stand>(3), {}, 4, 4, met);
                       const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
                       r.link_.count(r.comm_);
                       std::map<std::string, std::pair<int64_t, int64_t>> bytes;
                       std::map<std::string, double> seconds;
                       for (const LedgerEntry& e : r.comm_.ledger()) {
                         bytes[e.group + "/" + e.collective].first += e.sent;
                         bytes[e.group + "/" + e.collective].second += e.received;
                         seconds[e.group + "/" + e.collective] += e.seconds;
                       }
                       // To and from two other ranks, in four steps; a reply and a push have 8 bytes each.
                       for (const char* rule : {"a", "b"}) {
                         EXPECT_EQ(bytes[std::string(rule) + "/pull"], (std::pair<int64_t, int64_t>(64, 64)));
                         EXPECT_EQ(bytes[std::string(rule) + "/push"], (std::pair<int64_t, int64_t>(64, 64)));
                       }
                       // 43 header bytes for each of 2 x 8 x 2 requests, sent and received. A turn is requested 9 times
                       // by 24 bytes and granted by 8 bytes; the last answer calls to the meeting.
                       const int64_t fronts = 43 * 32;
                       const auto turns = bytes["control/turn"];
                       if (r.comm_.rank() == 0) {
                         EXPECT_EQ(turns, (std::pair<int64_t, int64_t>(fronts + 2 * 9 * 8, fronts + 2 * 9 * 24)));
                       } else {
                         EXPECT_EQ(turns, (std::pair<int64_t, int64_t>(fronts + 9 * 24, fronts + 9 * 8)));
                       }
                       EXPECT_EQ(bytes.size(), 5u);
                       double waited = 0;
                       for (const auto& [what, s] : seconds) {
                         EXPECT_GT(s, 0) << what;
                         waited += s;
                       }
                       EXPECT_LE(waited, whole.count());
                     }),
            none(3));
}

// An error that ends a shard's thread becomes an error of that rank.
TEST(ServerLink, AShardThatFailsIsItsRanksError) {
  std::atomic<bool> over = false;
  const auto errors = on_ranks(2, [&](Rank& r) {
    r.throws_ = r.comm_.rank() == 0;
    r.link_.start(std::vector<Stand>(2), {}, kNever);
    if (r.comm_.rank() == 1) {
      if (r.pull(kNever)) r.push(kNever);
      while (!over) std::this_thread::yield();
      return;
    }
    try {
      for (;;) r.link_.ask(Event::none, kNever, false);
    } catch (const RunError&) {
      over = true;
      throw;
    }
  });
  EXPECT_THAT(errors[0], Names("full"));
  EXPECT_EQ(errors[1], "");
}

}  // namespace
}  // namespace lmx::sync_test

// Groups of ranks, what they exchange, and the ledger of every byte.
//
// A communicator only moves data; sums are lmx's own, in rank order, so that every group gives the same bits. Calls are
// collective: all ranks make them in the same order, with equal types and trailing sizes.
//
// A tensor that was handed to a collective is not written to again by anyone, and what a collective returns may be
// shared by the ranks of a process: it is read, never written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/tensor.h"

namespace lmx {

// One line of the ledger: bytes that this rank sent to and received from others in one collective.
struct LedgerEntry {
  int64_t step = 0;
  std::string group;       // the parameter group ("tables") or purpose ("control")
  std::string collective;  // "all_gather", "all_to_all", "all_reduce" (native), "broadcast", "send"
  int64_t sent = 0, received = 0;
  double seconds = 0;  // in the call, waiting included
};

// Where part r of n elements begins when they are divided over `parts`: r n / parts, so sizes differ by at most one.
inline int64_t chunk_begin(int64_t n, int r, int parts) {
  return n * r / parts;
}

// How many rows each rank has: a list, which the caller keeps, or numbers that are computed. Thousands of ranks that
// wait in one process would otherwise hold a list each.
class RankRows {
 public:
  RankRows(std::span<const int64_t> rows) : ranks_(static_cast<int>(rows.size())), list_(rows) {}
  RankRows(const std::vector<int64_t>& rows) : RankRows(std::span<const int64_t>(rows)) {}
  static RankRows same(int ranks, int64_t rows) { return {ranks, rows, false}; }
  // `rows` in all, divided as by chunk_begin().
  static RankRows divided(int ranks, int64_t rows) { return {ranks, rows, true}; }

  int ranks() const { return ranks_; }
  bool is_list() const { return !list_.empty(); }
  int64_t operator[](int r) const {
    if (is_list()) return list_[static_cast<size_t>(r)];
    return divided_ ? begin(r + 1) - begin(r) : rows_;
  }
  // The rows of all ranks before r, where r may be ranks(). REQUIRES: no list, for which begins() has all of them.
  int64_t begin(int r) const { return divided_ ? chunk_begin(rows_, r, ranks_) : rows_ * r; }
  std::vector<int64_t> begins() const {
    std::vector<int64_t> sums{0};
    for (int r = 0; r < ranks_; ++r) sums.push_back(sums.back() + (*this)[r]);
    return sums;
  }
  int64_t total() const { return is_list() ? std::accumulate(list_.begin(), list_.end(), int64_t{0}) : begin(ranks_); }

 private:
  RankRows(int ranks, int64_t rows, bool divided) : ranks_(ranks), rows_(rows), divided_(divided) {}

  int ranks_;
  std::span<const int64_t> list_;
  int64_t rows_ = 0;
  bool divided_ = false;
};

// One rank's end of a group. A group of one is the identity: calls return at once and enter the ledger with 0 bytes.
// Used by one thread at a time.
class LMX_API Communicator {
 public:
  virtual ~Communicator();
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What this rank allocates from; what it receives is counted there.
  const std::shared_ptr<Allocator>& allocator() const { return allocator_; }
  int threads() const { return threads_; }  // of a parallel region of this rank

  // Ranks' tensors (rows_r, ...) one after the other, in rank order. `rows`: the leading size of each rank's; without
  // them they are gathered first (8 bytes a rank).
  Tensor all_gather(const Tensor& own, const std::string& group);
  Tensor all_gather(const Tensor& own, const RankRows& rows, const std::string& group);
  // Sends the first to[0] rows of `own` to rank 0, the next to[1] to rank 1 and so on; returns the rows that each rank
  // had for this one, in rank order: (from[r], ...).
  std::vector<Tensor> all_to_all(const Tensor& own, const RankRows& to, const RankRows& from, const std::string& group);
  // The root's tensor; the others give one of the same shape and type.
  Tensor broadcast(const Tensor& t, int root, const std::string& group);
  void barrier();
  // Point to point, in order per pair of ranks and tag. send() returns when `t` may be reused. receive() fills `t`;
  // from -1: whoever comes first; returns the sender.
  void send(const Tensor& t, int to, int tag, const std::string& group);
  int receive(Tensor& t, int from, int tag, const std::string& group);
  // As send(), but waits for nothing; `t` is not written to again.
  void post(const Tensor& t, int to, int tag, const std::string& group);
  // Who has sent a message with this tag that is there to be received; -1: nobody. Waits for nothing.
  int probe(int tag) { return do_probe(tag); }
  // Further ends of this rank on a link of their own, the first for the thread that calls, the others for a thread
  // each: for send(), post(), receive() and probe() to other ranks. Collective; empty where ranks share memory.
  virtual std::vector<std::unique_ptr<Communicator>> ends(int n);

  // Made of the moves above. -----------------------------------------------------------------------------------------
  // The sum over ranks, in rank order from +0, f32 or f64. Chunk r of the flat elements (chunk_begin) goes to rank r,
  // is summed there and gathered: each rank sends n - chunk + (G-1) chunk elements, 2 (G-1)/G n where G divides n. A
  // group may add by a means of its own (comm.reduce: native), in an order of its own; the ledger counts the same
  // bytes, which are a ring's, as "all_reduce".
  Tensor all_reduce(const Tensor& t, const std::string& group);
  // `own` of every rank, rank after rank.
  std::vector<double> gather_numbers(std::span<const double> own, const std::string& group);
  std::vector<std::string> gather_texts(const std::string& own, const std::string& group);

  // For what every rank would compute from the same inputs with the same result: in a virtual group rank 0 makes it,
  // with all threads, and the others share it (without writing to it); elsewhere each rank makes its own. Collective.
  template <class T, class Make>
  T once(Make&& make) {
    const std::shared_ptr<void> made = do_once([&]() -> std::shared_ptr<void> { return std::make_shared<T>(make()); });
    return *std::static_pointer_cast<T>(made);
  }
  // once() for a tensor that counts in each rank's memory, as class `c`.
  Tensor once_tensor(MemClass c, const std::function<Tensor()>& make);
  // True where ranks are threads of one process, which share parameters and what once() makes.
  virtual bool shares_memory() const { return false; }
  // While what it returns lives, this rank waits for others by other means than a move: who looks for ranks that are
  // lost counts that as it counts a move.
  virtual std::shared_ptr<void> waiting();
  // True where a collective makes progress on a second thread while this rank computes.
  virtual bool overlaps() const { return false; }

  // Simulated time, for strategies whose ranks do not go in step. announce() says when this rank's next event happens;
  // wait_turn() returns when no other rank has an earlier one (of several at one time the lowest rank goes first; ranks
  // that wait in a collective or have ended do not count). Between the two the rank may compute beside the others.
  virtual bool simulates_time() const { return false; }
  virtual void announce(double time);
  virtual void wait_turn();

  const std::vector<LedgerEntry>& ledger() const { return ledger_; }
  // Enters bytes that need no message here, as where ranks share the memory of a server, or that others have moved for
  // this rank; `seconds`: how long the rank has waited for them.
  void count(const std::string& group, const std::string& collective, int64_t sent, int64_t received,
             double seconds = 0);
  void set_step(int64_t step) { step_ = step; }
  void clear_ledger() { ledger_.clear(); }

 protected:
  explicit Communicator(std::shared_ptr<Allocator> allocator, int threads = 1);
  // The moves, without the ledger. `own` is contiguous.
  virtual Tensor do_all_gather(const Tensor& own, const RankRows& rows) = 0;
  virtual std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows& to, const RankRows& from) = 0;
  virtual Tensor do_broadcast(const Tensor& t, int root) = 0;
  virtual void do_barrier() = 0;
  virtual void do_send(const Tensor& t, int to, int tag) = 0;
  virtual int do_receive(Tensor& t, int from, int tag) = 0;
  virtual void do_post(const Tensor& t, int to, int tag) { do_send(t, to, tag); }
  virtual int do_probe(int) { return -1; }
  // The sum of the flat `t` by a means of the group's own, equal on all ranks, in no fixed order; an undefined tensor
  // on all of them: it has none, and all_reduce() adds in rank order.
  virtual Tensor do_all_reduce(const Tensor&) { return {}; }
  virtual std::shared_ptr<void> do_once(const std::function<std::shared_ptr<void>()>& make) { return make(); }

 private:
  std::shared_ptr<Allocator> allocator_;
  int threads_;
  std::vector<LedgerEntry> ledger_;
  int64_t step_ = 0;
};

// The ranks of a run, those that live in this process among them: what a plugin of kind comm makes.
class LMX_API CommGroup {
 public:
  virtual ~CommGroup();
  virtual int size() const = 0;
  // Runs `body` for each rank of this process, on a communicator of its own, and returns when all have returned. An
  // exception of one rank ends the waiting of the others and is thrown here.
  virtual void run(const std::function<void(Communicator&)>& body) = 0;
  virtual std::string describe() const = 0;  // "64 virtual ranks, 2 at a time"
};

struct CommEnv {
  int threads = 0;  // `threads` of the recipe; 0: one a rank where the run is deterministic, else as the group sees fit
  std::vector<std::string> command_line = {};  // of this process, for groups that start others like it
  bool deterministic = true;                   // of the recipe: equal bits in every group, whatever the machine
};
using CommFactory = std::unique_ptr<CommGroup> (*)(const Node& config, const std::string& path, const CommEnv& env);

// The group of one rank; built in as `self`.
LMX_API std::unique_ptr<CommGroup> make_self_group(int threads);
LMX_API std::unique_ptr<Communicator> make_self_communicator(int threads = 0);

}  // namespace lmx

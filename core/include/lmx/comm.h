// Groups of ranks, the data that they exchange, and the ledger of every byte.
//
// A communicator only moves data. lmx itself adds, in rank order, so that every group gives the same bits. Calls are
// collective: all ranks make them in the same order, with equal types and trailing sizes.
//
// A tensor that was passed to a collective is not written to again. The ranks of a process may share the result of a
// collective, so results are read-only.
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

class StreamPoint;

// One line of the ledger: bytes that this rank sent to and received from others in one collective.
struct LedgerEntry {
  std::string group = {};       // the parameter group ("tables") or purpose ("control")
  std::string collective = {};  // "all_gather", "all_to_all", "all_reduce" (native), "broadcast", "pull", "push", ...
  int64_t sent = 0, received = 0;
  double seconds = 0;  // in the call, including waiting; between devices see Communicator::measure_exchanges()
  int64_t sent_between_nodes = 0, received_between_nodes = 0;  // the part of the bytes that crosses nodes
  bool listed = false;  // all_to_all: each rank keeps a list of the sizes of its parts (RankRows::is_list())

  void add_sent(int64_t bytes, bool crosses) {
    sent += bytes;
    if (crosses) sent_between_nodes += bytes;
  }
  void add_received(int64_t bytes, bool crosses) {
    received += bytes;
    if (crosses) received_between_nodes += bytes;
  }
};

// The nodes of the ranks of a group. A node is a machine, whose ranks exchange data faster with each other than with
// those of other nodes. Nodes are numbered in the order of their lowest ranks.
class LMX_API RankNodes {
 public:
  // Nodes of `per_node` consecutive ranks; the last one has the remaining ranks. 0: all ranks are in one node.
  RankNodes(int ranks, int64_t per_node);
  // Ranks of one host are in one node. `hosts`: by rank.
  explicit RankNodes(const std::vector<std::string>& hosts);
  int count() const { return static_cast<int>(members_.size()); }
  // The number of ranks of each node; 0: nodes have different numbers of ranks.
  int per_node() const { return per_node_; }
  int node_of(int rank) const { return node_of_[static_cast<size_t>(rank)]; }
  bool apart(int a, int b) const { return node_of(a) != node_of(b); }
  // The ranks of the node of `rank`, ascending.
  const std::vector<int>& node(int rank) const { return members_[static_cast<size_t>(node_of(rank))]; }
  // The ranks that have the same place in their nodes as `rank`, one of each node, in the order of the nodes.
  // REQUIRES: per_node() > 0.
  std::vector<int> peers(int rank) const;

 private:
  void finish();
  std::vector<int> node_of_;
  std::vector<std::vector<int>> members_;
  int per_node_ = 0;
};

// The first element of part r if n elements are divided into `parts` parts: r n / parts, so sizes differ by at most
// one.
inline int64_t chunk_begin(int64_t n, int r, int parts) {
  return n * r / parts;
}

// Number of rows of each rank: a list, which the caller keeps alive, or a rule that computes the numbers. The rule
// saves memory if thousands of ranks wait in one process.
class RankRows {
 public:
  RankRows(std::span<const int64_t> rows) : ranks_(static_cast<int>(rows.size())), list_(rows) {}
  RankRows(const std::vector<int64_t>& rows) : RankRows(std::span<const int64_t>(rows)) {}
  static RankRows same(int ranks, int64_t rows) { return {ranks, rows, false}; }
  // `rows` in total, divided by chunk_begin().
  static RankRows divided(int ranks, int64_t rows) { return {ranks, rows, true}; }

  int ranks() const { return ranks_; }
  bool is_list() const { return !list_.empty(); }
  int64_t operator[](int r) const {
    if (is_list()) return list_[static_cast<size_t>(r)];
    return divided_ ? begin(r + 1) - begin(r) : rows_;
  }
  // The rows of all ranks before r; r may be ranks(). REQUIRES: not a list (for lists, begins() returns all of them).
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

// Messages between pairs of ranks, for ranks that do not run in step: the workers and shards of a parameter server in
// several processes. Messages of one pair and one tag stay in order. Used by one thread at a time. Nothing enters a
// ledger: the caller counts (Communicator::count).
class LMX_API Connection {
 public:
  virtual ~Connection();
  virtual void send(const Tensor& t, int to, int tag) = 0;  // to another rank; returns when `t` may be reused
  virtual void post(const Tensor& t, int to, int tag) = 0;  // does not wait; `t` must not be written to again
  virtual void receive(Tensor& t, int from, int tag) = 0;   // fills `t`
  // The sender of a message with this tag that can be received now; -1: none. Does not wait.
  virtual int probe(int tag) = 0;
};

// Simulated time of ranks that are not synchronous. announce() sets the time of this rank's next event. wait() returns
// when no other rank has an earlier event; at equal times the lowest rank comes first. Ranks that wait in a collective
// or have ended do not count. Between the two calls the rank may compute in parallel with the others.
class LMX_API TurnClock {
 public:
  virtual ~TurnClock();
  virtual void announce(double time) = 0;
  virtual void wait() = 0;
};

// One rank's end of a group. A group of one is the identity: calls return at once and enter 0 bytes in the ledger. Used
// by one thread at a time.
class LMX_API Communicator {
 public:
  virtual ~Communicator();
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The allocator of this rank for the memory of the host, and for that of a device (InternalError: no device that
  // use_device() set). Memory of received data is counted there.
  const std::shared_ptr<Allocator>& allocator() const { return allocator_; }
  const std::shared_ptr<Allocator>& allocator(Device device) const;
  // This rank computes on the device of `memory`. A group of processes copies its tensors to `host` and back.
  void use_device(std::shared_ptr<Allocator> memory, std::shared_ptr<Allocator> host) {
    device_memory_ = std::move(memory);
    allocator_ = std::move(host);
    in_node_.reset();  // a part has the same memory
    between_nodes_.reset();
  }
  int threads() const { return threads_; }  // threads of a parallel region of this rank

  // The nodes of the ranks. By default all ranks are in one node.
  const RankNodes& nodes() const;

  // Parts of this group, which are groups themselves: the ranks of this rank's node, and the ranks with the same place
  // in every node (REQUIRES: nodes().per_node() > 0). They live as long as this group and use its ledger. Ranks are
  // numbered from 0 in the order of the lists of RankNodes. All ranks of the whole group call the same operations of
  // their parts at the same time. Parts add in rank order, also if `comm.reduce: native` is set, and have no
  // connections.
  Communicator& in_node();
  Communicator& between_nodes();

  // Returns the ranks' tensors (rows_r, ...) one after the other, in rank order. `rows`: the leading size of each
  // rank's tensor. Without `rows` the sizes are gathered first (8 bytes for each rank).
  Tensor all_gather(const Tensor& own, const std::string& group);
  Tensor all_gather(const Tensor& own, const RankRows& rows, const std::string& group);
  // Sends the first to[0] rows of `own` to rank 0, the next to[1] to rank 1 and so on. Returns the rows that each rank
  // sent to this one, in rank order: (from[r], ...).
  std::vector<Tensor> all_to_all(const Tensor& own, const RankRows& to, const RankRows& from, const std::string& group);
  // Returns the root's tensor. The other ranks pass a tensor of the same shape and type.
  Tensor broadcast(const Tensor& t, int root, const std::string& group);
  void barrier();
  // `n` connections of this rank to all others: the first is for the calling thread, each other one for one further
  // thread. Collective. Empty by default, as for ranks that share memory.
  virtual std::vector<std::unique_ptr<Connection>> connections(int n);

  // Composed of the operations above. --------------------------------------------------------------------------------
  // The sum over ranks, in rank order from +0, f32 or f64. Chunk r of the flat elements (chunk_begin) is sent to rank
  // r, which sums it; the sums are gathered. Each rank sends n - chunk + (G-1) chunk elements: 2 (G-1)/G n if G divides
  // n, the least that is possible (Patarasuk and Yuan 2009). If `comm.reduce: native` is set, the group may use its own
  // reduction, which adds in its own order. The ledger then counts the same number of bytes as "all_reduce", as if each
  // rank sent all of them to the next rank in a ring.
  Tensor all_reduce(const Tensor& t, const std::string& group);
  // Chunk r of that sum on rank r, flat.
  Tensor reduce_scatter(const Tensor& t, const std::string& group);
  // The same for other chunks: `parts` are the numbers of elements of each rank's chunk.
  Tensor reduce_scatter(const Tensor& t, const RankRows& parts, const std::string& group);
  // The elements of `own` of every rank, in rank order.
  std::vector<double> gather_numbers(std::span<const double> own, const std::string& group);
  std::vector<std::string> gather_texts(const std::string& own, const std::string& group);

  // For a value that every rank would compute from the same inputs with the same result. In a virtual group rank 0
  // computes it with all threads, and the others share it read-only. In other groups each rank computes it itself.
  // Collective.
  template <class T, class Make>
  T once(Make&& make) {
    const std::shared_ptr<void> made = do_once([&]() -> std::shared_ptr<void> { return std::make_shared<T>(make()); });
    return *std::static_pointer_cast<T>(made);
  }
  // once() for a tensor, which is counted in the memory of each rank as class `c`.
  Tensor once_tensor(MemClass c, const std::function<Tensor()>& make);
  // True if ranks are threads of one process: they share parameters and the results of once().
  virtual bool shares_memory() const { return false; }
  // While the returned object lives, this rank waits for other ranks outside of a communicator call. The liveness check
  // treats that like waiting inside a call.
  virtual std::shared_ptr<void> waiting();
  // True if a collective can progress on a second thread while this rank computes.
  virtual bool overlaps() const { return false; }

  // Null if ranks have no simulated time.
  virtual TurnClock* turns() { return nullptr; }

  const std::vector<LedgerEntry>& ledger() const { return ledger_->lines; }
  // Enters bytes that no message of this communicator carries: ranks share the memory of a server, or another object
  // has sent the bytes for this rank. `line.seconds`: how long this rank has waited for them.
  void count(LedgerEntry line);
  void clear_ledger();
  // `seconds` of the lines of exchanges between devices, which a call only enqueues, become the time that the devices
  // have taken. Lines of exchanges that a device has not done yet keep the time of the call. Does not wait.
  void measure_exchanges();

 protected:
  explicit Communicator(std::shared_ptr<Allocator> allocator, int threads = 1);
  // To be called before the first operation.
  void set_nodes(std::shared_ptr<const RankNodes> nodes) { nodes_ = std::move(nodes); }
  // The operations without the ledger. `own` is contiguous.
  virtual Tensor do_all_gather(const Tensor& own, const RankRows& rows) = 0;
  virtual std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows& to, const RankRows& from) = 0;
  virtual Tensor do_broadcast(const Tensor& t, int root) = 0;
  virtual void do_barrier() = 0;
  // The tensors of `members`, one after the other, of which the i-th has rows[i] rows. `members` are the ranks of this
  // rank's part of the group, ascending. All ranks of the group call it at the same time, each with its own part. The
  // default sends a copy of `own` to each member by do_all_to_all(); a group that sends `own` itself needs less memory.
  virtual Tensor do_gather_among(std::span<const int> members, const Tensor& own, const RankRows& rows);
  // The sum of the flat `t` by the group's own reduction: equal on all ranks, in no fixed order. If the group has none,
  // the result is an undefined tensor on all ranks, and all_reduce() adds in rank order.
  virtual Tensor do_all_reduce(const Tensor&) { return {}; }
  virtual std::shared_ptr<void> do_once(const std::function<std::shared_ptr<void>()>& make) { return make(); }

 private:
  friend class CommunicatorPart;
  // An exchange that was enqueued on a device.
  struct Running {
    size_t line;  // of the ledger
    std::shared_ptr<const StreamPoint> begin, end;
  };
  struct Ledger {
    std::vector<LedgerEntry> lines;
    std::vector<Running> running = {};
  };
  class Entry;
  Tensor to_group(const Tensor& t) const;
  Tensor from_group(const Tensor& t, Device device) const;
  int64_t rows_elsewhere(const RankRows& rows) const;  // rows of the ranks of other nodes

  std::shared_ptr<Allocator> allocator_, device_memory_;
  int threads_;
  const Communicator* carrier_ = this;                           // a part: the whole group, which carries its data
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();  // a part shares that of the whole group
  mutable std::shared_ptr<const RankNodes> nodes_;               // null: all ranks are in one node
  std::unique_ptr<Communicator> in_node_, between_nodes_;        // null: not used so far
};

struct CommEnv;

// All ranks of a run, including those of this process. A plugin of kind comm creates it.
class LMX_API CommGroup {
 public:
  using Factory = std::unique_ptr<CommGroup> (*)(const Node& config, const std::string& path, const CommEnv& env);

  virtual ~CommGroup();
  virtual int size() const = 0;
  // Runs `body` for each rank of this process, each with its own communicator, and returns when all have returned. An
  // exception of one rank ends the waiting of the others and is thrown here.
  virtual void run(const std::function<void(Communicator&)>& body) = 0;
  virtual std::string describe() const = 0;  // "64 virtual ranks, 2 at a time"
};

struct CommEnv {
  // `threads` of the recipe: threads of a rank. 0: all cores in `self`; in other groups one if the run is
  // deterministic, otherwise the group decides.
  int threads = 0;
  std::vector<std::string> command_line = {};  // of this process, for groups that start further processes like it
  bool deterministic = true;                   // of the recipe: every group and machine gives equal bits
};
using CommFactory = CommGroup::Factory;

// The group of one rank; built in as `self`.
LMX_API std::unique_ptr<CommGroup> make_self_group(int threads);
LMX_API std::unique_ptr<Communicator> make_self_communicator(int threads = 0);

}  // namespace lmx

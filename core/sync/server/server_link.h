// Connection between workers and shards in different processes.
//
// Pulls and pushes happen one after the other on the whole server, although its shards are in different processes. Rank
// 0 numbers them, in the order in which workers ask for their turn or in a recorded order. Each shard processes its
// requests in the order of these numbers. Between two numbers rank 0 can let all ranks meet; a repeated order has its
// meetings at the same places. A thread of each rank answers the other ranks while the rank computes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lmx/comm.h"

namespace lmx::server {

enum class Event : int64_t { pull, push, none };  // none: a worker that has no further steps

struct Request {
  Event kind = Event::pull;  // none: a push that is skipped
  double lr = 0;
  std::vector<uint8_t> extents = {};  // a byte for each parameter of the rule: which of its rows the body contains
  Tensor body = {};                   // u8
};

// Progress of a worker.
struct Stand {
  int64_t step = 0;     // steps that it has finished
  bool pulled = false;  // it has pulled for the next step
};

class Link {
 public:
  // Processes a worker's request on a shard. Returns the reply to a pull: u8.
  using Serve = std::function<Tensor(int worker, const Request& request)>;

  // Collective. UserError: `comm` provides no connections.
  explicit Link(Communicator& comm);
  ~Link();
  Link(const Link&) = delete;

  // Returns the rule's number. Every rank must add the same rules in the same order, before start().
  int add(const std::string& group, int parameters, Serve serve);
  // `workers`: by rank, equal on all ranks. `replay`: the order to repeat (2 rank, +1 for a push); empty: the order in
  // which workers ask. `steps`: number of steps of each worker.
  void start(const std::vector<Stand>& workers, const std::vector<int32_t>& replay, int64_t steps);

  // The following functions are called by the worker. Each also throws the exception that ended the thread, if any.
  // Waits for this worker's turn to do `event`. Returns false if all ranks must meet first, because all have done
  // `meeting` steps or one passes `stop`; this rank's shard has then processed all earlier requests. Returns true if it
  // is this worker's turn; it must then send one request for each rule and shard.
  bool ask(Event event, int64_t meeting, bool stop);
  void send(int rule, int shard, Request request);
  Tensor receive(int rule, int shard, int64_t bytes);  // the reply to a pull
  void leave_out();                                    // skips the push whose turn it is
  // To be called in a meeting, on rank 0: the order since the last call.
  std::vector<int32_t> take_order();
  // Enters all bytes since the last call in the ledger: "pull" and "push" of each rule; turns and request headers as
  // "turn" of "control". The seconds are those that the worker has waited; those of the thread are not counted.
  void count(Communicator& comm);

 private:
  // A connection, with the bytes that it has exchanged by group and purpose.
  struct End {
    std::unique_ptr<Connection> connection;
    std::map<std::pair<std::string, std::string>, LedgerEntry> traffic;
  };
  struct Rule {
    std::string group;
    Serve serve;
    int64_t next = 0;                                    // number of the request to process next
    std::map<int64_t, std::pair<int, Request>> waiting;  // by number: the worker and its request
    std::deque<Tensor> replies;                          // to this rank's worker
  };
  struct Ask {
    int64_t event = 0, meeting = 0, stop = 0;
  };

  void send(End& end, const Tensor& t, int to, int tag, const Rule* rule, Event kind);
  void receive(End& end, Tensor& t, int from, int tag, const Rule* rule, Event kind);
  void loop();
  bool listen();
  void take_request(int from);
  void enqueue(int rule, int64_t number, int worker, Request request);
  void serve();
  void decide();
  bool may_go(int worker, const Ask& ask) const;
  void answer(int worker, int64_t turn);
  LedgerEntry& traffic(End& end, const Rule* rule, Event kind);
  // Called by the worker; `traffic` gets the seconds.
  void wait(std::unique_lock<std::mutex>& lock, LedgerEntry& traffic, const std::function<bool()>& condition);
  size_t index(int rank) const { return static_cast<size_t>(rank); }

  bool crosses(int other) const { return nodes_.apart(other, comm_.rank()); }

  Communicator& comm_;
  const RankNodes& nodes_;
  End own_, beside_;    // of the worker; of the thread, protected by mutex_
  int parameters_ = 0;  // largest number of parameters of a rule
  int64_t turn_ = -1;   // number of the worker's turn; negative: none

  std::mutex mutex_;  // protects the members below, except ending_ and thread_
  std::condition_variable changed_;
  std::vector<Rule> rules_;
  std::deque<int64_t> turns_;  // numbers for this rank's worker
  std::exception_ptr error_;
  // Used on rank 0 only.
  std::vector<int64_t> done_;  // finished steps, by worker
  std::deque<std::pair<int, Ask>> asking_;
  std::deque<int32_t> replay_;
  bool replays_ = false, stop_ = false;
  int64_t given_ = 0;  // numbers assigned so far
  std::vector<int32_t> order_;

  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace lmx::server

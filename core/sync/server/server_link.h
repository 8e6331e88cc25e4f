// Between workers and shards that live in different processes.
//
// Pulls and pushes happen one after the other on the whole server, though its shards are apart: rank 0 numbers them, as
// workers ask for their turn or as a recorded order says, and a shard does what it is sent in the order of these
// numbers. Between two of them rank 0 can call everybody to a meeting, at the same place in the order on every run of
// it. A thread of each rank answers the others while the rank computes.
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

enum class Event : int64_t { pull, push, none };  // none: a worker without further steps

struct Request {
  Event kind = Event::pull;  // none: a push that is left out
  double lr = 0;
  std::vector<uint8_t> extents = {};  // a byte for each parameter of the rule: what of it is in the body
  Tensor body = {};                   // u8
};

// Where a worker stands.
struct Stand {
  int64_t step = 0;     // its steps that are over
  bool pulled = false;  // and it has pulled for another
};

class Link {
 public:
  // What a shard does with a worker's request. Returns the reply to a pull: u8.
  using Serve = std::function<Tensor(int worker, const Request& request)>;

  // Collective. UserError: ranks that have no further ends and share no memory.
  explicit Link(Communicator& comm);
  ~Link();
  Link(const Link&) = delete;

  // Returns the rule's number. The same rules in the same order on every rank, before start().
  int add(const std::string& group, int parameters, Serve serve);
  // `workers`: by rank, the same everywhere. `replay`: the order to repeat (2 rank, +1 for a push); empty: as workers
  // ask. `steps`: of each worker.
  void start(const std::vector<Stand>& workers, const std::vector<int32_t>& replay, int64_t steps);

  // Of the worker; each also throws what ended the thread.
  // Waits for this worker's turn to do `event`. False: all are to meet first, since all have done `meeting` steps or
  // one wants to `stop`; then this rank's shard has done all that came before. True: a request for each rule and shard
  // has to follow.
  bool ask(Event event, int64_t meeting, bool stop);
  void send(int rule, int shard, Request request);
  Tensor receive(int rule, int shard, int64_t bytes);  // the reply to a pull
  void leave_out();                                    // the push whose turn it is
  // In a meeting, on rank 0: the order since the last call.
  std::vector<int32_t> take_order();
  // Enters the ledger for all bytes since the last call: of a rule its "pull" and "push"; turns and what goes in front
  // of requests as "turn" of "control". The seconds are those that the worker has waited; the thread's are hidden.
  void count(Communicator& comm);

 private:
  struct Traffic {
    int64_t sent = 0, received = 0;
    double seconds = 0;
  };
  // One end, with what it has moved by group and purpose.
  struct End {
    std::unique_ptr<Communicator> comm;
    std::map<std::pair<std::string, std::string>, Traffic> traffic;
  };
  struct Rule {
    std::string group;
    Serve serve;
    int64_t next = 0;                                    // of the numbers
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
  Traffic& traffic(End& end, const Rule* rule, Event kind);
  void take_seconds(End& end, Traffic& traffic);
  // Of the worker; `traffic` gets the seconds.
  void wait(std::unique_lock<std::mutex>& lock, Traffic& traffic, const std::function<bool()>& condition);
  size_t index(int rank) const { return static_cast<size_t>(rank); }

  Communicator& comm_;
  End own_, beside_;    // the worker's; the thread's, under mutex_
  int parameters_ = 0;  // of the rule with most
  int64_t turn_ = -1;   // the worker's, when it has one

  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::vector<Rule> rules_;
  std::deque<int64_t> turns_;  // for this rank's worker
  std::exception_ptr error_;
  // Of rank 0.
  std::vector<int64_t> done_;  // steps, by worker
  std::deque<std::pair<int, Ask>> asking_;
  std::deque<int32_t> replay_;
  bool replays_ = false, stop_ = false;
  int64_t given_ = 0;  // numbers so far
  std::vector<int32_t> order_;

  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace lmx::server

// The interface between a group of processes and its library of messages, MPI or Gloo. All classes of a job are made by
// one Transport; everything else of the group (collectives, liveness check, the end of the job) is the same for both.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "diagnosis.h"
#include "lmx/comm.h"

namespace lmx::processes {

class Watchdog;

// A long message is sent in pieces of this many bytes: each completed piece shows the watchdog that a slow link still
// makes progress. (MPI also counts in int.)
inline constexpr int64_t kLongest = int64_t{1} << 24;

// Bytes of the longest message that a round posts without waiting.
inline constexpr int64_t kLongestUnwaited = int64_t{1} << 16;

// The messages of one operation, which complete together. Keeps the tensors alive that they refer to.
class Messages {
 public:
  virtual ~Messages();
  void send(const Tensor& t, int to) {
    if (t.bytes() > 0) post(t, to, false);
  }
  void receive(const Tensor& t, int from) {
    if (t.bytes() > 0) post(t, from, true);
  }
  // Also posts a message for an empty tensor, because the receiver waits for one.
  virtual void post(const Tensor& t, int other, bool in) = 0;
  // One round of a collective: every rank sends to one rank and receives from one. A long message is completed within
  // its round, so it has both links to itself: if several ranks sent to one rank at a time, a switch would drop
  // packets. A short message is posted without waiting.
  void round(const Tensor& out, int to, const Tensor& in, int from);
  // Returns when all messages are complete. Throws EndProcess if another rank has failed.
  virtual void wait() = 0;

 protected:
  // Operations that were posted so far; complete(posted()) completes those that are posted after this call.
  virtual size_t posted() const = 0;
  virtual void complete(size_t begin) = 0;
};

// Connections of this rank to all others for collectives. Used by one thread at a time.
class Link {
 public:
  virtual ~Link();
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // `tag` separates the messages of different operations.
  virtual std::unique_ptr<Messages> messages(int tag) = 0;
  // sum = the sum of the ranks' flat `t` (f32 or f64, at most kLongest bytes), added by the library in its own order.
  // Blocks inside the library: if a rank is lost, the watchdog ends the process.
  virtual void native_sum(const Tensor& t, Tensor& sum) = 0;
  // See Communicator::connections(). Collective.
  virtual std::vector<std::unique_ptr<Connection>> connections(int n) = 0;
};

// Heartbeats to and from all other ranks. Used by the watchdog alone. No call waits for another rank.
class BeatLink {
 public:
  virtual ~BeatLink();
  // Returns false if the last heartbeat to this rank is still being sent: at most one is pending for each rank, so that
  // none accumulate for a rank that does not read.
  virtual bool send(int to, const Beat& beat) = 0;
  // Takes a heartbeat that has arrived. Returns false if there is none.
  virtual bool receive(int from, Beat& beat) = 0;
  virtual bool all_sent() = 0;
  // True if the connection to this rank has broken, so that nothing more will arrive from it. A library that cannot
  // know that returns false.
  virtual bool is_lost(int) { return false; }
  // To be called after a barrier that follows the last heartbeat: completes or cancels everything that is pending.
  virtual void drain() = 0;
};

// One job of a library of messages. All calls but name() are collective and are made in the order of their declaration.
class Transport {
 public:
  virtual ~Transport();
  virtual std::string name() const = 0;  // in front of messages: "mpi"
  // Joins the job; called for the first run of a group only.
  virtual void start() = 0;
  // Called by another thread while start() waits: who has not come yet, as a sentence; "" if this rank does not know.
  virtual std::string absent() const { return ""; }
  // Writes the bytes of all ranks one after the other, in rank order, to `all`.
  virtual void gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;
  // Receives the host of each rank.
  virtual void note_hosts(const std::vector<std::string>& hosts);
  virtual std::unique_ptr<BeatLink> beats() = 0;
  virtual std::unique_ptr<Link> link(Watchdog& watchdog) = 0;
  // Leaves the job, if all ranks have ended without an error.
  virtual void leave() = 0;
};

}  // namespace lmx::processes

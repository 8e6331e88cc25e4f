// MPI messages that are posted, watched and completed together.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "lmx/tensor.h"
#include "watchdog.h"

namespace lmx_mpi {

using lmx::Tensor;

// A long message is sent in pieces of this many bytes: each completed piece shows the watchdog that a slow link still
// makes progress. (MPI also counts in int.)
inline constexpr int64_t kLongest = int64_t{1} << 24;

// Creates a separate link between all ranks. Collective.
MPI_Comm own_link();

// Throws RunError that names the call, the partner and MPI's text.
void check(int error, const std::string& call);

// If another rank has failed, ends this rank's wait. That rank reports its error first and determines the exit code.
void end_if_another_failed(const Watchdog& watchdog, MPI_Comm link);

// Polls without sleeping at first, for short messages; then sleeps an eighth of the time waited so far.
class Backoff {
 public:
  void pause();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// The messages of one operation. Keeps the tensors that they point into alive: MPI may write to them as long as it
// runs, also after an error.
class Exchange {
 public:
  // `watched`: progress is reported to the watchdog. The waits of a second thread are no sign of the rank's state.
  Exchange(MPI_Comm link, Watchdog& watchdog, int tag, bool watched = true)
      : link_(link), watchdog_(watchdog), tag_(tag), watched_(watched) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange();

  void send(const Tensor& t, int to) {
    if (t.bytes() > 0) post(t, to, false);
  }
  void receive(const Tensor& t, int from) {
    if (t.bytes() > 0) post(t, from, true);
  }
  // Also posts a message for an empty tensor, because the receiver waits for one. `at_once`: number of pieces that are
  // posted at a time. The others are posted as these complete, so until then no further message may be posted in the
  // same direction.
  void post(const Tensor& t, int other, bool in, int at_once = kAtOnce);
  // One round of a collective: every rank sends to one rank and receives from one. A long message is completed within
  // its round, so it has both links to itself: if several ranks sent to one rank at a time, a switch would drop
  // packets. A short message is posted without waiting.
  void round(const Tensor& out, int to, const Tensor& in, int from);
  bool test();  // whether all messages are complete
  void wait();

 private:
  // Only a few pieces are posted at a time; otherwise MPI would divide the link among all of them, and they would
  // complete together.
  static constexpr int kAtOnce = 2;
  struct Message {
    int other;
    bool in;
    std::byte* at;  // first byte that has not been posted
    int64_t left;
  };
  struct Part {
    size_t message;
    int bytes;
  };
  void complete(size_t begin);
  int look(size_t begin);
  void post_piece(size_t message);
  void check_length(const Part& part, const MPI_Status& status) const;

  MPI_Comm link_;
  Watchdog& watchdog_;
  int tag_;
  bool watched_;
  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;  // one for each element of requests_
  std::vector<Message> messages_;
  std::deque<Tensor> kept_;
  bool complete_ = false;
};

}  // namespace lmx_mpi

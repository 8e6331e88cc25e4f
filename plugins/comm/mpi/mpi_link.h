// MPI's messages for a group of processes.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "lmx/comm.h"
#include "lmx/tensor.h"
#include "processes/link.h"
#include "processes/watchdog.h"

namespace lmx_mpi {

// MPI messages that are posted, watched and completed together.

using lmx::Tensor;
using lmx::processes::kLongest;
using lmx::processes::Watchdog;

// Creates a separate link between all ranks. Collective.
MPI_Comm own_link();

// Throws RunError that names the call, the partner and MPI's text.
void check(int error, const std::string& call);

// Polls without sleeping at first, for short messages; then sleeps an eighth of the time waited so far.
class Backoff {
 public:
  void pause();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// The messages of one operation. MPI may write to their tensors as long as it runs, also after an error.
class Exchange final : public lmx::processes::Messages {
 public:
  // `watched`: progress is reported to the watchdog. The waits of a second thread are no sign of the rank's state.
  Exchange(MPI_Comm link, Watchdog& watchdog, int tag, bool watched = true)
      : link_(link), watchdog_(watchdog), tag_(tag), watched_(watched) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() override;

  void post(const Tensor& t, int other, bool in) override { post_pieces(t, other, in, kAtOnce); }
  // `at_once`: number of pieces that are posted at a time. The others are posted as these complete, so until then no
  // further message may be posted in the same direction.
  void post_pieces(const Tensor& t, int other, bool in, int at_once);
  bool test();  // whether all messages are complete
  void wait() override;

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
  size_t posted() const override { return requests_.size(); }
  void complete(size_t begin) override;
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

// Messages between two processes, beside the collectives.

class MpiConnection final : public lmx::Connection {
 public:
  // `watched`: the connection belongs to the rank's own thread, whose waits the watchdog judges.
  MpiConnection(MPI_Comm link, Watchdog& watchdog, bool watched);
  ~MpiConnection() override;
  void send(const Tensor& t, int to, int tag) override;
  void post(const Tensor& t, int to, int tag) override;
  void receive(Tensor& t, int from, int tag) override;
  int probe(int tag) override;

 private:
  void forget_sent();

  MPI_Comm link_;
  Watchdog& watchdog_;
  bool watched_;
  std::deque<std::unique_ptr<Exchange>> posted_;
};

// Heartbeats over a separate link. Collective.
std::unique_ptr<lmx::processes::BeatLink> make_beats();
// Collective.
std::unique_ptr<lmx::processes::Link> make_link(lmx::processes::Watchdog& watchdog);

}  // namespace lmx_mpi

#include "connection.h"

#include <ctime>
#include <limits>
#include <optional>

namespace lmx_mpi {

using lmx::processes::Move;
using lmx::processes::Waiting;

MpiConnection::MpiConnection(MPI_Comm link, Watchdog& watchdog, bool watched)
    : link_(link), watchdog_(watchdog), watched_(watched) {}

// Posted messages have been received by now, unless the job fails; then their memory is kept until the process ends.
MpiConnection::~MpiConnection() {
  try {
    for (int looks = 0; looks < 1000 && !posted_.empty(); ++looks) {
      forget_sent();
      const timespec time{0, 1000000};
      if (!posted_.empty()) nanosleep(&time, nullptr);
    }
  } catch (const std::exception&) {  // the rank is already ending because of another error
  }
}

void MpiConnection::forget_sent() {
  while (!posted_.empty() && posted_.front()->test()) posted_.pop_front();
}

void MpiConnection::send(const Tensor& t, int to, int tag) {
  std::optional<Waiting> waiting;
  if (watched_) waiting.emplace(watchdog_, Move::send);
  Exchange exchange(link_, watchdog_, tag, watched_);
  exchange.post(t, to, false);
  exchange.wait();
}

void MpiConnection::post(const Tensor& t, int to, int tag) {
  forget_sent();
  posted_.push_back(std::make_unique<Exchange>(link_, watchdog_, tag, watched_));
  // Posts all pieces, so that further messages may follow at once.
  posted_.back()->post_pieces(t, to, false, std::numeric_limits<int>::max());
}

void MpiConnection::receive(Tensor& t, int from, int tag) {
  std::optional<Waiting> waiting;
  if (watched_) waiting.emplace(watchdog_, Move::receive);
  Exchange exchange(link_, watchdog_, tag, watched_);
  exchange.post(t, from, true);
  exchange.wait();
}

int MpiConnection::probe(int tag) {
  watchdog_.end_if_another_failed();
  forget_sent();
  int there = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, tag, link_, &there, &status), "looking for a message");
  return there ? status.MPI_SOURCE : -1;
}

}  // namespace lmx_mpi

// Collectives, composed of messages from one rank to another. Except for native all-reduces, no call blocks inside MPI,
// so an error elsewhere can end the wait. A waiting thread sleeps: with fewer cores than threads, a spinning thread
// would take the core from the thread that it waits for.
#include "communicator.h"

#include "connection.h"
#include "exchange.h"
#include "lmx/error.h"

namespace lmx_mpi {
namespace {

using lmx::MemClass;
using lmx::Shape;
using lmx::str;

Shape with_rows(const Tensor& like, int64_t rows) {
  Shape shape = like.shape();
  shape[0] = rows;
  return shape;
}

// The rows of rank r. `begins`: the result of RankRows::begins().
Tensor part_of(const Tensor& all, const std::vector<int64_t>& begins, int r) {
  return all.slice(begins[static_cast<size_t>(r)], begins[static_cast<size_t>(r) + 1]);
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm link, bool native, Watchdog& watchdog, int threads)
    : Communicator(lmx::Allocator::cpu(), threads), link_(link), native_(native), watchdog_(watchdog) {
  MPI_Comm_rank(link_, &rank_);
  MPI_Comm_size(link_, &size_);
}

std::vector<std::unique_ptr<lmx::Connection>> MpiCommunicator::connections(int n) {
  const MPI_Comm link = own_link();
  std::vector<std::unique_ptr<lmx::Connection>> made;
  for (int i = 0; i < n; ++i) made.push_back(std::make_unique<MpiConnection>(link, watchdog_, i == 0));
  return made;
}

Tensor MpiCommunicator::do_all_gather(const Tensor& own, const lmx::RankRows& rows) {
  const Waiting waiting(watchdog_, Move::all_gather);
  const std::vector<int64_t> begins = rows.begins();
  Tensor all = Tensor::empty(allocator(), with_rows(own, begins.back()), own.dtype(), MemClass::communication);
  part_of(all, begins, rank_).copy_from(own);
  Exchange exchange(link_, watchdog_, static_cast<int>(Move::all_gather));
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ - step + size_) % size_;
    exchange.round(own, (rank_ + step) % size_, part_of(all, begins, from), from);
  }
  exchange.wait();
  return all;
}

std::vector<Tensor> MpiCommunicator::do_all_to_all(const Tensor& own, const lmx::RankRows& to,
                                                   const lmx::RankRows& from) {
  const Waiting waiting(watchdog_, Move::all_to_all);
  const std::vector<int64_t> begins = to.begins();
  std::vector<Tensor> got(static_cast<size_t>(size_));
  got[static_cast<size_t>(rank_)] = part_of(own, begins, rank_);
  Exchange exchange(link_, watchdog_, static_cast<int>(Move::all_to_all));
  for (int step = 1; step < size_; ++step) {
    const int next = (rank_ + step) % size_, before = (rank_ - step + size_) % size_;
    Tensor& in = got[static_cast<size_t>(before)];
    in = Tensor::empty(allocator(), with_rows(own, from[before]), own.dtype(), MemClass::communication);
    exchange.round(part_of(own, begins, next), next, in, before);
  }
  exchange.wait();
  return got;
}

Tensor MpiCommunicator::do_broadcast(const Tensor& t, int root) {
  const Waiting waiting(watchdog_, Move::broadcast);
  Exchange exchange(link_, watchdog_, static_cast<int>(Move::broadcast));
  if (rank_ == root) {
    for (int step = 1; step < size_; ++step) exchange.send(t, (rank_ + step) % size_);
    exchange.wait();
    return t;
  }
  Tensor got = t.like(MemClass::communication);
  exchange.receive(got, root);
  exchange.wait();
  return got;
}

// Dissemination: at the end of round k, the 2^(k+1) - 1 ranks before each rank have arrived.
void MpiCommunicator::barrier_as(Move move) {
  const Waiting waiting(watchdog_, move);
  const Tensor nothing = Tensor::empty(allocator(), {0}, lmx::DType::u8, MemClass::communication);
  for (int distance = 1; distance < size_; distance *= 2) {
    Exchange exchange(link_, watchdog_, static_cast<int>(move));
    exchange.post(nothing, (rank_ - distance + size_) % size_, true);
    exchange.post(nothing, (rank_ + distance) % size_, false);
    exchange.wait();
  }
}

// MPI adds in its own order. This call cannot be interrupted: if a rank is lost, the watchdog ends the process.
Tensor MpiCommunicator::do_all_reduce(const Tensor& t) {
  if (!native_) return {};
  const Waiting waiting(watchdog_, Move::all_reduce);
  Tensor sum = t.like(MemClass::communication);
  const MPI_Datatype type = t.dtype() == lmx::DType::f64 ? MPI_DOUBLE : MPI_FLOAT;
  const auto width = static_cast<int64_t>(lmx::size_of(t.dtype()));
  auto* to = static_cast<std::byte*>(sum.raw());
  const auto* from = static_cast<const std::byte*>(t.raw());
  for (int64_t begin = 0; begin < t.numel(); begin += kLongest / width) {
    const auto count = static_cast<int>(std::min(t.numel() - begin, kLongest / width));
    check(MPI_Allreduce(from + begin * width, to + begin * width, count, type, MPI_SUM, link_), "MPI_Allreduce");
    watchdog_.progress();
  }
  return sum;
}

}  // namespace lmx_mpi

// Collectives, composed of messages from one rank to another. Except for native all-reduces, an error elsewhere can end
// every wait. A waiting thread sleeps: with fewer cores than threads, a spinning thread would take the core from the
// thread that it waits for.
#include "communicator.h"

#include <algorithm>
#include <numeric>

#include "link.h"
#include "lmx/error.h"

namespace lmx::processes {
namespace {

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

ProcessCommunicator::ProcessCommunicator(std::unique_ptr<Link> link, bool native, Watchdog& watchdog, int threads)
    : Communicator(Allocator::cpu(), threads),
      link_(std::move(link)),
      native_(native),
      watchdog_(watchdog),
      rank_(link_->rank()),
      size_(link_->size()) {}

Tensor ProcessCommunicator::do_all_gather(const Tensor& own, const RankRows& rows) {
  std::vector<int> everyone(static_cast<size_t>(size_));
  std::iota(everyone.begin(), everyone.end(), 0);
  return gather_as(Move::all_gather, everyone, own, rows);
}

Tensor ProcessCommunicator::do_gather_among(std::span<const int> members, const Tensor& own, const RankRows& rows) {
  return gather_as(Move::gather_among, members, own, rows);
}

Tensor ProcessCommunicator::gather_as(Move move, std::span<const int> members, const Tensor& own,
                                      const RankRows& rows) {
  const Waiting waiting(watchdog_, move);
  const auto n = static_cast<int>(members.size());
  const auto me = static_cast<int>(std::ranges::find(members, rank_) - members.begin());
  const auto rank_at = [&](int place) { return members[static_cast<size_t>(place)]; };
  const std::vector<int64_t> begins = rows.begins();
  Tensor all = Tensor::empty(allocator(), with_rows(own, begins.back()), own.dtype(), MemClass::communication);
  part_of(all, begins, me).copy_from(own);
  const std::unique_ptr<Messages> messages = link_->messages(static_cast<int>(move));
  for (int step = 1; step < n; ++step) {
    const int to = (me + step) % n, from = (me - step + n) % n;
    messages->round(own, rank_at(to), part_of(all, begins, from), rank_at(from));
  }
  messages->wait();
  return all;
}

std::vector<Tensor> ProcessCommunicator::do_all_to_all(const Tensor& own, const RankRows& to, const RankRows& from) {
  const Waiting waiting(watchdog_, Move::all_to_all);
  const std::vector<int64_t> begins = to.begins();
  std::vector<Tensor> got(static_cast<size_t>(size_));
  got[static_cast<size_t>(rank_)] = part_of(own, begins, rank_);
  const std::unique_ptr<Messages> messages = link_->messages(static_cast<int>(Move::all_to_all));
  for (int step = 1; step < size_; ++step) {
    const int next = (rank_ + step) % size_, before = (rank_ - step + size_) % size_;
    Tensor& in = got[static_cast<size_t>(before)];
    in = Tensor::empty(allocator(), with_rows(own, from[before]), own.dtype(), MemClass::communication);
    messages->round(part_of(own, begins, next), next, in, before);
  }
  messages->wait();
  return got;
}

Tensor ProcessCommunicator::do_broadcast(const Tensor& t, int root) {
  const Waiting waiting(watchdog_, Move::broadcast);
  const std::unique_ptr<Messages> messages = link_->messages(static_cast<int>(Move::broadcast));
  if (rank_ == root) {
    for (int step = 1; step < size_; ++step) messages->send(t, (rank_ + step) % size_);
    messages->wait();
    return t;
  }
  Tensor got = t.like(MemClass::communication);
  messages->receive(got, root);
  messages->wait();
  return got;
}

// Dissemination: at the end of round k, the 2^(k+1) - 1 ranks before each rank have arrived.
void ProcessCommunicator::barrier_as(Move move) {
  const Waiting waiting(watchdog_, move);
  const Tensor nothing = Tensor::empty(allocator(), {0}, DType::u8, MemClass::communication);
  for (int distance = 1; distance < size_; distance *= 2) {
    const std::unique_ptr<Messages> messages = link_->messages(static_cast<int>(move));
    messages->post(nothing, (rank_ - distance + size_) % size_, true);
    messages->post(nothing, (rank_ + distance) % size_, false);
    messages->wait();
  }
}

Tensor ProcessCommunicator::do_all_reduce(const Tensor& t) {
  if (!native_) return {};
  const Waiting waiting(watchdog_, Move::all_reduce);
  Tensor sum = t.like(MemClass::communication);
  const int64_t piece = kLongest / static_cast<int64_t>(size_of(t.dtype()));
  for (int64_t begin = 0; begin < t.numel(); begin += piece) {
    const int64_t end = std::min(begin + piece, t.numel());
    Tensor part = sum.slice(begin, end);
    link_->native_sum(t.slice(begin, end), part);
    watchdog_.progress();
  }
  return sum;
}

Messages::~Messages() = default;
Link::~Link() = default;
BeatLink::~BeatLink() = default;
Transport::~Transport() = default;
void Transport::note_hosts(const std::vector<std::string>&) {}

void Messages::round(const Tensor& out, int to, const Tensor& in, int from) {
  const size_t begin = posted();
  receive(in, from);
  send(out, to);
  if (std::max(out.bytes(), in.bytes()) > kLongestUnwaited) complete(begin);
}

}  // namespace lmx::processes

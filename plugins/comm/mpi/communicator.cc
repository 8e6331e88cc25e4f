// Collectives, composed of messages from one rank to another. Except for native all-reduces, no call blocks inside MPI,
// so an error elsewhere can end the wait. A waiting thread sleeps: with fewer cores than threads, a spinning thread
// would take the core from the thread that it waits for.
#include "communicator.h"

#include <sched.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <optional>

#include "lmx/error.h"
#include "lmx/launch.h"

namespace lmx_mpi {
namespace {

using lmx::MemClass;
using lmx::Shape;
using lmx::str;
using Clock = std::chrono::steady_clock;

// A long message is sent in pieces: each completed piece shows the watchdog that a slow link still makes progress. Only
// a few pieces are posted at a time; otherwise MPI would divide the link among all of them, and they would complete
// together. (MPI also counts in int.)
constexpr int64_t kLongest = int64_t{1} << 24;
constexpr int kAtOnce = 2;
constexpr int64_t kShort = int64_t{1} << 16;

// Polls without sleeping at first, for short messages; then sleeps an eighth of the time waited so far.
class Backoff {
 public:
  void pause() {
    const auto waited = Clock::now() - start_;
    if (waited < std::chrono::microseconds(100)) {
      sched_yield();
      return;
    }
    const auto nap = std::min<Clock::duration>(waited / 8, std::chrono::microseconds(200));
    const timespec time{0, std::chrono::duration_cast<std::chrono::nanoseconds>(nap).count()};
    nanosleep(&time, nullptr);
  }

 private:
  Clock::time_point start_ = Clock::now();
};

Shape with_rows(const Tensor& like, int64_t rows) {
  Shape shape = like.shape();
  shape[0] = rows;
  return shape;
}

// The rows of rank r. `begins`: the result of RankRows::begins().
Tensor part_of(const Tensor& all, const std::vector<int64_t>& begins, int r) {
  return all.slice(begins[static_cast<size_t>(r)], begins[static_cast<size_t>(r) + 1]);
}

// If another rank has failed, ends this rank's wait. That rank reports its error first and determines the exit code.
void end_if_another_failed(const Watchdog& watchdog, int size) {
  const int rank = watchdog.failed_rank();
  if (rank < 0) return;
  const timespec time{4, 0};
  nanosleep(&time, nullptr);
  throw lmx::EndProcess(1, str("[mpi] rank ", rank, " of ", size, " has failed"), true);
}

}  // namespace

void check(int error, const std::string& call) {
  if (error == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, text, &length);
  throw lmx::RunError(str("[mpi] ", call, " failed: ", text));
}

MPI_Comm own_link() {
  MPI_Comm link = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &link), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(link, MPI_ERRORS_RETURN);
  return link;
}

// The messages of one operation. Keeps the tensors that they point into alive: MPI may write to them as long as it
// runs, also after an error.
class MpiCommunicator::Exchange {
 public:
  Exchange(MpiCommunicator& comm, MPI_Comm link, int tag) : comm_(comm), link_(link), tag_(tag) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() {
    // The process is about to end, because of an error of this rank or of another.
    if (!complete_ && !requests_.empty()) new Leftovers{std::move(requests_), std::move(kept_)};
  }

  void send(const Tensor& t, int to) {
    if (t.bytes() > 0) post(t, to, false);
  }
  void receive(const Tensor& t, int from) {
    if (t.bytes() > 0) post(t, from, true);
  }
  // Also posts a message for an empty tensor, because the receiver waits for one. `at_once`: number of pieces that are
  // posted at a time. The others are posted as these complete, so until then no further message may be posted in the
  // same direction.
  void post(const Tensor& t, int other, bool in, int at_once = kAtOnce) {
    kept_.push_back(t);
    messages_.push_back({other, in, static_cast<std::byte*>(kept_.back().raw()), t.bytes()});
    do {
      post_piece(messages_.size() - 1);
    } while (messages_.back().left > 0 && --at_once > 0);
  }

  // One round of a collective: every rank sends to one rank and receives from one. A long message is completed within
  // its round, so it has both links to itself: if several ranks sent to one rank at a time, a switch would drop
  // packets. A short message is posted without waiting.
  void round(const Tensor& out, int to, const Tensor& in, int from) {
    const size_t begin = requests_.size();
    receive(in, from);
    send(out, to);
    if (std::max(out.bytes(), in.bytes()) > kShort) complete(begin);
  }

  // Whether all messages are complete.
  bool test() {
    int count = 0;
    while ((count = look(0)) > 0) {
    }
    complete_ = count < 0;
    return complete_;
  }

  void wait() {
    complete(0);
    complete_ = true;
  }

 private:
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
  struct Leftovers {
    std::vector<MPI_Request> requests;
    std::deque<Tensor> tensors;
  };

  // Returns when the messages from index `begin` on are complete.
  void complete(size_t begin) {
    Backoff backoff;
    for (int count = 0; (count = look(begin)) >= 0;) {
      if (count > 0) {
        if (!comm_.links_.beside) comm_.watchdog_.progress();
        continue;
      }
      end_if_another_failed(comm_.watchdog_, comm_.size_);
      backoff.pause();
    }
  }

  // The number of pieces from index `begin` on that have completed since the last call; -1: none is left.
  int look(size_t begin) {
    const size_t n = requests_.size() - begin;
    std::vector<int> which(n);
    std::vector<MPI_Status> statuses(n);
    int count = 0;
    const int error =
        MPI_Testsome(static_cast<int>(n), requests_.data() + begin, &count, which.data(), statuses.data());
    if (count == MPI_UNDEFINED) return -1;
    const auto part = [&](size_t i) -> const Part& { return parts_[begin + static_cast<size_t>(which[i])]; };
    const size_t through = static_cast<size_t>(std::max(count, 0));
    for (size_t i = 0; error == MPI_ERR_IN_STATUS && i < through; ++i)
      check(statuses[i].MPI_ERROR, call(messages_[part(i).message]));
    check(error, "waiting for messages");
    for (size_t i = 0; i < through; ++i) {
      const Part done = part(i);
      check_length(done, statuses[i]);
      if (messages_[done.message].left > 0) post_piece(done.message);
    }
    return count;
  }

  void post_piece(size_t message) {
    Message& m = messages_[message];
    const auto bytes = static_cast<int>(std::min(m.left, kLongest));
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    check(m.in ? MPI_Irecv(m.at, bytes, MPI_BYTE, m.other, tag_, link_, &request)
               : MPI_Isend(m.at, bytes, MPI_BYTE, m.other, tag_, link_, &request),
          call(m));
    parts_.push_back({message, bytes});
    m.at += bytes;
    m.left -= bytes;
  }

  static std::string call(const Message& m) { return str(m.in ? "receiving from rank " : "sending to rank ", m.other); }

  void check_length(const Part& part, const MPI_Status& status) const {
    const Message& m = messages_[part.message];
    int got = 0;
    if (!m.in || MPI_Get_count(&status, MPI_BYTE, &got) != MPI_SUCCESS || got == part.bytes) return;
    throw lmx::InternalError(
        str("[mpi] rank ", m.other, " sent ", got, " bytes where rank ", comm_.rank_, " expected ", part.bytes));
  }

  MpiCommunicator& comm_;
  MPI_Comm link_;
  int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;  // one for each element of requests_
  std::vector<Message> messages_;
  std::deque<Tensor> kept_;
  bool complete_ = false;
};

MpiCommunicator::MpiCommunicator(const Links& links, Watchdog& watchdog, int threads)
    : Communicator(lmx::Allocator::cpu(), threads), links_(links), watchdog_(watchdog) {
  MPI_Comm_rank(links_.data, &rank_);
  MPI_Comm_size(links_.data, &size_);
}

// Posted messages have been received by now, unless the job fails; then their memory is kept until the process ends.
MpiCommunicator::~MpiCommunicator() {
  try {
    for (int looks = 0; looks < 1000 && !posted_.empty(); ++looks) {
      if (posted_.front()->test()) {
        posted_.pop_front();
      } else {
        const timespec time{0, 1000000};
        nanosleep(&time, nullptr);
      }
    }
  } catch (const std::exception&) {  // the rank is already ending because of another error
  }
}

std::vector<std::unique_ptr<lmx::Communicator>> MpiCommunicator::ends(int n) {
  const MPI_Comm link = own_link();
  std::vector<std::unique_ptr<lmx::Communicator>> made;
  for (int i = 0; i < n; ++i)
    made.push_back(std::make_unique<MpiCommunicator>(Links{link, link, false, i > 0}, watchdog_, threads()));
  return made;
}

Tensor MpiCommunicator::do_all_gather(const Tensor& own, const lmx::RankRows& rows) {
  const Waiting waiting(watchdog_, Move::all_gather);
  const std::vector<int64_t> begins = rows.begins();
  Tensor all = Tensor::empty(allocator(), with_rows(own, begins.back()), own.dtype(), MemClass::communication);
  part_of(all, begins, rank_).copy_from(own);
  Exchange exchange(*this, links_.data, static_cast<int>(Move::all_gather));
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
  Exchange exchange(*this, links_.data, static_cast<int>(Move::all_to_all));
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
  Exchange exchange(*this, links_.data, static_cast<int>(Move::broadcast));
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

// Dissemination: after round k each rank knows that the 2^(k+1) - 1 ranks before it have arrived.
void MpiCommunicator::barrier_as(Move move) {
  const Waiting waiting(watchdog_, move);
  const Tensor nothing = Tensor::empty(allocator(), {0}, lmx::DType::u8, MemClass::communication);
  for (int distance = 1; distance < size_; distance *= 2) {
    Exchange exchange(*this, links_.data, static_cast<int>(move));
    exchange.post(nothing, (rank_ - distance + size_) % size_, true);
    exchange.post(nothing, (rank_ + distance) % size_, false);
    exchange.wait();
  }
}

void MpiCommunicator::do_send(const Tensor& t, int to, int tag) {
  if (to == rank_) {
    to_self_[tag].push_back(t.clone());
    return;
  }
  std::optional<Waiting> waiting;
  if (!links_.beside) waiting.emplace(watchdog_, Move::send);
  Exchange exchange(*this, links_.direct, tag);
  exchange.post(t, to, false);
  exchange.wait();
}

bool MpiCommunicator::take_own(Tensor& t, int tag) {
  std::deque<Tensor>& queue = to_self_[tag];
  if (queue.empty()) return false;
  t.copy_from(queue.front());
  queue.pop_front();
  return true;
}

int MpiCommunicator::do_receive(Tensor& t, int from, int tag) {
  if ((from < 0 || from == rank_) && take_own(t, tag)) return rank_;
  LMX_CHECK(from != rank_, "rank ", rank_, " receives from itself (tag ", tag, "), and has sent nothing");
  std::optional<Waiting> waiting;
  if (!links_.beside) waiting.emplace(watchdog_, Move::receive);
  if (from < 0) from = first_sender(tag);
  Exchange exchange(*this, links_.direct, tag);
  exchange.post(t, from, true);
  exchange.wait();
  return from;
}

void MpiCommunicator::do_post(const Tensor& t, int to, int tag) {
  LMX_CHECK(to != rank_, "rank ", rank_, " posts to itself (tag ", tag, ")");
  while (!posted_.empty() && posted_.front()->test()) posted_.pop_front();
  posted_.push_back(std::make_unique<Exchange>(*this, links_.direct, tag));
  // Posts all pieces, so that further messages may follow at once.
  posted_.back()->post(t, to, false, std::numeric_limits<int>::max());
}

int MpiCommunicator::do_probe(int tag) {
  end_if_another_failed(watchdog_, size_);
  while (!posted_.empty() && posted_.front()->test()) posted_.pop_front();
  int there = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, tag, links_.direct, &there, &status), "looking for a message");
  return there ? status.MPI_SOURCE : -1;
}

// The rank of the first message that has arrived. The message itself is received later; only this thread uses the
// communicator, so no other receive can take it.
int MpiCommunicator::first_sender(int tag) {
  Backoff backoff;
  for (int there = 0;;) {
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, tag, links_.direct, &there, &status), "receiving from any rank");
    if (there) return status.MPI_SOURCE;
    end_if_another_failed(watchdog_, size_);
    backoff.pause();
  }
}

// MPI adds in its own order. This call cannot be interrupted: if a rank is lost, the watchdog ends the process.
Tensor MpiCommunicator::do_all_reduce(const Tensor& t) {
  if (!links_.native) return {};
  const Waiting waiting(watchdog_, Move::all_reduce);
  Tensor sum = t.like(MemClass::communication);
  const MPI_Datatype type = t.dtype() == lmx::DType::f64 ? MPI_DOUBLE : MPI_FLOAT;
  const auto width = static_cast<int64_t>(lmx::size_of(t.dtype()));
  auto* to = static_cast<std::byte*>(sum.raw());
  const auto* from = static_cast<const std::byte*>(t.raw());
  for (int64_t begin = 0; begin < t.numel(); begin += kLongest / width) {
    const auto count = static_cast<int>(std::min(t.numel() - begin, kLongest / width));
    check(MPI_Allreduce(from + begin * width, to + begin * width, count, type, MPI_SUM, links_.data), "MPI_Allreduce");
    watchdog_.progress();
  }
  return sum;
}

}  // namespace lmx_mpi

#include "mpi_link.h"

#include <sched.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <optional>
#include <vector>

#include "lmx/error.h"

namespace lmx_mpi {

using lmx::str;

namespace {

// Kept until the process ends, because MPI may still write to these tensors.
struct Leftovers {
  std::vector<MPI_Request> requests;
  std::deque<Tensor> tensors;
};

std::string call(int other, bool in) {
  return str(in ? "receiving from rank " : "sending to rank ", other);
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

void Backoff::pause() {
  const auto waited = Clock::now() - start_;
  if (waited < std::chrono::microseconds(100)) {
    sched_yield();
    return;
  }
  const auto nap = std::min<Clock::duration>(waited / 8, std::chrono::microseconds(200));
  const timespec time{0, std::chrono::duration_cast<std::chrono::nanoseconds>(nap).count()};
  nanosleep(&time, nullptr);
}

Exchange::~Exchange() {
  // The process is about to end, because of an error of this rank or of another.
  if (!complete_ && !requests_.empty()) new Leftovers{std::move(requests_), std::move(kept_)};
}

void Exchange::post_pieces(const Tensor& t, int other, bool in, int at_once) {
  kept_.push_back(t);
  messages_.push_back({other, in, static_cast<std::byte*>(kept_.back().raw()), t.bytes()});
  do {
    post_piece(messages_.size() - 1);
  } while (messages_.back().left > 0 && --at_once > 0);
}

bool Exchange::test() {
  int count = 0;
  while ((count = look(0)) > 0) {
  }
  complete_ = count < 0;
  return complete_;
}

void Exchange::wait() {
  complete(0);
  complete_ = true;
}

// Returns when the messages from index `begin` on are complete.
void Exchange::complete(size_t begin) {
  Backoff backoff;
  for (int count = 0; (count = look(begin)) >= 0;) {
    if (count > 0) {
      if (watched_) watchdog_.progress();
      continue;
    }
    watchdog_.end_if_another_failed();
    backoff.pause();
  }
}

// The number of pieces from index `begin` on that have completed since the last call; -1: none is left.
int Exchange::look(size_t begin) {
  const size_t n = requests_.size() - begin;
  std::vector<int> which(n);
  std::vector<MPI_Status> statuses(n);
  int count = 0;
  const int error = MPI_Testsome(static_cast<int>(n), requests_.data() + begin, &count, which.data(), statuses.data());
  if (count == MPI_UNDEFINED) return -1;
  const auto part = [&](size_t i) -> const Part& { return parts_[begin + static_cast<size_t>(which[i])]; };
  const size_t through = static_cast<size_t>(std::max(count, 0));
  for (size_t i = 0; error == MPI_ERR_IN_STATUS && i < through; ++i)
    check(statuses[i].MPI_ERROR, call(messages_[part(i).message].other, messages_[part(i).message].in));
  check(error, "waiting for messages");
  for (size_t i = 0; i < through; ++i) {
    const Part done = part(i);
    check_length(done, statuses[i]);
    if (messages_[done.message].left > 0) post_piece(done.message);
  }
  return count;
}

void Exchange::post_piece(size_t message) {
  Message& m = messages_[message];
  const auto bytes = static_cast<int>(std::min(m.left, kLongest));
  MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
  check(m.in ? MPI_Irecv(m.at, bytes, MPI_BYTE, m.other, tag_, link_, &request)
             : MPI_Isend(m.at, bytes, MPI_BYTE, m.other, tag_, link_, &request),
        call(m.other, m.in));
  parts_.push_back({message, bytes});
  m.at += bytes;
  m.left -= bytes;
}

void Exchange::check_length(const Part& part, const MPI_Status& status) const {
  const Message& m = messages_[part.message];
  int got = 0;
  if (!m.in || MPI_Get_count(&status, MPI_BYTE, &got) != MPI_SUCCESS || got == part.bytes) return;
  int rank = 0;
  MPI_Comm_rank(link_, &rank);
  throw lmx::InternalError(
      str("[mpi] rank ", m.other, " sent ", got, " bytes where rank ", rank, " expected ", part.bytes));
}

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

namespace {

using lmx::processes::Beat;
using lmx::processes::BeatLink;
using lmx::processes::Link;
using lmx::processes::Messages;

class MpiBeats final : public BeatLink {
 public:
  explicit MpiBeats(MPI_Comm link) : link_(link) {
    int rank = 0, size = 0;
    MPI_Comm_rank(link_, &rank);
    MPI_Comm_size(link_, &size);
    lines_.resize(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      line(r) = std::make_unique<Line>();
      expect(r);
    }
  }

  // After a failure, pending messages still refer to the lines, which are leaked because the process is about to end.
  ~MpiBeats() override {
    const bool under_way = std::any_of(lines_.begin(), lines_.end(), [](const auto& l) {
      return l && (l->sending != MPI_REQUEST_NULL || l->receiving != MPI_REQUEST_NULL);
    });
    if (under_way)
      for (auto& l : lines_) static_cast<void>(l.release());
  }

  bool send(int to, const Beat& beat) override {
    Line& l = *line(to);
    if (!is_sent(l)) return false;
    l.out = beat;
    MPI_Isend(&l.out, sizeof(Beat), MPI_BYTE, to, 0, link_, &l.sending);
    return true;
  }

  bool receive(int from, Beat& beat) override {
    Line& l = *line(from);
    int done = 0;
    if (l.receiving == MPI_REQUEST_NULL || MPI_Test(&l.receiving, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
      return false;
    beat = l.in;
    expect(from);
    return true;
  }

  bool all_sent() override {
    return std::all_of(lines_.begin(), lines_.end(), [](const auto& l) { return !l || is_sent(*l); });
  }

  void drain() override {
    for (int r = 0; r < static_cast<int>(lines_.size()); ++r) {
      const auto& l = line(r);
      if (!l) continue;
      Beat last;
      while (receive(r, last)) {
      }
      MPI_Wait(&l->sending, MPI_STATUS_IGNORE);
      if (l->receiving == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&l->receiving);
      MPI_Wait(&l->receiving, MPI_STATUS_IGNORE);
    }
  }

 private:
  struct Line {
    Beat out, in;
    MPI_Request sending = MPI_REQUEST_NULL, receiving = MPI_REQUEST_NULL;
  };
  std::unique_ptr<Line>& line(int r) { return lines_[static_cast<size_t>(r)]; }
  static bool is_sent(Line& l) {
    int done = 1;
    if (l.sending != MPI_REQUEST_NULL) MPI_Test(&l.sending, &done, MPI_STATUS_IGNORE);
    return done;
  }
  void expect(int from) {
    Line& l = *line(from);
    MPI_Irecv(&l.in, sizeof(Beat), MPI_BYTE, from, 0, link_, &l.receiving);
  }

  MPI_Comm link_;
  std::vector<std::unique_ptr<Line>> lines_;  // null for this rank
};

class MpiLink final : public Link {
 public:
  MpiLink(MPI_Comm link, Watchdog& watchdog) : link_(link), watchdog_(watchdog) {
    MPI_Comm_rank(link_, &rank_);
    MPI_Comm_size(link_, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Messages> messages(int tag) override { return std::make_unique<Exchange>(link_, watchdog_, tag); }

  void native_sum(const Tensor& t, Tensor& sum) override {
    const MPI_Datatype type = t.dtype() == lmx::DType::f64 ? MPI_DOUBLE : MPI_FLOAT;
    check(MPI_Allreduce(t.raw(), sum.raw(), static_cast<int>(t.numel()), type, MPI_SUM, link_), "MPI_Allreduce");
  }

  std::vector<std::unique_ptr<lmx::Connection>> connections(int n) override {
    const MPI_Comm link = own_link();
    std::vector<std::unique_ptr<lmx::Connection>> made;
    for (int i = 0; i < n; ++i) made.push_back(std::make_unique<MpiConnection>(link, watchdog_, i == 0));
    return made;
  }

 private:
  MPI_Comm link_;
  Watchdog& watchdog_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::unique_ptr<BeatLink> make_beats() {
  return std::make_unique<MpiBeats>(own_link());
}

std::unique_ptr<Link> make_link(Watchdog& watchdog) {
  return std::make_unique<MpiLink>(own_link(), watchdog);
}

}  // namespace lmx_mpi

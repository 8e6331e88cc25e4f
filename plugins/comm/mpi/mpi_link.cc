#include "mpi_link.h"

#include <algorithm>
#include <vector>

#include "exchange.h"

namespace lmx_mpi {
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

// One process's end of the group.
#pragma once

#include <mpi.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "lmx/comm.h"
#include "watchdog.h"

namespace lmx_mpi {

using lmx::Tensor;

// Creates a separate link between all ranks. Collective.
MPI_Comm own_link();

// Throws RunError that names the call, the partner and MPI's text.
void check(int error, const std::string& call);

class MpiCommunicator : public lmx::Communicator {
 public:
  // `data` is used by collectives, `direct` by point-to-point messages. The caller owns both.
  struct Links {
    MPI_Comm data, direct;
    bool native;  // MPI's own all-reduce
    // True for a communicator of a second thread. The watchdog ignores its waits, because they say nothing about the
    // rank.
    bool beside = false;
  };
  MpiCommunicator(const Links& links, Watchdog& watchdog, int threads);
  ~MpiCommunicator() override;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // Operations progress in the calling thread, which sleeps between two polls.
  bool overlaps() const override { return true; }
  // The barrier at the end of a run; a rank may reach it late.
  void finish() { barrier_as(Move::finish); }
  std::vector<std::unique_ptr<lmx::Communicator>> ends(int n) override;
  std::shared_ptr<void> waiting() override { return std::make_shared<Waiting>(watchdog_, Move::turn); }

 protected:
  Tensor do_all_gather(const Tensor& own, const lmx::RankRows& rows) override;
  std::vector<Tensor> do_all_to_all(const Tensor& own, const lmx::RankRows& to, const lmx::RankRows& from) override;
  Tensor do_broadcast(const Tensor& t, int root) override;
  void do_barrier() override { barrier_as(Move::barrier); }
  void do_send(const Tensor& t, int to, int tag) override;
  int do_receive(Tensor& t, int from, int tag) override;
  void do_post(const Tensor& t, int to, int tag) override;
  int do_probe(int tag) override;
  Tensor do_all_reduce(const Tensor& t) override;

 private:
  class Exchange;
  void barrier_as(Move move);
  int first_sender(int tag);
  bool take_own(Tensor& t, int tag);

  Links links_;
  Watchdog& watchdog_;
  int rank_ = 0, size_ = 1;
  std::map<int, std::deque<Tensor>> to_self_;  // by tag
  std::deque<std::unique_ptr<Exchange>> posted_;
};

}  // namespace lmx_mpi

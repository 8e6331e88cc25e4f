// One process's end of the group.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "exchange.h"
#include "lmx/comm.h"
#include "watchdog.h"

namespace lmx_mpi {

class MpiCommunicator : public lmx::Communicator {
 public:
  // `link`: between all ranks, owned by the caller. `native`: sums are MPI's own all-reduce.
  MpiCommunicator(MPI_Comm link, bool native, Watchdog& watchdog, int threads);
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // Operations progress in the calling thread, which sleeps between two polls.
  bool overlaps() const override { return true; }
  // The barrier at the end of a run; a rank may reach it late.
  void finish() { barrier_as(Move::finish); }
  std::vector<std::unique_ptr<lmx::Connection>> connections(int n) override;
  std::shared_ptr<void> waiting() override { return std::make_shared<Waiting>(watchdog_, Move::turn); }

 protected:
  Tensor do_all_gather(const Tensor& own, const lmx::RankRows& rows) override;
  std::vector<Tensor> do_all_to_all(const Tensor& own, const lmx::RankRows& to, const lmx::RankRows& from) override;
  Tensor do_broadcast(const Tensor& t, int root) override;
  void do_barrier() override { barrier_as(Move::barrier); }
  Tensor do_all_reduce(const Tensor& t) override;

 private:
  void barrier_as(Move move);

  MPI_Comm link_;
  bool native_;
  Watchdog& watchdog_;
  int rank_ = 0, size_ = 1;
};

}  // namespace lmx_mpi

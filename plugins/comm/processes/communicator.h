// One process's end of the group.
#pragma once

#include <memory>
#include <vector>

#include "link.h"
#include "lmx/comm.h"
#include "lmx/device_comm.h"
#include "watchdog.h"

namespace lmx::processes {

class ProcessCommunicator : public Communicator, public Liveness {
 public:
  // `native`: sums are the all-reduce of the message library.
  ProcessCommunicator(std::unique_ptr<Link> link, bool native, Watchdog& watchdog, int threads);
  using Communicator::set_nodes;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // Operations progress in the calling thread, which sleeps between two polls.
  bool overlaps() const override { return true; }
  // The barrier at the end of a run; a rank may reach it late.
  void finish() { barrier_as(Move::finish); }
  std::vector<std::unique_ptr<Connection>> connections(int n) override { return link_->connections(n); }
  std::shared_ptr<void> waiting() override { return std::make_shared<Waiting>(watchdog_, Move::turn); }
  void on_failure(const void* owner, std::function<void()> interrupt) override {
    watchdog_.on_failure(owner, std::move(interrupt));
  }
  std::shared_ptr<void> waiting_for_device() override { return std::make_shared<DeviceWaiting>(watchdog_); }
  void end_if_another_failed() const override { watchdog_.end_if_another_failed(); }
  [[noreturn]] void lost_connection(const std::string& what) const override { watchdog_.lost_connection(what); }

 protected:
  Tensor do_all_gather(const Tensor& own, const RankRows& rows) override;
  std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows& to, const RankRows& from) override;
  Tensor do_broadcast(const Tensor& t, int root) override;
  void do_barrier() override { barrier_as(Move::barrier); }
  Tensor do_gather_among(std::span<const int> members, const Tensor& own, const RankRows& rows) override;
  Tensor do_all_reduce(const Tensor& t) override;

 private:
  void barrier_as(Move move);
  Tensor gather_as(Move move, std::span<const int> members, const Tensor& own, const RankRows& rows);

  std::unique_ptr<Link> link_;
  bool native_;
  Watchdog& watchdog_;
  int rank_, size_;
};

}  // namespace lmx::processes

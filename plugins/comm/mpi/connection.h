// Messages between two processes, beside the collectives.
#pragma once

#include <deque>
#include <memory>

#include "exchange.h"
#include "lmx/comm.h"

namespace lmx_mpi {

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

}  // namespace lmx_mpi

// One rank's end of the group: tensors of the device by NCCL, everything else by the communicator of the host.
#pragma once

#include <memory>
#include <vector>

#include "lmx/comm.h"
#include "lmx/device_comm.h"
#include "nccl_link.h"

namespace lmx_nccl {

class NcclCommunicator final : public lmx::Communicator, public lmx::DeviceMoves {
 public:
  // `native`: sums of tensors of the device are NCCL's all-reduce. `start_s`: see NcclLink.
  NcclCommunicator(lmx::Communicator& host, bool native, double start_s);
  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  bool overlaps() const override { return host_.overlaps(); }
  std::shared_ptr<void> waiting() override { return host_.waiting(); }
  std::vector<std::unique_ptr<lmx::Connection>> connections(int n) override { return host_.connections(n); }
  void join(lmx::Device device) override;
  // The end of a run without an error. Collective.
  void finish();

 protected:
  lmx::Tensor do_all_gather(const lmx::Tensor& own, const lmx::RankRows& rows) override;
  std::vector<lmx::Tensor> do_all_to_all(const lmx::Tensor& own, const lmx::RankRows& to,
                                         const lmx::RankRows& from) override;
  lmx::Tensor do_broadcast(const lmx::Tensor& t, int root) override;
  void do_barrier() override;
  lmx::Tensor do_gather_among(std::span<const int> members, const lmx::Tensor& own, const lmx::RankRows& rows) override;
  lmx::Tensor do_all_reduce(const lmx::Tensor& t) override;

 private:
  // The link for a tensor of the device; null for one of the host.
  NcclLink* link_for(const lmx::Tensor& t) const;
  // The result of a collective of the host, whose ledger is not the run's.
  template <class Result>
  Result by_host(Result result) {
    host_.clear_ledger();
    return result;
  }

  lmx::Communicator& host_;
  bool native_;
  double start_s_;
  lmx::Device device_;
  std::unique_ptr<NcclLink> link_;
};

// The devices of all ranks.

// Collective. UserError, the same on all ranks: NCCL is missing on a rank, some ranks compute on the CPU and others do
// not, or two ranks have the same device.
void require_exchange(lmx::Communicator& host, lmx::Device device);

}  // namespace lmx_nccl

// A part of a group, which is a group itself.
#pragma once

#include <vector>

#include "lmx/comm.h"

namespace lmx {

// Composed of operations of the whole group, in which a rank sends nothing to ranks outside its part. So every group
// has parts, and its check of liveness sees the same operations on all ranks.
class CommunicatorPart final : public Communicator {
 public:
  // `members`: ranks of `whole`, ascending, with its own. `per_node`: ranks of the part in each node.
  CommunicatorPart(Communicator& whole, std::vector<int> members, int64_t per_node);
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  bool shares_memory() const override { return false; }
  bool overlaps() const override { return whole_.overlaps(); }
  std::shared_ptr<void> waiting() override { return whole_.waiting(); }

 protected:
  Tensor do_all_gather(const Tensor& own, const RankRows& rows) override;
  std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows& to, const RankRows& from) override;
  Tensor do_broadcast(const Tensor& t, int root) override;
  void do_barrier() override;

 private:
  std::vector<int64_t> of_whole(const RankRows& rows) const;

  Communicator& whole_;
  std::vector<int> members_;
  int rank_ = 0;
};

}  // namespace lmx

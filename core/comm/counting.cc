#include "comm/counting.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lmx/device_comm.h"
#include "lmx/error.h"

namespace lmx::comm {
namespace {

// It takes tensors of any memory, like a group that moves tensors between devices.
class CountingCommunicator final : public Communicator, public DeviceMoves {
 public:
  CountingCommunicator(const CountedRank& rank, std::shared_ptr<PeerIds> ids)
      : Communicator(Allocator::cpu(), rank.threads), own_(rank), ids_(std::move(ids)) {
    set_nodes(std::make_shared<const RankNodes>(rank.ranks, rank.per_node));
  }
  int rank() const override { return own_.rank; }
  int size() const override { return own_.ranks; }
  bool overlaps() const override { return own_.overlaps; }
  void join(Device) override {}

 protected:
  Tensor do_all_gather(const Tensor& own, const RankRows& rows) override {
    return gathered(own, rows, [](int i) { return i; });
  }
  Tensor do_gather_among(std::span<const int> members, const Tensor& own, const RankRows& rows) override {
    return gathered(own, rows, [&](int i) { return members[static_cast<size_t>(i)]; });
  }
  std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows& to, const RankRows& from) override {
    std::vector<Tensor> got;
    int64_t begin = 0;
    for (int r = 0; r < size(); ++r) {
      if (r == rank())
        got.push_back(own.slice(begin, begin + to[r]));
      else
        got.push_back(received(own, r, from[r]));
      begin += to[r];
    }
    return got;
  }
  Tensor do_broadcast(const Tensor& t, int root) override {
    return root == rank() ? t : received(t.reshape({-1}), root, t.numel()).reshape(t.shape());
  }
  void do_barrier() override {}

 private:
  static Shape with_rows(const Tensor& t, int64_t rows) {
    Shape shape = t.shape();
    shape[0] = rows;
    return shape;
  }
  Tensor empty(const Tensor& like, int64_t rows) const {
    return Tensor::empty(allocator(like.device()), with_rows(like, rows), like.dtype(), MemClass::communication);
  }
  // The tensor that rank `from` sends: `rows` rows, otherwise like `own`.
  Tensor received(const Tensor& own, int from, int64_t rows) const {
    Tensor part = empty(own, rows);
    if (!own.device().counts) fill(part, own, from);
    return part;
  }
  template <class RankOf>
  Tensor gathered(const Tensor& own, const RankRows& rows, RankOf&& rank_of) const {
    Tensor all = empty(own, rows.total());
    if (own.device().counts) return all;
    int64_t begin = 0;
    for (int i = 0; i < rows.ranks(); ++i) {
      Tensor part = all.slice(begin, begin + rows[i]);
      if (rank_of(i) == rank())
        part.copy_from(own);
      else
        fill(part, own, rank_of(i));
      begin += rows[i];
    }
    return all;
  }
  void fill(Tensor& part, const Tensor& own, int from) const {
    if (part.numel() == 0) return;
    if (part.dtype() == DType::i32) {
      return ids_->draw(from, own.values<int32_t>(), part.values<int32_t>());
    }
    const int64_t same = std::min(part.numel(), own.numel());
    part.zero();
    if (same > 0) std::memcpy(part.raw(), own.raw(), static_cast<size_t>(same) * size_of(part.dtype()));
  }

  CountedRank own_;
  std::shared_ptr<PeerIds> ids_;
};

class CountingGroup final : public CommGroup {
 public:
  CountingGroup(const CountedRank& rank, std::shared_ptr<PeerIds> ids) : rank_(rank), ids_(std::move(ids)) {}
  int size() const override { return rank_.ranks; }
  void run(const std::function<void(Communicator&)>& body) override {
    CountingCommunicator comm(rank_, ids_);
    body(comm);
  }
  std::string describe() const override { return str("rank ", rank_.rank, " of ", rank_.ranks, ", counted"); }

 private:
  CountedRank rank_;
  std::shared_ptr<PeerIds> ids_;
};

}  // namespace

std::unique_ptr<CommGroup> make_counting_group(const CountedRank& rank, std::shared_ptr<PeerIds> ids) {
  return std::make_unique<CountingGroup>(rank, std::move(ids));
}

}  // namespace lmx::comm

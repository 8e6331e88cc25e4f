// The group of one rank.
#include "lmx/comm.h"
#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx {
namespace {

// Exchanges no data: the base class handles a group of one.
class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(int threads) : Communicator(Allocator::cpu(), threads) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }

 protected:
  Tensor do_all_gather(const Tensor& own, const RankRows&) override { return own; }
  std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows&, const RankRows&) override { return {own}; }
  Tensor do_broadcast(const Tensor& t, int) override { return t; }
  void do_barrier() override {}
};

int or_all_cores(int threads) {
  return threads > 0 ? threads : num_threads();
}

class SelfGroup final : public CommGroup {
 public:
  explicit SelfGroup(int threads) : threads_(threads) {}
  int size() const override { return 1; }
  void run(const std::function<void(Communicator&)>& body) override {
    SelfCommunicator comm(or_all_cores(threads_));
    set_num_threads(comm.threads());
    body(comm);
  }
  std::string describe() const override { return "1 rank"; }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<CommGroup> make_self_group(int threads) {
  return std::make_unique<SelfGroup>(threads);
}
std::unique_ptr<Communicator> make_self_communicator(int threads) {
  return std::make_unique<SelfCommunicator>(or_all_cores(threads));
}

}  // namespace lmx

// The ledger, and the group of one rank.
#include "lmx/comm.h"

namespace lmx {

Communicator::~Communicator() = default;

void Communicator::enter(const std::string& group, const char* collective, int64_t sent, int64_t received) {
  ledger_.push_back({step_, group, collective, sent, received});
}

namespace {

class SelfCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(Tensor&, const std::string& group) override { enter(group, "all_reduce", 0, 0); }
  Tensor all_gather(const Tensor& t, const std::string& group) override {
    enter(group, "all_gather", 0, 0);
    return t;
  }
  void broadcast(Tensor&, int, const std::string& group) override { enter(group, "broadcast", 0, 0); }
  void barrier() override {}
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<SelfCommunicator>();
}

}  // namespace lmx

// The time of exchanges between devices in the ledger.
#include <gtest/gtest.h>

#include "autograd/gradient_sums.h"
#include "device.h"
#include "lmx/comm.h"
#include "lmx/device_comm.h"

namespace lmx {
namespace {

// Rank 0 of two, which have equal tensors. An exchange is a kernel.
class Twins final : public Communicator, public DeviceMoves {
 public:
  explicit Twins(const Context& ctx) : Communicator(ctx.host), ctx_(ctx) { use_device(ctx.allocator, ctx.host); }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void join(Device) override {}

 protected:
  Tensor do_all_gather(const Tensor& own, const RankRows& rows) override {
    Context ctx = ctx_;
    if (own.device() == Device{}) ctx = Context();
    Tensor all = ctx.empty({rows.total()});
    fill(ctx, all, 1);
    return all;
  }
  std::vector<Tensor> do_all_to_all(const Tensor& own, const RankRows&, const RankRows&) override { return {own, own}; }
  Tensor do_broadcast(const Tensor& t, int) override { return t; }
  void do_barrier() override {}

 private:
  Context ctx_;
};

class DeviceLedger : public lmx_test::DeviceTest {};

TEST_F(DeviceLedger, SecondsAreThoseOfTheDevice) {
  const Context ctx = lmx_test::context_on(Device::Kind::cuda);
  Twins comm(ctx);
  const auto gather = [&](const Tensor& own) { return comm.all_gather(own, RankRows::same(2, own.dim(0)), "test"); };
  const Tensor host = Tensor::zeros(ctx.host, {3}, DType::f32);
  gather(host);
  const Tensor all = gather(ctx.zeros({3}));
  std::vector<double> enqueuing, measured;
  for (const LedgerEntry& line : comm.ledger()) enqueuing.push_back(line.seconds);
  lmx_test::values_of(ctx, all);  // the host waits
  comm.measure_exchanges();
  for (const LedgerEntry& line : comm.ledger()) measured.push_back(line.seconds);
  EXPECT_EQ(measured[0], enqueuing[0]);
  EXPECT_NE(measured[1], enqueuing[1]);
  EXPECT_GT(measured[1], 0);
  comm.clear_ledger();
  comm.measure_exchanges();
  EXPECT_TRUE(comm.ledger().empty());
}

TEST_F(DeviceLedger, AnExchangeThatIsNotDoneIsMeasuredLater) {
  const Context ctx = lmx_test::context_on(Device::Kind::cuda);
  Twins comm(ctx);
  const Tensor all = comm.all_gather(ctx.zeros({3}), RankRows::same(2, 3), "test");
  const double enqueuing = comm.ledger()[0].seconds;
  comm.measure_exchanges();  // an emulated device has done nothing so far
  const double before = comm.ledger()[0].seconds;
  lmx_test::values_of(ctx, all);
  comm.measure_exchanges();
  EXPECT_TRUE(before == enqueuing || before == comm.ledger()[0].seconds);
  EXPECT_NE(comm.ledger()[0].seconds, enqueuing);
}

}  // namespace
}  // namespace lmx

// The ledger, the collectives that are composed of other operations, and the group of one rank.
#include <chrono>

#include "autograd/gradient_sums.h"
#include "backend/cuda.h"
#include "comm/rows.h"
#include "lmx/comm.h"
#include "lmx/device_comm.h"
#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx {

Communicator::Communicator(std::shared_ptr<Allocator> allocator, int threads)
    : allocator_(std::move(allocator)), threads_(threads) {}
Communicator::~Communicator() = default;

const std::shared_ptr<Allocator>& Communicator::allocator(Device device) const {
  if (device == Device{}) return allocator_;
  LMX_CHECK(device_memory_ && device_memory_->device() == device, "rank ", rank(), " has no memory on ",
            name_of(device));
  return device_memory_;
}

// Ranks of one process pass tensors of any memory by reference. A group of processes sends from the host's memory,
// unless it moves the tensors of devices itself.
Tensor Communicator::to_group(const Tensor& t) const {
  const bool taken =
      carrier_->shares_memory() || t.device().kind == Device::Kind::cpu || dynamic_cast<const DeviceMoves*>(carrier_);
  return taken ? t : copy_to(t, allocator_);
}
Tensor Communicator::from_group(const Tensor& t, Device device) const {
  return !t.defined() || t.device() == device ? t : copy_to(t, allocator(device));
}

CommGroup::~CommGroup() = default;
Connection::~Connection() = default;
TurnClock::~TurnClock() = default;
std::shared_ptr<void> Communicator::waiting() {
  return {};
}
std::vector<std::unique_ptr<Connection>> Communicator::connections(int) {
  return {};
}
void Communicator::count(LedgerEntry line) {
  line.step = ledger_->step;
  ledger_->lines.push_back(std::move(line));
}

int64_t Communicator::rows_elsewhere(const RankRows& rows) const {
  if (nodes().count() == 1) return 0;
  int64_t elsewhere = rows.total();
  for (const int r : nodes().node(rank())) elsewhere -= rows[r];
  return elsewhere;
}

namespace {

using Clock = std::chrono::steady_clock;

int64_t row_bytes(const Tensor& t) {
  int64_t width = static_cast<int64_t>(size_of(t.dtype()));
  for (int i = 1; i < t.rank(); ++i) width *= t.dim(i);
  return width;
}

}  // namespace

// Measures one call that exchanges a tensor, for a line of the ledger; done() adds the line with the bytes of the call.
class Communicator::Entry {
 public:
  Entry(const Communicator& comm, const std::string& group, const char* collective, const Tensor& t,
        bool listed = false)
      : ledger_(*comm.ledger_),
        line_{.step = ledger_.step, .group = group, .collective = collective, .listed = listed},
        start_(Clock::now()) {
    if (comm.size() == 1 || t.device() == Device{} || !dynamic_cast<const DeviceMoves*>(comm.carrier_)) return;
    device_ = &cuda_device(t.device());
    begin_ = device_->point();
  }
  // The arguments are bytes: all, and those that cross nodes.
  void sent(int64_t all, int64_t between_nodes) {
    line_.sent = all;
    line_.sent_between_nodes = between_nodes;
  }
  void received(int64_t all, int64_t between_nodes) {
    line_.received = all;
    line_.received_between_nodes = between_nodes;
  }
  void done() {
    line_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (device_) ledger_.running.push_back({ledger_.lines.size(), std::move(begin_), device_->point()});
    ledger_.lines.push_back(std::move(line_));
  }

 private:
  Ledger& ledger_;
  LedgerEntry line_;
  Clock::time_point start_;
  CudaDevice* device_ = nullptr;  // null: the call returns when its work is done
  std::shared_ptr<const StreamPoint> begin_;
};

void Communicator::clear_ledger() {
  ledger_->lines.clear();
  ledger_->running.clear();
}

void Communicator::measure_exchanges() {
  std::erase_if(ledger_->running, [&](const Running& exchange) {
    if (!exchange.end->reached()) return false;
    ledger_->lines[exchange.line].seconds = exchange.end->seconds_since(*exchange.begin);
    return true;
  });
}

Tensor Communicator::all_gather(const Tensor& own, const std::string& group) {
  LMX_CHECK(own.defined() && own.rank() > 0, "all_gather of ", describe(own));
  if (size() == 1) return all_gather(own, RankRows::same(1, own.dim(0)), group);
  const int64_t mine = own.dim(0);
  const Tensor count = Tensor::from<int64_t>(allocator_, {1}, std::span(&mine, 1), MemClass::communication);
  const Tensor counts = all_gather(count, RankRows::same(size(), 1), group);
  return all_gather(own, counts.values<int64_t>(), group);
}

Tensor Communicator::all_gather(const Tensor& own, const RankRows& rows, const std::string& group) {
  LMX_CHECK(rows.ranks() == size(), rows.ranks(), " sizes for ", size(), " ranks");
  LMX_CHECK(own.dim(0) == rows[rank()], "rank ", rank(), " gathers ", describe(own), ", announced ", rows[rank()],
            " rows");
  Entry entry(*this, group, "all_gather", own);
  Tensor all = size() == 1 ? own : from_group(do_all_gather(to_group(own), rows), own.device());
  const auto here = static_cast<int64_t>(nodes().node(rank()).size());
  entry.sent(own.bytes() * (size() - 1), own.bytes() * (size() - here));
  entry.received(all.bytes() - own.bytes(), row_bytes(own) * rows_elsewhere(rows));
  entry.done();
  return all;
}

std::vector<Tensor> Communicator::all_to_all(const Tensor& own, const RankRows& to, const RankRows& from,
                                             const std::string& group) {
  LMX_CHECK(to.ranks() == size() && from.ranks() == size(), to.ranks(), " and ", from.ranks(), " sizes for ", size(),
            " ranks");
  LMX_CHECK(own.dim(0) == to.total(), "rank ", rank(), " sends ", to.total(), " rows of ", describe(own));
  Entry entry(*this, group, "all_to_all", own, to.is_list());
  const int64_t bytes = row_bytes(own);
  std::vector<Tensor> got = size() == 1 ? std::vector<Tensor>{own} : do_all_to_all(to_group(own), to, from);
  for (Tensor& t : got) t = from_group(t, own.device());
  entry.sent(bytes * (to.total() - to[rank()]), bytes * rows_elsewhere(to));
  entry.received(bytes * (from.total() - from[rank()]), bytes * rows_elsewhere(from));
  entry.done();
  return got;
}

Tensor Communicator::broadcast(const Tensor& t, int root, const std::string& group) {
  LMX_CHECK(root >= 0 && root < size(), "broadcast from rank ", root, " of ", size());
  Entry entry(*this, group, "broadcast", t);
  Tensor got = t;
  if (size() > 1) {
    got = do_broadcast(to_group(t), root);
    got = rank() == root ? t : from_group(got, t.device());
  }
  // Counts one copy for each receiving rank at the root, as if the root sent all of them. A tree sends the same total.
  const auto here = static_cast<int64_t>(nodes().node(rank()).size());
  if (rank() == root) {
    entry.sent(t.bytes() * (size() - 1), t.bytes() * (size() - here));
  } else {
    entry.received(t.bytes(), nodes().apart(root, rank()) ? t.bytes() : 0);
  }
  entry.done();
  return got;
}

void Communicator::barrier() {
  if (size() > 1) do_barrier();
}

Tensor Communicator::all_reduce(const Tensor& t, const std::string& group) {
  LMX_CHECK(t.dtype() == DType::f32 || t.dtype() == DType::f64, "all_reduce of ", describe(t), ": f32 or f64");
  const Tensor flat = t.reshape({-1});
  if (size() == 1) return all_gather(flat, RankRows::same(1, flat.numel()), group).reshape(t.shape());
  const int64_t n = flat.numel();
  {
    Entry entry(*this, group, "all_reduce", t);
    const Tensor sum = from_group(do_all_reduce(to_group(flat)), t.device());
    const int64_t own = chunk_begin(n, rank() + 1, size()) - chunk_begin(n, rank(), size()),
                  bytes = static_cast<int64_t>(size_of(t.dtype())) * (n - own + (size() - 1) * own);
    if (sum.defined()) {
      const int next = (rank() + 1) % size(), last = (rank() + size() - 1) % size();
      entry.sent(bytes, nodes().apart(rank(), next) ? bytes : 0);
      entry.received(bytes, nodes().apart(rank(), last) ? bytes : 0);
      entry.done();
      return sum.reshape(t.shape());
    }
  }
  return all_gather(reduce_scatter(flat, group), RankRows::divided(size(), n), group).reshape(t.shape());
}

Tensor Communicator::reduce_scatter(const Tensor& t, const std::string& group) {
  return reduce_scatter(t, RankRows::divided(size(), t.numel()), group);
}

Tensor Communicator::reduce_scatter(const Tensor& t, const RankRows& chunks, const std::string& group) {
  Tensor sum = Tensor::empty(allocator(t.device()), {chunks[rank()]}, t.dtype(), MemClass::communication);
  const std::vector<Tensor> parts = all_to_all(t.reshape({-1}), chunks, RankRows::same(size(), chunks[rank()]), group);
  Context ctx = comm::context_of(sum);
  fill(ctx, sum, 0);
  for (const Tensor& part : parts) add_tensor(ctx, sum, part);
  return sum;
}

std::vector<double> Communicator::gather_numbers(std::span<const double> own, const std::string& group) {
  const auto n = static_cast<int64_t>(own.size());
  const Tensor mine = Tensor::from<double>(allocator_, {n}, own, MemClass::communication);
  const Tensor all = all_gather(mine, RankRows::same(size(), n), group);
  return {all.values<double>().begin(), all.values<double>().end()};
}

std::vector<std::string> Communicator::gather_texts(const std::string& own, const std::string& group) {
  const auto length = static_cast<int64_t>(own.size());
  const Tensor size_of_own = Tensor::from<int64_t>(allocator_, {1}, std::span(&length, 1), MemClass::communication);
  const Tensor lengths = all_gather(size_of_own, RankRows::same(size(), 1), group);
  const std::span bytes(reinterpret_cast<const uint8_t*>(own.data()), own.size());
  const Tensor text = Tensor::from<uint8_t>(allocator_, {length}, bytes, MemClass::communication);
  const Tensor all = all_gather(text, lengths.values<int64_t>(), group);
  std::vector<std::string> texts;
  const auto* at = reinterpret_cast<const char*>(all.raw());
  for (const int64_t n : lengths.values<int64_t>()) {
    texts.emplace_back(at, static_cast<size_t>(n));
    at += n;
  }
  return texts;
}

Tensor Communicator::once_tensor(MemClass c, const std::function<Tensor()>& make) {
  const Tensor made = once<Tensor>(make);
  return shares_memory() && rank() != 0 ? made.lent(allocator(made.device()), c) : made;
}

// The group of one rank.

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

DeviceMoves::~DeviceMoves() = default;
Liveness::~Liveness() = default;

namespace {

CudaDevice& cuda_device_of(Device device) {
  LMX_CHECK(device.kind == Device::Kind::cuda, name_of(device), " has no streams");
  return cuda_device(device);
}

}  // namespace

std::string identity_of(Device device) {
  return cuda_device_info(device.index).id;
}

ExchangeStream::ExchangeStream(Device device) : device_(cuda_device_of(device)) {}

void* ExchangeStream::stream() const {
  const OnStream exchange(WorkStream::exchange);
  return device_.stream();
}
void ExchangeStream::begin() {
  const auto computed = device_.point();
  const OnStream exchange(WorkStream::exchange);
  device_.wait_for(*computed);
}
void ExchangeStream::end() {
  const auto exchanged = [&] {
    const OnStream exchange(WorkStream::exchange);
    return device_.point();
  }();
  device_.wait_for(*exchanged);
}
void ExchangeStream::guard_waits(std::function<std::shared_ptr<void>()> begin, std::function<void()> end) {
  device_.guard_waits(begin ? std::make_shared<WaitGuard>(WaitGuard{std::move(begin), std::move(end)}) : nullptr);
}
void ExchangeStream::wait() {
  const OnStream exchange(WorkStream::exchange);
  device_.fence()->wait();
}

}  // namespace lmx

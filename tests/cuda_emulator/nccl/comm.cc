#include "comm.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>

namespace nccl_emulator {
namespace {

unsigned char* bytes_of(const void* data) {
  return static_cast<unsigned char*>(const_cast<void*>(data));
}

// The sum of the ranks' parts, added from the last rank to the first: NCCL's order is not that of the ranks either.
template <class T>
void add_parts(const std::vector<std::vector<unsigned char>>& parts, void* sum, size_t count) {
  T* const to = static_cast<T*>(sum);
  for (size_t i = 0; i < count; ++i) {
    T total = 0;
    for (size_t r = parts.size(); r-- > 0;) total += reinterpret_cast<const T*>(parts[r].data())[i];
    to[i] = total;
  }
}

}  // namespace

Comm::Comm(std::shared_ptr<Segment> segment, int rank, int ranks, int device)
    : segment_(std::move(segment)), rank_(rank), ranks_(ranks), device_(device) {
  helper_ = std::thread([this] { help(); });
}

Comm::~Comm() {
  end();
}

void Comm::end() {
  ended_ = true;
  if (!helper_.joinable()) return;
  helper_.get_id() == std::this_thread::get_id() ? helper_.detach() : helper_.join();
}

void Comm::join() {
  Member& own = segment_->members[rank_];
  own.pid = getpid();
  own.device = device_;
  own.joined = 1;
}

// As NCCL does, refuses two ranks with one device.
ncclResult_t Comm::joined() {
  for (int r = 0; r < ranks_; ++r) {
    if (!segment_->members[r].joined) return ncclInProgress;
    for (int s = 0; s < r; ++s) {
      if (segment_->members[r].device != segment_->members[s].device) continue;
      fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(s) + " and rank " + std::to_string(r));
      return error;
    }
  }
  return ncclSuccess;
}

void Comm::fail(ncclResult_t result, const std::string& text) {
  if (error != ncclSuccess) return;
  last_error = text;
  error = result;
}

void Comm::enqueue(cudaStream_t stream, std::vector<Op> ops) {
  ++queued_;
  cuda_emulator::enqueue(stream, [this, ops = std::move(ops)] {
    run(ops);
    --queued_;
  });
  stream_ = cuda_emulator::stream_of(stream);
  position_ = stream_->issued;
}

// Appends the messages of an operation. `parts`: for a sum, a copy of each rank's values.
void Comm::add(const Op& op, std::vector<Transfer>& transfers, std::vector<std::vector<unsigned char>>& parts) {
  const size_t bytes = op.bytes();
  Tag tag{op.kind, op.type, op.count, 0};
  const auto exchange = [&](bool in, int peer, const void* data) {
    transfers.push_back({in, peer, bytes_of(data), bytes, tag});
  };
  if (op.kind == Kind::message) return exchange(!op.from, op.peer, op.from ? op.from : op.to);
  tag.number = collectives_++;
  if (op.kind == Kind::broadcast && rank_ != op.peer) return exchange(true, op.peer, op.to);
  if (op.kind == Kind::broadcast) std::memmove(op.to, op.from, bytes);
  if (op.kind == Kind::all_gather) std::memmove(bytes_of(op.to) + static_cast<size_t>(rank_) * bytes, op.from, bytes);
  if (op.kind == Kind::all_reduce) {
    parts.assign(static_cast<size_t>(ranks_), std::vector<unsigned char>(bytes));
    std::memcpy(parts[static_cast<size_t>(rank_)].data(), op.from, bytes);
  }
  for (int r = 0; r < ranks_; ++r) {
    const auto i = static_cast<size_t>(r);
    if (r == rank_) continue;
    exchange(false, r, op.from);
    if (op.kind == Kind::all_gather) exchange(true, r, bytes_of(op.to) + i * bytes);
    if (op.kind == Kind::all_reduce) exchange(true, r, parts[i].data());
  }
}

void Comm::run(const std::vector<Op>& ops) {
  if (aborted) return;
  std::vector<Transfer> transfers;
  std::vector<std::vector<std::vector<unsigned char>>> parts(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) add(ops[i], transfers, parts[i]);
  complete(*segment_, rank_, transfers, aborted);
  if (aborted) return;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != Kind::all_reduce) continue;
    if (ops[i].type == ncclFloat64)
      add_parts<double>(parts[i], ops[i].to, ops[i].count);
    else
      add_parts<float>(parts[i], ops[i].to, ops[i].count);
  }
}

void Comm::help() {
  for (int round = 0; !ended_; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (segment_->waiting > 0 && queued_ > 0) run_queued();
    if (round % 50 == 49) look_for_the_dead();
  }
}

void Comm::run_queued() {
  const std::unique_lock lock(cuda_emulator::device_mutex(), std::try_to_lock);
  if (lock && stream_ && !aborted) run_until(*stream_, position_);
}

void Comm::look_for_the_dead() {
  for (int r = 0; r < ranks_; ++r) {
    const Member& other = segment_->members[r];
    if (other.joined == 1 && kill(other.pid, 0) != 0 && errno == ESRCH)
      fail(ncclRemoteError, "the process of rank " + std::to_string(r) + " has ended");
  }
}

}  // namespace nccl_emulator

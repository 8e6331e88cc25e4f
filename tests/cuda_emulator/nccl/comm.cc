#include "comm.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "fault.h"

namespace nccl_emulator {
namespace {

using Clock = std::chrono::steady_clock;
using cuda_emulator::fault;

// LMX_EMULATED_NCCL_WAIT: seconds without progress after which a transfer counts as unmatched.
double longest_wait_s() {
  const char* given = std::getenv("LMX_EMULATED_NCCL_WAIT");
  return given ? std::atof(given) : 120;
}

std::shared_ptr<Segment> map_segment(int file) {
  void* memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<Segment*>(memory), [](Segment* s) { munmap(s, sizeof(Segment)); }};
}

// Copies between a ring and memory, beginning at position `at` of the ring.
void put(Ring& ring, uint64_t at, const unsigned char* from, size_t bytes) {
  const size_t begin = at % kRingBytes, first = std::min(bytes, kRingBytes - begin);
  std::memcpy(ring.bytes + begin, from, first);
  std::memcpy(ring.bytes, from + first, bytes - first);
}
void take(const Ring& ring, uint64_t at, unsigned char* to, size_t bytes) {
  const size_t begin = at % kRingBytes, first = std::min(bytes, kRingBytes - begin);
  std::memcpy(to, ring.bytes + begin, first);
  std::memcpy(to + first, ring.bytes, bytes - first);
}

std::string describe(const Tag& tag) {
  const std::string number = tag.kind == Kind::message ? "" : " number " + std::to_string(tag.number);
  return std::string(name_of(tag.kind)) + number + " of " + std::to_string(tag.count) + " values of type " +
         std::to_string(tag.type);
}

std::string describe(int rank, const Transfer& t) {
  return "rank " + std::to_string(rank) + (t.in ? " receives a " : " sends a ") + describe(t.tag) +
         (t.in ? " from rank " : " to rank ") + std::to_string(t.peer);
}

// Returns whether bytes were moved.
bool send_some(Ring& ring, Transfer& t) {
  const uint64_t written = ring.written.load(std::memory_order_relaxed);
  uint64_t room = kRingBytes - (written - ring.read.load(std::memory_order_acquire)), at = written;
  if (t.moved == 0) {
    if (room < sizeof(Tag)) return false;
    put(ring, at, reinterpret_cast<const unsigned char*>(&t.tag), sizeof(Tag));
    t.moved = sizeof(Tag);
    at += sizeof(Tag);
    room -= sizeof(Tag);
  }
  const size_t done = t.moved - sizeof(Tag), now = std::min<size_t>(room, t.bytes - done);
  put(ring, at, t.data + done, now);
  t.moved += now;
  t.end = at + now;
  ring.written.store(t.end, std::memory_order_release);
  return t.end != written;
}

bool receive_some(Ring& ring, Transfer& t, int rank) {
  const uint64_t read = ring.read.load(std::memory_order_relaxed);
  uint64_t there = ring.written.load(std::memory_order_acquire) - read, at = read;
  if (t.moved == 0) {
    if (there < sizeof(Tag)) return false;
    Tag sent;
    take(ring, at, reinterpret_cast<unsigned char*>(&sent), sizeof sent);
    if (sent != t.tag) fault("NCCL: ", describe(rank, t), ", which sends a ", describe(sent));
    t.moved = sizeof(Tag);
    at += sizeof(Tag);
    there -= sizeof(Tag);
  }
  const size_t done = t.moved - sizeof(Tag), now = std::min<size_t>(there, t.bytes - done);
  take(ring, at, t.data + done, now);
  t.moved += now;
  ring.read.store(at + now, std::memory_order_release);
  return at + now != read;
}

// The first transfer of the ring that is not complete; null: all are.
Transfer* next_of(std::vector<Transfer>& transfers, bool in, int peer) {
  for (Transfer& t : transfers)
    if (t.in == in && t.peer == peer && t.moved < sizeof(Tag) + t.bytes) return &t;
  return nullptr;
}

// Adds 1 to a number while it exists, from the first call of begin() on.
class Mark {
 public:
  explicit Mark(std::atomic<int>& number) : number_(number) {}
  ~Mark() {
    if (begun_) --number_;
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void begin() {
    if (!begun_) ++number_;
    begun_ = true;
  }

 private:
  std::atomic<int>& number_;
  bool begun_ = false;
};

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"message", "broadcast", "all_gather", "all_reduce"};
  return kNames[static_cast<size_t>(kind)];
}

bool make_segment(ncclUniqueId& id) {
  const int file = memfd_create("emulated_nccl", 0);
  if (file < 0 || ftruncate(file, sizeof(Segment)) != 0) return false;
  const auto segment = map_segment(file);
  if (!segment) return false;
  segment->cookie = std::random_device{}() + (uint64_t{1} << 32);
  std::snprintf(id.internal, sizeof id.internal, "%d %d %llx", getpid(), file,
                static_cast<unsigned long long>(segment->cookie));
  return true;
}

std::shared_ptr<Segment> open_segment(const ncclUniqueId& id) {
  int pid = 0, descriptor = 0;
  unsigned long long cookie = 0;
  if (std::sscanf(id.internal, "%d %d %llx", &pid, &descriptor, &cookie) != 3) return nullptr;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, descriptor);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  const auto segment = map_segment(file);
  close(file);
  return segment && segment->cookie == cookie ? segment : nullptr;
}

void complete(Segment& segment, int rank, std::vector<Transfer>& transfers, const std::atomic<bool>& aborted) {
  constexpr auto kPatience = std::chrono::milliseconds(1);
  Mark waiting(segment.waiting);
  auto moved = Clock::now();
  for (;;) {
    bool progress = false, open = false;
    for (int peer = 0; peer < kMostRanks; ++peer) {
      Transfer *out = next_of(transfers, false, peer), *in = next_of(transfers, true, peer);
      if (out) progress |= send_some(segment.rings[rank][peer], *out);
      if (in) progress |= receive_some(segment.rings[peer][rank], *in, rank);
      open |= out || in;
    }
    const auto unread = std::find_if(transfers.begin(), transfers.end(), [&](const Transfer& t) {
      return !t.in && segment.rings[rank][t.peer].read.load(std::memory_order_acquire) < t.end;
    });
    if ((!open && unread == transfers.end()) || aborted) return;
    const auto now = Clock::now();
    if (progress) {
      moved = now;
      continue;
    }
    if (now - moved > kPatience) waiting.begin();
    if (now - moved > std::chrono::duration<double>(longest_wait_s())) {
      const auto left = std::find_if(transfers.begin(), transfers.end(),
                                     [](const Transfer& t) { return t.moved < sizeof(Tag) + t.bytes; });
      fault("NCCL: ", describe(rank, left == transfers.end() ? *unread : *left), ", which has not taken part for ",
            longest_wait_s(), " s");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

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

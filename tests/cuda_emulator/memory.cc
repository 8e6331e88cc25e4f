#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "fault.h"

namespace cuda_emulator {
namespace {

constexpr size_t kAlign = 256, kPage = 4096;
constexpr unsigned char kPoison = 0xFF, kGuard = 0xA5;

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

bool all_equal(const unsigned char* begin, size_t bytes, unsigned char value) {
  return bytes == 0 || (begin[0] == value && std::memcmp(begin, begin + 1, bytes - 1) == 0);
}

struct Block {
  size_t bytes = 0;  // as requested
  int64_t number = 0;
  size_t whole() const { return round_up(std::max<size_t>(bytes, 1), kAlign) + kAlign; }  // with the guard
};

class Arena {
 public:
  static Arena& instance() {
    static Arena& arena = *new Arena;  // never destroyed: kernels of static objects may still be queued
    return arena;
  }

  void* allocate(size_t bytes) {
    const Block block{bytes, ++count_};
    const size_t begin = place_for(block.whole());
    if (begin == kNone) return nullptr;
    const DeviceAccess access;
    unsigned char* at = base_ + begin;
    std::memset(at, kPoison, bytes);
    std::memset(at + bytes, kGuard, block.whole() - bytes);
    used_ += block.whole();
    blocks_[begin] = block;
    return at;
  }

  void release(void* address) {
    const auto found = blocks_.find(offset(address));
    if (found == blocks_.end()) fault("released memory that is not allocated: ", describe(address));
    check_guard(*found);
    const size_t begin = found->first, whole = found->second.whole();
    {
      const DeviceAccess access;
      std::memset(base_ + begin, kPoison, whole);
    }
    used_ -= whole;
    blocks_.erase(found);
    add_free(begin, whole);
  }

  bool owns(const void* address) const {
    const auto* at = static_cast<const unsigned char*>(address);
    return at >= base_ && at < base_ + bytes_;
  }

  void check_range(const char* call, const void* address, size_t bytes) const {
    const auto found = block_before(offset(address));
    if (found == blocks_.end() || offset(address) + bytes > found->first + found->second.bytes)
      fault(call, " of ", bytes, " bytes leaves its allocation: it begins at ", describe(address));
  }

  std::string describe(const void* address) const {
    if (!owns(address)) return "";
    std::ostringstream text;
    const auto found = block_before(offset(address));
    if (found == blocks_.end()) return "memory that is not allocated";
    const size_t at = offset(address) - found->first;
    if (at >= found->second.whole()) return "memory that is not allocated";
    text << "byte " << at << " of allocation " << found->second.number << ", which has " << found->second.bytes
         << " bytes";
    return text.str();
  }

  void check_guards() const {
    for (const auto& entry : blocks_) check_guard(entry);
  }

  // With a protection key, which a thread opens and closes without a system call. Without one (a CPU without PKU), the
  // protection of all pages that were ever used changes, for all threads.
  void protect(bool accessible) const {
    if (key_ >= 0) {
      pkey_set(key_, accessible ? 0 : PKEY_DISABLE_ACCESS);
    } else if (high_ > 0) {
      mprotect(base_, round_up(high_, kPage), accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
  }

  size_t bytes() const { return bytes_; }
  size_t left() const { return bytes_ - used_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  Arena() {
    const char* given = std::getenv("LMX_EMULATED_MEMORY");
    bytes_ = given ? std::strtoull(given, nullptr, 10) : size_t{8} << 30;
    void* memory = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<unsigned char*>(memory);
    key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    install_handlers();
  }

  // The pages up to `high` can be accessed from now on.
  void grow(size_t high) {
    const size_t from = round_up(high_, kPage), to = round_up(high, kPage);
    high_ = high;
    if (key_ < 0) return protect(accessible_now());
    if (to > from && pkey_mprotect(base_ + from, to - from, PROT_READ | PROT_WRITE, key_) != 0)
      fault("the protection of device memory cannot be changed");
  }

  size_t offset(const void* address) const {
    return static_cast<size_t>(static_cast<const unsigned char*>(address) - base_);
  }

  std::map<size_t, Block>::const_iterator block_before(size_t at) const {
    auto found = blocks_.upper_bound(at);
    return found == blocks_.begin() ? blocks_.end() : --found;
  }

  void check_guard(const std::pair<const size_t, Block>& entry) const {
    const DeviceAccess access;
    const auto& [begin, block] = entry;
    if (!all_equal(base_ + begin + block.bytes, block.whole() - block.bytes, kGuard))
      fault("a kernel wrote beyond allocation ", block.number, ", which has ", block.bytes, " bytes");
  }

  // The first hole of that size, or new memory.
  size_t place_for(size_t whole) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < whole) continue;
      const auto [begin, size] = *it;
      free_.erase(it);
      if (size > whole) free_[begin + whole] = size - whole;
      const DeviceAccess access;
      if (!all_equal(base_ + begin, whole, kPoison)) fault("a kernel wrote to memory after it was released");
      return begin;
    }
    if (whole > bytes_ - high_) return kNone;
    const size_t begin = high_;
    grow(high_ + whole);
    return begin;
  }

  void add_free(size_t begin, size_t size) {
    auto next = free_.lower_bound(begin);
    if (next != free_.end() && begin + size == next->first) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        before->second += size;
        return;
      }
    }
    free_[begin] = size;
  }

  static bool accessible_now();

  unsigned char* base_ = nullptr;
  int key_ = -1;
  size_t bytes_ = 0, high_ = 0, used_ = 0;
  int64_t count_ = 0;
  std::map<size_t, Block> blocks_;
  std::map<size_t, size_t> free_;  // begin and size of the holes below high_
};

thread_local int accesses = 0;  // how many DeviceAccess this thread has; others wait for device_mutex()

bool Arena::accessible_now() {
  return accesses > 0;
}

std::map<const void*, size_t>& pinned_blocks() {
  static auto& blocks = *new std::map<const void*, size_t>;
  return blocks;
}

}  // namespace

size_t memory_bytes() {
  return Arena::instance().bytes();
}
size_t free_bytes() {
  return Arena::instance().left();
}
void* allocate(size_t bytes) {
  return Arena::instance().allocate(bytes);
}
void release(void* block) {
  Arena::instance().release(block);
}
bool on_device(const void* address) {
  return Arena::instance().owns(address);
}
void check_range(const char* call, const void* address, size_t bytes) {
  Arena::instance().check_range(call, address, bytes);
}
std::string describe_address(const void* address) {
  return Arena::instance().describe(address);
}
void check_guards() {
  Arena::instance().check_guards();
}

DeviceAccess::DeviceAccess() {
  if (accesses++ == 0) Arena::instance().protect(true);
}
DeviceAccess::~DeviceAccess() {
  if (--accesses == 0) Arena::instance().protect(false);
}

void* allocate_pinned(size_t bytes) {
  void* block = nullptr;
  if (posix_memalign(&block, kPage, std::max<size_t>(bytes, 1)) != 0) return nullptr;
  std::memset(block, kPoison, bytes);
  pinned_blocks()[block] = bytes;
  return block;
}

bool release_pinned(void* block) {
  if (pinned_blocks().erase(block) == 0) return false;
  std::free(block);
  return true;
}

bool pinned(const void* address) {
  auto found = pinned_blocks().upper_bound(address);
  if (found == pinned_blocks().begin()) return false;
  --found;
  return static_cast<const char*>(address) < static_cast<const char*>(found->first) + found->second;
}

bool of_host_alone(const void* address) {
  // Memory of a process lies far above every size and count, and below the bits of ordinary floating-point numbers.
  constexpr uintptr_t kLowest = uintptr_t{1} << 40, kHighest = uintptr_t{1} << 47;
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (at < kLowest || at >= kHighest || on_device(address) || pinned(address)) return false;
  return msync(reinterpret_cast<void*>(at / kPage * kPage), 1, MS_ASYNC) == 0;  // fails if nothing is mapped there
}

}  // namespace cuda_emulator

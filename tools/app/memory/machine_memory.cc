#include "app/memory/machine_memory.h"

#include <sys/resource.h>

#include <charconv>
#include <filesystem>
#include <fstream>

namespace lmx::train {
namespace {

namespace fs = std::filesystem;

// Returns the number at the start of a file; 0: none ("max").
int64_t number_in(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  int64_t value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

int64_t total_of_machine(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string key; file >> key;) {
    int64_t kilobytes = 0;
    if (key == "MemTotal:" && file >> kilobytes) return kilobytes * 1024;
    std::getline(file, key);
  }
  return 0;
}

void take_less(MachineMemory& memory, int64_t bytes, const char* limit) {
  if (bytes <= 0 || (memory.bytes > 0 && bytes >= memory.bytes)) return;
  memory = {bytes, limit};
}

// Applies the limits of the group `path` below `mount` and of all its parents, which also limit it.
void take_groups(MachineMemory& memory, const std::string& mount, const std::string& path, const char* file) {
  for (fs::path group = path;; group = group.parent_path()) {
    take_less(memory, number_in(mount + group.string() + "/" + file), "the memory limit of its cgroup");
    if (!group.has_relative_path()) return;
  }
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  MachineMemory memory{total_of_machine(root), ""};
  // Lines are "0::/path" in version 2, "9:memory:/path" in version 1.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kind = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (kind.empty()) take_groups(memory, root + "/sys/fs/cgroup", path, "memory.max");
    if (kind == "memory") take_groups(memory, root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
  }
  rlimit addresses{};
  if (root.empty() && getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    take_less(memory, static_cast<int64_t>(addresses.rlim_cur), "the limit on its addresses (ulimit -v)");
  return memory;
}

}  // namespace lmx::train

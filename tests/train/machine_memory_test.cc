// The memory that a process may use, from files in Linux's format.
#include "app/memory/memory_check.h"

#include "train/fixture.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class MachineMemoryTest : public FolderTest {
 protected:
  void put(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_all(path(name), text);
  }
  MachineMemory found() const { return machine_memory(folder_.string()); }
};

TEST_F(MachineMemoryTest, OfTheMachine) {
  EXPECT_EQ(found().bytes, 0) << "no /proc";
  put("proc/meminfo", "MemTotal:       24000000 kB\nMemFree:        20000000 kB\n");
  put("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(found().bytes, int64_t{24000000} * 1024);
  EXPECT_EQ(found().limit, "");
}

// The limit of a job's own cgroup, or of a cgroup above it.
TEST_F(MachineMemoryTest, OfTheCgroup) {
  put("proc/meminfo", "MemTotal:       24000000 kB\n");
  put("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  put("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  EXPECT_EQ(found().bytes, int64_t{24000000} * 1024);
  put("sys/fs/cgroup/slurm/job_7/memory.max", "4294967296\n");
  EXPECT_EQ(found().bytes, int64_t{1} << 32);
  EXPECT_THAT(found().limit, HasSubstr("cgroup"));
  put("sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_EQ(found().bytes, int64_t{1} << 30);
}

TEST_F(MachineMemoryTest, OfTheCgroupVersion1) {
  put("proc/meminfo", "MemTotal:       24000000 kB\n");
  put("proc/self/cgroup", "9:memory:/docker/ab\n8:cpu,cpuacct:/docker/ab\n0::/\n");
  put("sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "536870912\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(found().bytes, 512 << 20);
}

TEST(MachineMemory, OfThisMachine) {
  EXPECT_GT(machine_memory().bytes, 1 << 20);
}

}  // namespace
}  // namespace lmx::app

// Locks of files between processes.
#include "base/file_lock.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include "lmx/error.h"
#include "temp_folder.h"

namespace lmx_test {
namespace {

using lmx::FileLock;

class Locks : public testing::Test {
 protected:
  std::string path() const { return folder_.path(".lock"); }

  const TempFolder folder_;
};

TEST_F(Locks, OneHolderAtATime) {
  EXPECT_FALSE(FileLock::is_held(path()));  // no such file
  {
    FileLock first(path(), "[test] "), second(path(), "[test] ");
    EXPECT_FALSE(FileLock::is_held(path()));
    EXPECT_TRUE(first.take());
    EXPECT_TRUE(FileLock::is_held(path()));
    EXPECT_FALSE(second.take());
    EXPECT_FALSE(second.take_soon());
  }
  EXPECT_FALSE(FileLock::is_held(path()));
}

// Whoever starts again what was just killed need not wait by hand.
TEST_F(Locks, AHolderThatEndsSoonIsWaitedFor) {
  auto holder = std::make_unique<FileLock>(path(), "[test] ");
  ASSERT_TRUE(holder->take());
  FileLock next(path(), "[test] ");
  ASSERT_FALSE(next.take());
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    holder.reset();
  });
  EXPECT_TRUE(next.take_soon());
  ends.join();
}

TEST_F(Locks, AKilledHolderHoldsNothing) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    FileLock lock(path(), "[test] ");
    const char taken = lock.take();
    if (write(ready[1], &taken, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  close(ready[1]);
  char taken = 0;
  ASSERT_EQ(read(ready[0], &taken, 1), 1);
  EXPECT_TRUE(taken);
  EXPECT_TRUE(FileLock::is_held(path()));
  kill(child, SIGKILL);
  FileLock next(path(), "[test] ");
  next.wait();
  EXPECT_TRUE(FileLock::is_held(path()));
  waitpid(child, nullptr, 0);
  close(ready[0]);
}

TEST_F(Locks, AFolderThatIsNotThere) {
  try {
    FileLock lock(folder_.path("none/.lock"), "[test] ");
    FAIL();
  } catch (const lmx::RunError& e) {
    EXPECT_STREQ(e.what(),
                 ("[test] cannot write " + folder_.path("none/.lock") + ": No such file or directory").c_str());
  }
}

}  // namespace
}  // namespace lmx_test

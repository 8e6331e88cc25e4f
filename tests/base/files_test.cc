// Whole files that are written once, and locks of files between processes.
#include "base/output_file.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "base/files.h"
#include "lmx/error.h"
#include "test.h"

namespace lmx_test {

// OutputFile: until close(), the file that has the name is unchanged, whatever its type.

namespace {
std::function<void()> g_before_flock;  // called once, before the next call of flock()
}
}  // namespace lmx_test

// Replaces the function of the C library in this program, so that a test can act between two calls of the core.
extern "C" __attribute__((visibility("default"))) int flock(int file, int operation) noexcept {
  if (const auto act = std::exchange(lmx_test::g_before_flock, nullptr)) act();
  static const auto real = reinterpret_cast<int (*)(int, int)>(dlsym(RTLD_NEXT, "flock"));
  return real(file, operation);
}

namespace lmx_test {
namespace {

using lmx::OutputFile;

class Outputs : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  mode_t mode(const std::string& name) const {
    struct stat file {};
    EXPECT_EQ(stat(path(name).c_str(), &file), 0);
    return file.st_mode & 07777;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const fs::directory_entry& entry : fs::directory_iterator(path(""))) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  // Leaves temporary files of `out`, as a process that was killed while it wrote.
  void leave_files(int count) const {
    const auto write = [&] {
      for (int i = 0; i < count; ++i) new OutputFile(path("out"));  // never destroyed
      return 0;
    };
    EXPECT_EQ(in_child(write), 0);
  }

  const TempFolder folder_;
};

// All the names under which a command can be given its own input as output.
TEST_F(Outputs, AnInputIsIntactUntilTheEnd) {
  folder_.write("in", "text");
  fs::create_hard_link(path("in"), path("hard"));
  fs::create_symlink("in", path("soft"));
  for (const std::string name : {"in", "./in", "hard", "soft"}) {
    folder_.write("in", "text");
    lmx::InputFile in(path("in"), lmx::Content::bytes);
    OutputFile out(path(name));
    out.write("half");
    EXPECT_EQ(lmx::read_file(path("in")), "text") << name;
    char buffer[8];
    EXPECT_EQ(in.read(buffer, sizeof buffer), 4u) << name;
    out.close();
    EXPECT_EQ(lmx::read_file(path(name)), "half");
  }
}

TEST_F(Outputs, AFolderIsNoInput) {
  EXPECT_THAT(user_error([&] { lmx::read_file(path("")); }), HasSubstr("it is a folder"));
}

TEST_F(Outputs, NothingAppearsWithoutClose) {
  folder_.write("old", "old");
  {
    OutputFile replaced(path("old")), made(path("new"));
    replaced.write("x");
    made.write("x");
  }
  EXPECT_EQ(names(), std::vector<std::string>{"old"});
  EXPECT_EQ(lmx::read_file(path("old")), "old");
}

TEST_F(Outputs, ALinkStaysAndItsTargetIsReplaced) {
  fs::create_directory(path("elsewhere"));
  fs::create_symlink("elsewhere/target", path("second"));
  fs::create_symlink("second", path("first"));
  for (const std::string text : {"made", "replaced"}) {
    lmx::write_file(path("first"), text);
    EXPECT_TRUE(fs::is_symlink(path("first")) && fs::is_symlink(path("second")));
    EXPECT_EQ(lmx::read_file(path("elsewhere/target")), text);
  }
  fs::create_symlink("loop", path("loop"));
  EXPECT_THROW(lmx::write_file(path("loop"), "x"), lmx::RunError);
}

TEST_F(Outputs, ADeviceAndAFifoAreWrittenTo) {
  lmx::write_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THROW(lmx::write_file("/dev/full", "x"), lmx::RunError);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = lmx::read_file(path("fifo")); });
  lmx::write_file(path("fifo"), "through");
  reader.join();
  EXPECT_EQ(read, "through");
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
}

TEST_F(Outputs, AFileWithoutANameIsWrittenTo) {
  const int descriptor = memfd_create("lmx-test", MFD_CLOEXEC);
  const std::string name = "/proc/self/fd/" + std::to_string(descriptor);
  for (const std::string text : {"a longer text", "short"}) {
    lmx::write_file(name, text);
    EXPECT_EQ(lmx::read_file(name), text);
  }
  close(descriptor);
}

// `lmx translate RUN --output /dev/stdout > file` adds to what the shell's file contains.
TEST_F(Outputs, TheFileOfStandardOutputGetsTheBytes) {
  const auto write_three = [&] {
    if (!std::freopen(path("out").c_str(), "w", stdout)) return 1;
    static_cast<void>(!write(STDOUT_FILENO, "first ", 6));
    lmx::write_file("/dev/stdout", "second ");
    lmx::write_file("-", "third");
    return 0;
  };
  EXPECT_EQ(in_child(write_three), 0);
  EXPECT_EQ(lmx::read_file(path("out")), "first second third");
}

TEST_F(Outputs, TheUmaskDecidesAndAFileKeepsItsPermissions) {
  const mode_t before = umask(002);
  lmx::write_file(path("new"), "x");
  fs::permissions(path("new"), fs::perms(0640));
  folder_.write("secret", "x");
  fs::permissions(path("secret"), fs::perms(0600));
  lmx::write_file(path("secret"), "y");
  lmx::write_file(path("group"), "y");
  umask(before);
  EXPECT_EQ(mode("group"), 0664u);
  EXPECT_EQ(mode("secret"), 0600u);
}

// A process that was killed while it wrote leaves its temporary file. The next one that writes the file removes it, but
// neither that of a process that still writes nor what has another type.
TEST_F(Outputs, LeftoversOfDeadProcessesAreRemoved) {
  leave_files(1);
  ASSERT_EQ(names().size(), 1u);
  EXPECT_THAT(names()[0], StartsWith("out.tmp-"));
  folder_.write("victim", "intact");
  fs::create_symlink("victim", path("out.tmp-link"));
  OutputFile living(path("out"));
  lmx::write_file(path("out"), "done");
  const std::vector<std::string> left = names();
  ASSERT_EQ(left.size(), 4u) << "out, the link, the victim, and the file of the living one";
  EXPECT_EQ(lmx::read_file(path("victim")), "intact");
  living.write("later");
  living.close();
  EXPECT_EQ(lmx::read_file(path("out")), "later");
  EXPECT_EQ(names(), (std::vector<std::string>{"out", "out.tmp-link", "victim"}));
}

TEST_F(Outputs, LeftoversOfSeveralProcessesAreRemovedTogether) {
  leave_files(3);
  ASSERT_EQ(names().size(), 3u);
  lmx::write_file(path("out"), "done");
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

// Each writer removes leftovers while the others write: it must not take a living writer's file for one.
TEST_F(Outputs, ConcurrentWritersOfOneFileDoNotRemoveEachOthers) {
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c', 'd'})
    writers.emplace_back([this, letter] {
      for (int i = 0; i < 50; ++i) lmx::write_file(path("out"), std::string(1000, letter));
    });
  for (std::thread& writer : writers) writer.join();
  const std::string last = lmx::read_file(path("out"));
  EXPECT_EQ(last, std::string(1000, last.at(0)));
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

// A writer opens the temporary file of another one, which is renamed before the writer locks it. The name then belongs
// to the file of a third one.
TEST_F(Outputs, AFileThatTakesOverANameIsNoLeftover) {
  OutputFile first(path("out"));
  std::unique_ptr<OutputFile> third;
  g_before_flock = [&] {
    first.close();
    third = std::make_unique<OutputFile>(path("out"));
    third->write("third");
  };
  OutputFile second(path("out"));
  ASSERT_TRUE(third) << "flock() was not called by the core";
  second.write("second");
  second.close();
  EXPECT_EQ(lmx::read_file(path("out")), "second");
  third->close();
  EXPECT_EQ(lmx::read_file(path("out")), "third");
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(Outputs, ALongNameHasATemporaryFile) {
  const std::string name(255, 'n');
  lmx::write_file(path(name), "x");
  EXPECT_EQ(names(), std::vector<std::string>{name});
}

TEST_F(Outputs, ProblemsAreFoundBeforeTheWork) {
  folder_.write("file", "x");
  EXPECT_THAT(lmx::output_problem(path("new")), IsEmpty());
  EXPECT_THAT(lmx::output_problem(path("file")), IsEmpty());
  EXPECT_THAT(lmx::output_problem("-"), IsEmpty());
  EXPECT_THAT(lmx::output_problem("/dev/null"), IsEmpty());
  EXPECT_THAT(lmx::output_problem(path("")), testing::HasSubstr("Is a directory"));
  EXPECT_THAT(lmx::output_problem(path("none/new")), testing::HasSubstr("there is no folder"));
  EXPECT_THAT(lmx::output_problem(path("file/new")), testing::HasSubstr("there is no folder"));
  EXPECT_THAT(lmx::output_problem(""), testing::HasSubstr("empty"));
}

// Locks of files between processes.

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
  const pid_t child = start_child([&] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    FileLock lock(path(), "[test] ");
    const char taken = lock.take();
    if (write(ready[1], &taken, 1) == 1) pause();
    return 1;
  });
  close(ready[1]);
  char taken = 0;
  ASSERT_EQ(read(ready[0], &taken, 1), 1);
  EXPECT_TRUE(taken);
  EXPECT_TRUE(FileLock::is_held(path()));
  kill(child, SIGKILL);
  FileLock next(path(), "[test] ");
  next.wait();
  EXPECT_TRUE(FileLock::is_held(path()));
  EXPECT_EQ(exit_code_of(child), 128 + SIGKILL);
  close(ready[0]);
}

TEST_F(Locks, AFolderThatIsNotThere) {
  const std::string path = folder_.path("none/.lock");
  EXPECT_EQ(run_error([&] { FileLock lock(path, "[test] "); }),
            "[test] cannot write " + path + ": No such file or directory");
}

}  // namespace
}  // namespace lmx_test

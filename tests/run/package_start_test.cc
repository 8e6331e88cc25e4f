// The start script of packages that contain their libraries (tools/start.in), on a machine whose own libraries are new
// enough and on one whose loader refuses the program. In the second case this lmx is an argument of another loader, but
// starts ranks and checks plugins as usual.
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

// The folder of a package, with this build in it.
class PackageStart : public RunTest {
 protected:
  PackageStart() {
    fs::create_directories(folder_ / "p/bin");
    fs::create_directories(folder_ / "p/libexec");
    fs::create_symlink(build_path("/bin/lmx"), folder_ / "p/libexec/lmx");
    fs::create_symlink(build_path("/lib"), folder_ / "p/lib");
    fs::copy_file("/lib64/ld-linux-x86-64.so.2", folder_ / "p/libexec/ld-linux-x86-64.so.2");
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  void SetUp() override {
    GTEST_SKIP() << "a sanitizer must be the first library of its program";
  }
#endif
  Outcome start(const std::string& loader_of_machine, const Words& words) const {
    const std::string known = "/lib64/ld-linux-x86-64.so.2";
    std::string script = read_file(build_path("/share/start"));
    script.replace(script.find(known), known.size(), loader_of_machine);
    write("p/bin/lmx", script);
    fs::permissions(folder_ / "p/bin/lmx", fs::perms::owner_all);
    fs::create_directories(folder_ / "links");
    std::error_code known_link;
    fs::create_symlink(folder_ / "p/bin/lmx", folder_ / "links/lmx", known_link);
    return run_process(joined({path("links/lmx")}, words), environment());
  }
  std::string loss_with(const std::string& loader, const std::string& dir) const {
    const Outcome o = start(
        loader, {"run", path("tiny.yaml"), "run.dir=" + path(dir), "train.steps=3", "comm={name: gloo, ranks: 2}"});
    EXPECT_THAT(o, Succeeds());
    const Match loss = first_match(o.out, "valid nll_nat ([0-9.]+)");
    return loss.empty() ? "no loss with " + loader : loss[1];
  }
};

TEST_F(PackageStart, BothLoadersStartRanksWithEqualResults) {
  EXPECT_EQ(loss_with("/lib64/ld-linux-x86-64.so.2", "new"), loss_with("/none/ld-linux-x86-64.so.2", "old"));
}

TEST_F(PackageStart, AMachineWithOlderLibrariesGetsTheLoaderOfThePackage) {
  // The words of the loader are no part of this command's own.
  EXPECT_THAT(start("/none/ld-linux-x86-64.so.2", {"plugins", "new", "schedule", "mine", "--dir", path("mine")}),
              Prints("-DCMAKE_PREFIX_PATH=" + path("p") + "\n"));
  const Outcome check =
      start("/none/ld-linux-x86-64.so.2",
            {"plugins", "check", build_path("/lib/lmx/plugins/batcher/random_windows/random_windows.so")});
  EXPECT_THAT(check, Succeeds());
}

TEST_F(PackageStart, AMachineWithNewEnoughLibrariesUsesThem) {
  const Outcome o = start("/lib64/ld-linux-x86-64.so.2", {"plugins", "new", "schedule", "mine", "--dir", path("mine")});
  EXPECT_THAT(o, Succeeds());
  EXPECT_THAT(o.out, HasSubstr("cmake --install " + build_path() + " "));  // the program itself, which is a link here
}

}  // namespace
}  // namespace lmx_test

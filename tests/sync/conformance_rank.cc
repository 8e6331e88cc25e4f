// One rank of the jobs that conformance_test.cc starts: `conformance_rank GROUP RANKS PER_NODE [DEVICE
// [EVERY]]`. Failures are printed to stderr; rank 0 prints the digest of all results. Exits with 1 if a check failed on
// any rank.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "comm/rank_device.h"
#include "lmx/launch.h"
#include "recipe/comm_config.h"
#include "sync/shipped_strategies.h"

namespace lmx::sync_test {
namespace {

int run(const std::string& group, const std::string& ranks, const std::string& per_node, const std::string& device,
        size_t every) {
  Registry::instance().add_default_directories();
  const Node node =
      parse_yaml(str("{name: ", group, ", ranks: ", ranks, ", ranks_per_node: ", per_node, "}"), "conformance_rank");
  int64_t failed = 0;
  make_comm_group(node, "comm", {1, {}})->run([&](Communicator& comm) {
    const Conformance own = conformance(comm, comm::device_of_rank(device, "conformance_rank: ", comm), every);
    for (const std::string& f : own.failures) std::cerr << f + "\n";
    const auto count = static_cast<double>(own.failures.size());
    for (const double n : comm.gather_numbers(std::span(&count, 1), "test")) failed += static_cast<int64_t>(n);
    if (comm.rank() == 0) std::cout << "digest " << own.digest << "\n";
  });
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace lmx::sync_test

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(600);
  if (argc < 4) return 64;
  try {
    return lmx::sync_test::run(argv[1], argv[2], argv[3], argc > 4 ? argv[4] : "cpu",
                               argc > 5 ? std::stoul(argv[5]) : 1);
  } catch (const lmx::EndProcess& e) {
    if (!e.said) std::cerr << "error: " << e.what() << "\n";
    return e.code;
  } catch (const std::exception& e) {
    std::cerr << "error: " << lmx::error_prefix() << e.what() << "\n";
    return 1;
  }
}

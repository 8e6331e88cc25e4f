// Programs that are no ranks connect to the sockets for data while the ranks of a job connect, and afterwards.
//
// The test plays rank 1 at the store up to the moment when rank 0 listens. Rank 0 then waits for the address of rank 1,
// which a real process publishes only when the strangers have tried.
#include <gloo/rendezvous/file_store.h>

#include <cstring>
#include <set>

#include "loopback.h"
#include "process_jobs.h"
#include "start.h"
#include "store.h"

namespace lmx_test {
namespace {

class GlooStrangers : public Gloo {
 protected:
  // Where rank 0 of two ranks on 127.0.0.1 listens for rank 1.
  static sockaddr_storage data_address_of_zero(gloo::rendezvous::Store& store) {
    const std::string own = "127.0.0.1\n";
    store.set("listens/1", {own.begin(), own.end()});
    store.set("connects/1", {own.begin(), own.end()});
    store.wait({"0"});
    const std::vector<char> published = store.get("0");  // Gloo's key of the addresses of rank 0
    sockaddr_storage address{};
    if (published.size() < sizeof address) throw std::runtime_error("no address");
    std::memcpy(&address, published.data(), sizeof address);
    return address;
  }
  // Whether a process listens at any TCP port of IPv4.
  static bool listens(pid_t process) {
    std::set<std::string> listening;
    std::ifstream sockets(lmx::str("/proc/", process, "/net/tcp"));
    constexpr size_t kState = 3, kNode = 9;
    for (std::string line; std::getline(sockets, line);) {
      std::istringstream words(line);
      const std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
      if (word.size() > kNode && word[kState] == "0A") listening.insert("socket:[" + word[kNode] + "]");
    }
    for (const auto& entry : std::filesystem::directory_iterator(lmx::str("/proc/", process, "/fd"))) {
      std::error_code closed;
      if (listening.contains(std::filesystem::read_symlink(entry, closed))) return true;
    }
    return false;
  }
};

TEST_F(GlooStrangers, DoNotDisturbTheConnectionsOfTheRanks) {
  const FreePort port;
  const auto zero = rank(0, 2, "until_signal", meeting(port));
  lmx_gloo::StoreClient store({"127.0.0.1", port.number()}, kSecret);
  const sockaddr_storage data = data_address_of_zero(store);
  EXPECT_TRUE(listens(zero->pid()));
  const Caller silent("127.0.0.2", data), noisy("127.0.0.3", data);
  const std::string noise("\x9d\x13\xff\x02 no message of Gloo");
  static_cast<void>(!send(noisy.get(), noise.data(), noise.size(), MSG_NOSIGNAL));
  const auto one = rank(1, 2, "until_signal", meeting(port));
  ASSERT_TRUE(zero->wait_for_ranks(1)) << zero->err();
  ASSERT_TRUE(one->wait_for_ranks(1)) << one->err();
  for (const auto& job : {&zero, &one}) EXPECT_FALSE(listens((*job)->pid()));
  const Caller late("127.0.0.2", data), same_address("127.0.0.1", data);
  for (const Caller* caller : {&silent, &noisy, &late, &same_address}) EXPECT_FALSE(caller->connected());
  kill(zero->pid(), SIGTERM);
  for (const auto& job : {&zero, &one}) {
    EXPECT_EQ((*job)->wait(), 128 + SIGTERM) << (*job)->err();
    EXPECT_EQ((*job)->err(), "");
  }
}

// Gloo gives the connection of a program on the same host, which the filter cannot tell from a rank, to the pair. The
// lmx that has started the ranks reports the rank that loses it, so the rank itself prints nothing.
TEST_F(GlooStrangers, OfTheSameHostEndARank) {
  const TempFolder folder;
  Job zero({"env", "LMX_RANK=0", "LMX_RANKS=2", "LMX_RENDEZVOUS=" + folder.root().string(), rank_program(),
            "until_signal", config(0, "lag_s: 60")});
  gloo::rendezvous::FileStore store(folder.root());
  const sockaddr_storage data = data_address_of_zero(store);
  { const Caller stranger("127.0.0.1", data); }
  const std::vector<char> own(reinterpret_cast<const char*>(&data), reinterpret_cast<const char*>(&data + 1));
  store.set("1", own);
  EXPECT_EQ(zero.wait(), lmx_gloo::kDisturbed);
  EXPECT_EQ(zero.err(), "");
}

}  // namespace
}  // namespace lmx_test

// The filter of a listening socket by itself: which connections the kernel accepts, and which it drops.
#include "source_filter.h"

#include <gtest/gtest.h>
#include <linux/sock_diag.h>
#include <sys/ioctl.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "loopback.h"

namespace lmx_test {
namespace {

using boost::asio::ip::make_address;
using lmx_gloo::IpAddress;

int listen_at(const std::string& ip) {
  const int socket = ::socket(loopback_address(ip).ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_storage address = loopback_address(ip);
  if (bind(socket, reinterpret_cast<const sockaddr*>(&address), length_of(address)) == 0 && listen(socket, 16) == 0)
    return socket;
  close(socket);
  return -1;
}

// Packets that the kernel has dropped before they reached this socket.
uint32_t drops(int socket) {
  std::array<uint32_t, SK_MEMINFO_VARS> counters{};
  socklen_t length = sizeof counters;
  EXPECT_EQ(getsockopt(socket, SOL_SOCKET, SO_MEMINFO, counters.data(), &length), 0);
  return counters[SK_MEMINFO_DROPS];
}

class SourceFilter : public testing::Test {
 protected:
  void receive_only_from(const std::vector<std::string>& sources) {
    std::vector<IpAddress> addresses;
    for (const std::string& source : sources) addresses.push_back(make_address(source));
    ASSERT_EQ(lmx_gloo::receive_only_from(addresses, socket_.get()), 0);
  }
  // Waits until the kernel has either connected or dropped a connection from this address.
  bool accepts(const std::string& from) {
    const uint32_t before = drops(socket_.get());
    const Caller caller(from, own_address(socket_.get()));
    while (!caller.connected() && drops(socket_.get()) == before) std::this_thread::yield();
    return caller.connected();
  }

  const Socket socket_{listen_at("127.0.0.1")};
};

TEST_F(SourceFilter, AcceptsTheGivenAddressesOnly) {
  EXPECT_TRUE(accepts("127.0.0.2"));
  receive_only_from({"127.0.0.1"});
  EXPECT_TRUE(accepts("127.0.0.1"));
  EXPECT_FALSE(accepts("127.0.0.2"));
  receive_only_from({"127.0.0.2", "127.0.0.3", "127.0.0.3"});
  EXPECT_FALSE(accepts("127.0.0.1"));
  EXPECT_TRUE(accepts("127.0.0.2"));
  EXPECT_TRUE(accepts("127.0.0.3"));
  EXPECT_FALSE(accepts("127.0.0.4"));
}

TEST_F(SourceFilter, AcceptsNothingWithoutAddresses) {
  receive_only_from({});
  for (const char* from : {"127.0.0.1", "127.0.0.2"}) EXPECT_FALSE(accepts(from));
}

// Distances in a filter have eight bits where it branches.
TEST_F(SourceFilter, ManyAddresses) {
  std::vector<std::string> sources;
  for (int i = 0; i < 600; ++i)
    sources.push_back(
        lmx_gloo::IpAddress(boost::asio::ip::address_v4(0x7f010000u + static_cast<unsigned>(i))).to_string());
  for (int i = 1; i < 40; ++i) sources.push_back("fd00::" + std::to_string(i));
  receive_only_from(sources);
  for (const char* from : {"127.1.0.0", "127.1.1.3", "127.1.2.87"}) EXPECT_TRUE(accepts(from)) << from;
  for (const char* from : {"127.1.2.88", "127.0.0.1"}) EXPECT_FALSE(accepts(from)) << from;
}

TEST_F(SourceFilter, MoreAddressesThanTheKernelTakesAreAnError) {
  const std::vector<IpAddress> sources(3000, make_address("127.0.0.2"));
  EXPECT_NE(lmx_gloo::receive_only_from(sources, socket_.get()), 0);
  EXPECT_TRUE(accepts("127.0.0.1"));
}

// A connection has the filter that its listening socket had when it was accepted, and so receives what its peer sends.
TEST_F(SourceFilter, AConnectionContinuesWhenItsListenerReceivesNothing) {
  receive_only_from({"127.0.0.2"});
  const Caller caller("127.0.0.2", own_address(socket_.get()));
  const Socket accepted(accept(socket_.get(), nullptr, nullptr));
  receive_only_from({});
  EXPECT_FALSE(accepts("127.0.0.2"));
  fcntl(caller.get(), F_SETFL, 0);
  const std::string sent(8u << 20, 'x');
  std::string got(sent.size(), ' ');
  std::thread sender(
      [&] { EXPECT_EQ(send(caller.get(), sent.data(), sent.size(), 0), static_cast<ssize_t>(sent.size())); });
  EXPECT_EQ(recv(accepted.get(), got.data(), got.size(), MSG_WAITALL), static_cast<ssize_t>(got.size()));
  sender.join();
  EXPECT_EQ(got, sent);
}

TEST_F(SourceFilter, FindsAListeningSocketByItsAddress) {
  const sockaddr_storage address = own_address(socket_.get());
  const Caller caller("127.0.0.1", address);
  const Socket accepted(accept(socket_.get(), nullptr, nullptr));  // has the same address and port
  EXPECT_EQ(lmx_gloo::listening_socket(address), socket_.get());
  EXPECT_EQ(lmx_gloo::listening_socket(own_address(caller.get())), std::nullopt);
  EXPECT_EQ(lmx_gloo::ip_of(address), make_address("127.0.0.1"));
}

TEST(Sources, AreTheAddressesFromWhichThisHostConnects) {
  EXPECT_EQ(lmx_gloo::source_towards(make_address("127.0.0.1")), make_address("127.0.0.1"));
  const Socket socket(listen_at("127.0.0.7"));
  const sockaddr_storage to = own_address(socket.get());
  const Socket caller(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(connect(caller.get(), reinterpret_cast<const sockaddr*>(&to), length_of(to)), 0);
  EXPECT_EQ(lmx_gloo::source_towards(make_address("127.0.0.7")), lmx_gloo::ip_of(own_address(caller.get())));
}

class SourceFilterV6 : public SourceFilter {
 protected:
  void SetUp() override {
    if (six_.get() < 0) GTEST_SKIP() << "this host has no IPv6";
  }
  bool accepts_six(const std::vector<IpAddress>& sources) {
    EXPECT_EQ(lmx_gloo::receive_only_from(sources, six_.get()), 0);
    const uint32_t before = drops(six_.get());
    const Caller caller("::1", own_address(six_.get()));
    while (!caller.connected() && drops(six_.get()) == before) std::this_thread::yield();
    return caller.connected();
  }
  const Socket six_{listen_at("::1")};
};

TEST_F(SourceFilterV6, ComparesTheWholeAddress) {
  const auto six = [](const char* text) { return make_address(text); };
  EXPECT_TRUE(accepts_six({six("::1")}));
  EXPECT_TRUE(accepts_six({six("127.0.0.1"), six("fd00::1"), six("::1")}));
  for (const char* other : {"::2", "::1:0:1", "0:0:1::1", "1::1", "0:1::1", "127.0.0.1"})
    EXPECT_FALSE(accepts_six({six(other)})) << other;
  EXPECT_FALSE(accepts_six({}));
  EXPECT_EQ(lmx_gloo::source_towards(six("::1")), six("::1"));
  EXPECT_EQ(lmx_gloo::listening_socket(own_address(six_.get())), six_.get());
  EXPECT_EQ(lmx_gloo::ip_of(own_address(six_.get())), six("::1"));
}

}  // namespace
}  // namespace lmx_test

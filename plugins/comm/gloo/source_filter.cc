#include "source_filter.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace lmx_gloo {
namespace {

namespace asio = boost::asio;
using Program = std::vector<sock_filter>;

constexpr uint32_t kDrop = 0, kAccept = 0xffffffff;  // bytes of the packet that remain
constexpr uint32_t kNetworkHeader = static_cast<uint32_t>(SKF_NET_OFF);

sock_filter statement(int code, uint32_t k) {
  return {static_cast<uint16_t>(code), 0, 0, k};
}
sock_filter load_word(uint32_t at) {
  return statement(BPF_LD | BPF_W | BPF_ABS, kNetworkHeader + at);
}
// Continues behind the next `otherwise` instructions if the loaded value is not `value`.
sock_filter skip_unless(uint32_t value, size_t otherwise) {
  return {BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<uint8_t>(otherwise), value};
}

// The source address is the fourth word of an IPv4 header, and the third to sixth word of an IPv6 header.
void add_v4(Program& program, const asio::ip::address_v4& source) {
  constexpr uint32_t kSource = 12;
  program.insert(program.end(),
                 {load_word(kSource), skip_unless(source.to_uint(), 1), statement(BPF_RET | BPF_K, kAccept)});
}

void add_v6(Program& program, const asio::ip::address_v6& source) {
  constexpr uint32_t kSource = 8, kWords = 4;
  const asio::ip::address_v6::bytes_type bytes = source.to_bytes();
  for (uint32_t word = 0; word < kWords; ++word) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + 4 * word, sizeof value);
    program.push_back(load_word(kSource + 4 * word));
    program.push_back(skip_unless(ntohl(value), 2 * (kWords - 1 - word) + 1));
  }
  program.push_back(statement(BPF_RET | BPF_K, kAccept));
}

// An IPv6 socket receives IPv4 packets too if its own address is an IPv4 address in the form of IPv6.
std::optional<asio::ip::address_v4> as_v4(const IpAddress& address) {
  if (address.is_v4()) return address.to_v4();
  if (!address.to_v6().is_v4_mapped()) return std::nullopt;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

// Tells the two kinds of packets apart, then compares the source of a packet with each address of its kind.
Program filter_of(std::span<const IpAddress> sources) {
  Program v4, v6;
  for (const IpAddress& source : sources) {
    if (const auto mapped = as_v4(source)) {
      add_v4(v4, *mapped);
    } else {
      add_v6(v6, source.to_v6());
    }
  }
  const sock_filter drop = statement(BPF_RET | BPF_K, kDrop);
  v4.push_back(drop);
  v6.push_back(drop);
  constexpr uint32_t kVersion = 0xf0, kVersion4 = 0x40;
  Program program{statement(BPF_LD | BPF_B | BPF_ABS, kNetworkHeader), statement(BPF_ALU | BPF_AND | BPF_K, kVersion),
                  skip_unless(kVersion4, 1), statement(BPF_JMP | BPF_JA, static_cast<uint32_t>(v6.size()))};
  program.insert(program.end(), v6.begin(), v6.end());
  program.insert(program.end(), v4.begin(), v4.end());
  return program;
}

bool listens(int socket) {
  int value = 0;
  socklen_t length = sizeof value;
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value != 0;
}

bool same_port(const sockaddr_storage& a, const sockaddr_storage& b) {
  const auto port = [](const sockaddr_storage& s) {
    return s.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(s).sin_port
                                  : reinterpret_cast<const sockaddr_in6&>(s).sin6_port;
  };
  return a.ss_family == b.ss_family && port(a) == port(b);
}

bool is_ip(const sockaddr_storage& address) {
  return address.ss_family == AF_INET || address.ss_family == AF_INET6;
}

}  // namespace

int receive_only_from(std::span<const IpAddress> sources, int socket) {
  Program program = filter_of(sources);
  if (program.size() > BPF_MAXINSNS) return E2BIG;
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0 ? 0 : errno;
}

IpAddress ip_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return asio::ip::address_v4(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  return asio::ip::address_v6(bytes, v6.sin6_scope_id);
}

std::optional<int> listening_socket(const sockaddr_storage& address) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = entry.path().filename();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length) != 0 || !is_ip(own)) continue;
    if (same_port(own, address) && ip_of(own) == ip_of(address) && listens(descriptor)) return descriptor;
  }
  return std::nullopt;
}

std::optional<IpAddress> source_towards(const IpAddress& other) {
  constexpr unsigned short kAnyPort = 9;
  asio::io_context io;
  asio::ip::udp::socket socket(io);
  boost::system::error_code error;
  socket.connect({other, kAnyPort}, error);
  if (error) return std::nullopt;
  const IpAddress source = socket.local_endpoint(error).address();
  return error ? std::nullopt : std::optional(source);
}

}  // namespace lmx_gloo

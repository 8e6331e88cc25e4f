// Ports for ranks that a test starts by the variables of torchrun.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

namespace lmx_test {

// `count` free ports in a row of this host's loopback. While the object lives, no other program gets them: only one
// that sets SO_REUSEADDR and knows the number, as rank 0 does, can listen on them. Until then connections are refused.
class FreePort {
 public:
  explicit FreePort(size_t count = 1) {
    while (sockets_.size() < count)
      if (!hold(sockets_.empty() ? 0 : number_ + static_cast<int>(sockets_.size()))) release();
  }
  ~FreePort() { release(); }
  FreePort(const FreePort&) = delete;
  FreePort& operator=(const FreePort&) = delete;

  int number() const { return number_; }  // the first one

 private:
  bool hold(int port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    sockets_.push_back(socket);
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    const bool bound = port <= 65535 && bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0;
    if (port > 0) return bound;
    if (!bound || getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error("no free port");
    number_ = ntohs(address.sin_port);
    return true;
  }
  void release() {
    for (const int socket : sockets_) close(socket);
    sockets_.clear();
  }

  std::vector<int> sockets_;
  int number_ = 0;
};

}  // namespace lmx_test

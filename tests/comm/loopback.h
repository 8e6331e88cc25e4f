// Permissions of the kernel: sockets of the loopback network, and reads of the memory of a child.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string>

namespace lmx_test {

// Sockets on the loopback interface of this host that connect from an address of choice.

// A closed descriptor is -1.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(descriptor_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

inline socklen_t length_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

inline sockaddr_storage loopback_address(const std::string& ip, int port = 0) {
  sockaddr_storage address{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  if (inet_pton(AF_INET, ip.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(port));
  } else if (inet_pton(AF_INET6, ip.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    throw std::runtime_error("no address: " + ip);
  }
  return address;
}

inline sockaddr_storage own_address(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw std::runtime_error("getsockname failed");
  return address;
}

// Opens a connection from `ip`, as far as the other end accepts it. Does not wait.
class Caller {
 public:
  Caller(const std::string& ip, const sockaddr_storage& to)
      : socket_(::socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const sockaddr_storage from = loopback_address(ip);
    if (bind(get(), reinterpret_cast<const sockaddr*>(&from), length_of(from)) != 0)
      throw std::runtime_error("cannot bind " + ip);
    static_cast<void>(!connect(get(), reinterpret_cast<const sockaddr*>(&to), length_of(to)));
  }
  int get() const { return socket_.get(); }
  bool connected() const {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    return getpeername(get(), reinterpret_cast<sockaddr*>(&peer), &length) == 0;
  }

 private:
  Socket socket_;
};

// Whether the kernel lets a process read the memory of its children. Yama and the rules of a container may forbid it.
inline bool reads_allowed() {
  static int value = 5;
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  int copy = 0;
  const iovec to{&copy, sizeof copy}, from{&value, sizeof value};
  const bool allowed = process_vm_readv(child, &to, 1, &from, 1, 0) == sizeof value && copy == value;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return allowed;
}

}  // namespace lmx_test

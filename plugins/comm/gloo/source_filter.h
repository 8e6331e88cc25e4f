// Listening sockets that receive packets from given addresses only. The kernel drops all other packets, so that a
// program elsewhere finds no open port.
#pragma once

#include <sys/socket.h>

#include <boost/asio/ip/address.hpp>
#include <optional>
#include <span>

namespace lmx_gloo {

using IpAddress = boost::asio::ip::address;

// From now on, this socket and the connections that it accepts receive packets from these addresses alone; if there are
// no addresses, it receives nothing. Replaces an earlier filter of the socket. Returns 0, or the kernel's error.
int receive_only_from(std::span<const IpAddress> sources, int socket);

// The TCP socket of this process that listens at exactly this address and port. Throws std::system_error if the
// descriptors of the process cannot be listed.
std::optional<int> listening_socket(const sockaddr_storage& address);

IpAddress ip_of(const sockaddr_storage& address);

// The address from which this host would open a connection to `other`. No packet is sent.
std::optional<IpAddress> source_towards(const IpAddress& other);

}  // namespace lmx_gloo

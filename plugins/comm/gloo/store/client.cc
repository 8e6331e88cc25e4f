#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "lmx/error.h"
#include "proof.h"
#include "store.h"
#include "wire.h"

namespace lmx_gloo {

namespace asio = boost::asio;
using asio::ip::tcp;

class StoreClient::Client {
 public:
  Client(const StoreAddress& address, const std::string& secret) : socket_(io_) {
    connect(address);
    introduce(address, secret);
  }
  std::string own_address() const { return socket_.local_endpoint().address().to_string(); }

  std::vector<char> ask(Request kind, const std::string& key, const std::vector<char>& value) {
    LMX_CHECK(key.size() <= kMostKey && value.size() <= kMostValue, "store: key of ", key.size(), ", value of ",
              value.size(), " bytes");
    RequestHeader header{static_cast<uint8_t>(kind), {}, {}};
    put(header.key, static_cast<uint32_t>(key.size()));
    put(header.value, static_cast<uint32_t>(value.size()));
    try {
      asio::write(socket_, std::array<asio::const_buffer, 3>{asio::buffer(&header, sizeof header), asio::buffer(key),
                                                             asio::buffer(value)});
      unsigned char length[4];
      asio::read(socket_, asio::buffer(length));
      std::vector<char> answer(number(length));
      asio::read(socket_, asio::buffer(answer));
      return answer;
    } catch (const boost::system::system_error& e) {
      throw lmx::RunError("[gloo] rank 0 has left while the ranks were meeting: " + e.code().message());
    }
  }

 private:
  // Rank 0 may start last. The caller limits the time.
  void connect(const StoreAddress& address) {
    for (;;) {
      boost::system::error_code error;
      const auto found = tcp::resolver(io_).resolve(address.host, std::to_string(address.port), error);
      if (error == asio::error::host_not_found)
        throw lmx::UserError(lmx::str("[gloo] MASTER_ADDR=", address.host, ": ", error.message()));
      if (!error) asio::connect(socket_, found, error);
      if (!error) break;
      socket_.close(error);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    socket_.set_option(tcp::no_delay(true));
  }

  void introduce(const StoreAddress& address, const std::string& secret) {
    const Nonce own = random_nonce();
    Nonce theirs;
    Proof proof;
    try {
      asio::read(socket_, asio::buffer(theirs));
      const Proof shown = prove(secret, "rank", theirs, own);
      asio::write(socket_, std::array<asio::const_buffer, 2>{asio::buffer(own), asio::buffer(shown)});
      asio::read(socket_, asio::buffer(proof));
    } catch (const boost::system::system_error&) {
      throw lmx::UserError(lmx::str("[gloo] ", address.host, " port ", address.port,
                                    " has closed the connection: LMX_JOB_SECRET differs from rank 0's, or another "
                                    "program listens there (comm.port)"));
    }
    if (!equal(proof, prove(secret, "store", theirs, own)))
      throw lmx::UserError(lmx::str("[gloo] ", address.host, " port ", address.port,
                                    " does not know LMX_JOB_SECRET: it belongs to another job or program (comm.port)"));
  }

  asio::io_context io_;
  tcp::socket socket_;
};

StoreClient::StoreClient(const StoreAddress& address, const std::string& secret)
    : client_(std::make_unique<Client>(address, secret)) {}
StoreClient::~StoreClient() = default;

std::string StoreClient::own_address() const {
  return client_->own_address();
}

void StoreClient::set(const std::string& key, const std::vector<char>& data) {
  client_->ask(Request::set, key, data);
}

std::vector<char> StoreClient::get(const std::string& key) {
  return client_->ask(Request::get, key, {});
}

void StoreClient::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) get(key);
}

}  // namespace lmx_gloo

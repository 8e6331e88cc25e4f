#include "store.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <boost/asio.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx_gloo {

// Messages between a rank and the store. A request is a kind, the length of a key and of a value (big-endian), the key
// and the value. The answer to a get is the length of the value and the value; the answer to a set is the length 0.
constexpr uint32_t kMostKey = 255, kMostValue = 4u << 20;
enum class Request : uint8_t { set = 1, get = 2 };

struct RequestHeader {
  uint8_t kind = 0;
  unsigned char key[4] = {}, value[4] = {};
};
static_assert(sizeof(RequestHeader) == 9);

void put(unsigned char (&bytes)[4], uint32_t n) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<unsigned char>(n >> (24 - 8 * i));
}
uint32_t number(const unsigned char (&bytes)[4]) {
  uint32_t n = 0;
  for (const unsigned char byte : bytes) n = n << 8 | byte;
  return n;
}

// The proof that the two ends of a connection know the secret of a job.

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;

Nonce random_nonce() {
  Nonce nonce;
  if (RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) != 1)
    throw lmx::RunError("[gloo] the system provides no random numbers");
  return nonce;
}

// HMAC-SHA256 with the secret as its key. `role` separates the proofs of the two ends.
Proof prove(const std::string& secret, const std::string& role, const Nonce& of_store, const Nonce& of_rank) {
  std::string text = "lmx gloo store 1, " + role + ": ";
  text.append(of_store.begin(), of_store.end()).append(of_rank.begin(), of_rank.end());
  Proof proof;
  if (!HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
            reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(), nullptr))
    throw lmx::InternalError("[gloo] HMAC-SHA256 failed");
  return proof;
}

// In constant time.
bool equal(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

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

using asio::awaitable;
using asio::use_awaitable;

namespace {

// A connection that has not proved that it knows the secret is closed after this time.
constexpr std::chrono::seconds kToProve{10};

tcp::endpoint resolve(const StoreAddress& address) {
  asio::io_context io;
  boost::system::error_code error;
  const auto found = tcp::resolver(io).resolve(address.host, std::to_string(address.port), error);
  if (error) throw lmx::UserError(lmx::str("[gloo] MASTER_ADDR=", address.host, ": ", error.message()));
  return *found.begin();
}

}  // namespace

class StoreServer::Server {
 public:
  Server(const StoreAddress& address, const std::string& secret) : secret_(secret), acceptor_(io_), changed_(io_) {
    changed_.expires_at(std::chrono::steady_clock::time_point::max());
    const tcp::endpoint endpoint = resolve(address);
    const bool meant = address.host == "localhost" || address.host == "::1" || address.host.starts_with("127.");
    if (endpoint.address().is_loopback() && !meant)
      lmx::log_warn(
          lmx::str("[gloo] MASTER_ADDR=", address.host, " is ", endpoint.address().to_string(),
                   " on rank 0's host, which ranks of other hosts cannot reach; give another name or address"));
    try {
      acceptor_.open(endpoint.protocol());
      acceptor_.set_option(tcp::acceptor::reuse_address(true));
      acceptor_.bind(endpoint);
      acceptor_.listen();
    } catch (const boost::system::system_error& e) {
      throw lmx::UserError(lmx::str("[gloo] rank 0 cannot listen on MASTER_ADDR=", address.host, ", port ",
                                    address.port, ": ", e.code().message(),
                                    "; MASTER_ADDR must be an address of rank 0's host, and comm.port a free port"));
    }
    asio::co_spawn(io_, accept(), asio::detached);
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Server() {
    io_.stop();
    thread_.join();
  }
  int port() const { return acceptor_.local_endpoint().port(); }
  bool has(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return values_.contains(key);
  }

 private:
  awaitable<void> accept() {
    for (;;) {
      const auto socket = std::make_shared<tcp::socket>(io_);
      boost::system::error_code error;
      co_await acceptor_.async_accept(*socket, asio::redirect_error(use_awaitable, error));
      if (!error) {
        asio::co_spawn(io_, serve(socket), asio::detached);
        continue;
      }
      // Too many open files, for example: strangers are disconnected after kToProve.
      asio::steady_timer pause(io_, std::chrono::milliseconds(50));
      co_await pause.async_wait(use_awaitable);
    }
  }

  awaitable<void> serve(std::shared_ptr<tcp::socket> socket) {
    try {
      if (!co_await is_rank(socket)) co_return;
      for (;;) co_await answer(*socket);
    } catch (const std::exception&) {  // the rank has everything that it needs, or it is lost
    }
  }

  awaitable<bool> is_rank(std::shared_ptr<tcp::socket> shared) {
    tcp::socket& socket = *shared;
    const std::string from = socket.remote_endpoint().address().to_string();
    asio::steady_timer limit(io_, kToProve);
    // The timer may end at the same time as the read below, so its function owns what it uses.
    const auto proved = std::make_shared<bool>(false);
    limit.async_wait([shared, proved](const boost::system::error_code& error) {
      boost::system::error_code ignored;
      if (!error && !*proved) shared->close(ignored);
    });
    const Nonce own = random_nonce();
    Nonce theirs;
    Proof proof;
    co_await asio::async_write(socket, asio::buffer(own), use_awaitable);
    co_await asio::async_read(socket, std::array{asio::buffer(theirs), asio::buffer(proof)}, use_awaitable);
    *proved = true;
    limit.cancel();
    if (!equal(proof, prove(secret_, "rank", own, theirs))) {
      lmx::log_warn("[gloo] a connection from " + from + " does not know the job's secret and was refused");
      co_return false;
    }
    co_await asio::async_write(socket, asio::buffer(prove(secret_, "store", own, theirs)), use_awaitable);
    co_return true;
  }

  awaitable<void> answer(tcp::socket& socket) {
    RequestHeader header;
    co_await asio::async_read(socket, asio::buffer(&header, sizeof header), use_awaitable);
    const uint32_t key_length = number(header.key), value_length = number(header.value);
    if (key_length > kMostKey || value_length > kMostValue) throw lmx::RunError("[gloo] a request is too long");
    std::string key(key_length, '\0');
    std::vector<char> value(value_length);
    co_await asio::async_read(socket, std::array{asio::buffer(key), asio::buffer(value)}, use_awaitable);
    if (header.kind == static_cast<uint8_t>(Request::set)) {
      {
        const std::lock_guard lock(mutex_);
        values_[key] = std::move(value);
      }
      value.clear();
      changed_.cancel();  // wakes all that wait for a key
    } else {
      boost::system::error_code ignored;
      while (!values_.contains(key)) co_await changed_.async_wait(asio::redirect_error(use_awaitable, ignored));
      value = values_[key];
    }
    unsigned char length[4];
    put(length, static_cast<uint32_t>(value.size()));
    co_await asio::async_write(socket, std::array{asio::buffer(length), asio::buffer(value)}, use_awaitable);
  }

  std::string secret_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer changed_;
  std::mutex mutex_;  // of values_, which the thread below alone changes
  std::map<std::string, std::vector<char>> values_;
  std::thread thread_;
};

StoreServer::StoreServer(const StoreAddress& address, const std::string& secret)
    : server_(std::make_unique<Server>(address, secret)) {}
StoreServer::~StoreServer() = default;
int StoreServer::port() const {
  return server_->port();
}
bool StoreServer::has(const std::string& key) const {
  return server_->has(key);
}

}  // namespace lmx_gloo

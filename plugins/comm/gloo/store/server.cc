#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "lmx/error.h"
#include "lmx/log.h"
#include "proof.h"
#include "store.h"
#include "wire.h"

namespace lmx_gloo {

namespace asio = boost::asio;
using asio::awaitable;
using asio::use_awaitable;
using asio::ip::tcp;

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

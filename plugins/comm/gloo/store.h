// The addresses of the ranks at the start of a job: rank 0 serves them over TCP to ranks that know the job's secret.
//
// A rank and the store prove that they know the secret by HMAC-SHA256 of two random numbers, so the secret is never
// sent. The requests that follow are not encrypted: they contain addresses and names of hosts.
#pragma once

#include <gloo/rendezvous/store.h>

#include <memory>
#include <string>

namespace lmx_gloo {

struct StoreAddress {
  std::string host;  // name or number
  int port = 0;
};

// Serves a store until it is destroyed.
class StoreServer {
 public:
  // Listens on this address alone. UserError: the host is unknown, the address is not one of this host, the port is in
  // use.
  StoreServer(const StoreAddress& address, const std::string& secret);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  int port() const;
  bool has(const std::string& key) const;  // may be called in any thread

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

// A rank's connection to the store. Keys have up to 255 bytes, values up to 4 MiB.
class StoreClient final : public gloo::rendezvous::Store {
 public:
  // Repeats the attempt until the store is there. UserError: the host is unknown, or the store does not know the secret
  // or another one.
  StoreClient(const StoreAddress& address, const std::string& secret);
  ~StoreClient() override;
  std::string own_address() const;  // of this host, as the store sees it
  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;  // waits until another rank has set it
  void wait(const std::vector<std::string>& keys) override;

 private:
  class Client;
  std::unique_ptr<Client> client_;
};

}  // namespace lmx_gloo

#include "guarded_device.h"

#include <gloo/transport/tcp/address.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "lmx/error.h"
#include "lmx/log.h"
#include "waits.h"

namespace lmx_gloo {
namespace {

// Makes pairs by a context of Gloo's own class, whose header some distributions leave out.
class GuardedContext final : public gloo::transport::Context {
 public:
  GuardedContext(std::shared_ptr<gloo::transport::Context> context, std::shared_ptr<GuardedDevice> device)
      : Context(context->rank, context->size), device_(std::move(device)), context_(std::move(context)) {}

  std::unique_ptr<gloo::transport::Pair>& createPair(int other) override {
    context_->setTimeout(getTimeout());
    for (;;) {
      std::unique_ptr<gloo::transport::Pair>& pair = context_->createPair(other);
      if (device_->guard(*pair)) return pair;
    }
  }
  std::unique_ptr<gloo::transport::Pair>& getPair(int other) override { return context_->getPair(other); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, size_t bytes) override {
    return context_->createUnboundBuffer(data, bytes);
  }

 private:
  std::shared_ptr<GuardedDevice> device_;
  std::shared_ptr<gloo::transport::Context> context_;
};

const sockaddr_storage& address_of(const gloo::transport::Pair& pair) {
  return dynamic_cast<const gloo::transport::tcp::Address&>(pair.address()).getSockaddr();
}

bool has_connection(int listening) {
  pollfd waiting{listening, POLLIN, 0};
  return poll(&waiting, 1, 0) > 0;
}

// Addresses are stored as text, one in each line.
void publish(gloo::rendezvous::Store& store, const std::string& key, const std::vector<IpAddress>& addresses) {
  std::string text;
  for (const IpAddress& address : addresses) text += address.to_string() + "\n";
  store.set(key, {text.begin(), text.end()});
}

std::vector<IpAddress> published(gloo::rendezvous::Store& store, const std::string& key) {
  store.wait({key});
  const std::vector<char> value = store.get(key);
  std::istringstream lines(std::string(value.begin(), value.end()));
  std::vector<IpAddress> addresses;
  for (std::string line; std::getline(lines, line);) addresses.push_back(boost::asio::ip::make_address(line));
  return addresses;
}

void make_unique(std::vector<IpAddress>& addresses) {
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
}

// While it exists, this thread starts threads that wait for a free processor when they wake up.
class PatientThreads {
 public:
  PatientThreads() : changed_(sched_getscheduler(0) == SCHED_OTHER && set(SCHED_BATCH)) {}
  ~PatientThreads() {
    if (changed_) set(SCHED_OTHER);
  }
  PatientThreads(const PatientThreads&) = delete;
  PatientThreads& operator=(const PatientThreads&) = delete;

 private:
  static bool set(int policy) {
    const sched_param no_priority{};
    return sched_setscheduler(0, policy, &no_priority) == 0;
  }
  bool changed_;
};

}  // namespace

// If another thread has locked a connection, Gloo's thread for events asks the kernel for the same event again and
// again until it can lock it. Had it taken the processor from that thread in the middle of a send, both would wait
// until the kernel takes it away again, a millisecond in each message.
std::shared_ptr<GuardedDevice> GuardedDevice::make(const gloo::transport::tcp::attr& attributes) {
  const PatientThreads patient;
  return std::make_shared<GuardedDevice>(attributes);
}

GuardedDevice::GuardedDevice(const gloo::transport::tcp::attr& attributes)
    : Device(gloo::transport::tcp::CreateDeviceAttr(attributes)) {}

std::shared_ptr<gloo::transport::Context> GuardedDevice::createContext(int rank, int size) {
  return std::make_shared<GuardedContext>(Device::createContext(rank, size),
                                          std::static_pointer_cast<GuardedDevice>(shared_from_this()));
}

void GuardedDevice::learn_sources(gloo::rendezvous::Store& store, int rank, int world) {
  if (world == 1) return;
  // Only a pair knows the address of a network interface that Gloo has found.
  const std::shared_ptr<gloo::transport::Context> context = createContext(rank, world);
  context->setTimeout(kForever);
  const IpAddress own = ip_of(address_of(*context->createPair(rank == 0 ? 1 : 0)));
  const auto all = [&](const std::string& what) {
    std::vector<IpAddress> addresses;
    for (int other = 0; other < world; ++other) {
      if (other == rank) continue;
      const std::vector<IpAddress> of_rank = published(store, lmx::str(what, other));
      addresses.insert(addresses.end(), of_rank.begin(), of_rank.end());
    }
    make_unique(addresses);
    return addresses;
  };
  publish(store, lmx::str("listens/", rank), {own});
  std::vector<IpAddress> from{own};
  for (const IpAddress& other : all("listens/"))
    if (const auto source = source_towards(other)) from.push_back(*source);
  make_unique(from);
  publish(store, lmx::str("connects/", rank), from);
  sources_ = all("connects/");
}

bool GuardedDevice::guard(const gloo::transport::Pair& pair) {
  try {
    return restrict_to_sources(pair);
  } catch (const std::system_error& e) {
    std::call_once(warned_, [&] {
      lmx::log_warn(lmx::str(
          "[gloo] programs of other hosts can disturb the connections of the ranks while these are made: ", e.what()));
    });
    return true;
  }
}

bool GuardedDevice::restrict_to_sources(const gloo::transport::Pair& pair) {
  const std::optional<int> socket = listening_socket(address_of(pair));
  if (!socket) return false;  // Gloo closes it when it has accepted a connection
  if (const int error = receive_only_from(sources_, *socket); error != 0)
    throw std::system_error(error, std::generic_category(), "the kernel refuses a packet filter");
  return !has_connection(*socket);
}

}  // namespace lmx_gloo

// Ranks are processes that are connected by Gloo. This file joins the job; plugins/comm/processes makes a group of it.
#include <gloo/allgather.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "gloo_config.h"
#include "gloo_link.h"
#include "guarded_device.h"
#include "lmx/launch.h"
#include "lmx/plugin.h"
#include "peer_memory.h"
#include "processes/local_job.h"
#include "processes/process_group.h"
#include "start.h"
#include "store.h"
#include "waits.h"

namespace lmx_gloo {
namespace {

using lmx::str;
using lmx::UserError;
using lmx::processes::Watchdog;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Where the ranks meet that lmx has not started itself.
struct Meeting {
  StoreAddress address;
  std::string secret;
};

int port_of(const GlooConfig& config) {
  if (config.port != 0) return static_cast<int>(config.port);
  const std::string text = variable("MASTER_PORT");
  char* end = nullptr;
  const long port = std::strtol(text.c_str(), &end, 10);
  if (*end != '\0' || port < 1 || port > 65535)
    throw UserError(str("[launch] MASTER_PORT='", text, "' in the environment: a port from 1 to 65535 was expected"));
  // torchrun's agent listens on that port itself.
  return static_cast<int>(port) + (variable("TORCHELASTIC_USE_AGENT_STORE") == "True" && port < 65535 ? 1 : 0);
}

Meeting read_meeting(const GlooConfig& config, const lmx::Launch& launch, const std::string& path) {
  if (variable("MASTER_ADDR").empty() || (variable("MASTER_PORT").empty() && config.port == 0))
    throw UserError(str("[", path, "] name=gloo: ", name_of(launch.launcher), " started ", launch.world,
                        " processes, and MASTER_ADDR and MASTER_PORT do not say where they meet: give all ranks an "
                        "address of rank 0's host and a free port, under Slurm by export MASTER_PORT=29400 "
                        "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"));
  constexpr size_t kShortest = 16;
  Meeting meeting{{variable("MASTER_ADDR"), port_of(config)}, variable("LMX_JOB_SECRET")};
  if (meeting.secret.size() < kShortest)
    throw UserError(str("[", path, "] name=gloo: LMX_JOB_SECRET has ", meeting.secret.size(), " characters, at least ",
                        kShortest,
                        " are needed: rank 0 accepts only ranks that know it; give all ranks the same one before the "
                        "start, export LMX_JOB_SECRET=$(openssl rand -hex 16)"));
  return meeting;
}

// Gloo's store of files gives up after 30 s, and looks for a file every 10 ms, which would delay each exchange. Here
// comm.lag_s limits the time.
class PatientFileStore final : public gloo::rendezvous::FileStore {
 public:
  using FileStore::FileStore;
  void wait(const std::vector<std::string>& keys) override {
    while (!check(keys)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }
};

constexpr std::chrono::seconds kToBeReported{5};  // longer than an lmx lets ranks live after one has failed (start.cc)

class GlooTransport final : public lmx::processes::Transport {
 public:
  GlooTransport(const GlooConfig& config, const lmx::Launch& launch, Meeting meeting)
      : config_(config), launch_(launch), meeting_(std::move(meeting)) {}
  std::string name() const override { return "gloo"; }

  void start() override {
    while_meeting([&] {
      if (launch_.launcher == lmx::Launcher::lmx) {
        meet_in_folder();
      } else {
        meet_at_store();
      }
    });
  }

  std::string absent() const override {
    const std::lock_guard lock(mutex_);
    if (!has_come_) return "";
    std::string missing;
    for (int rank = 0; rank < launch_.world; ++rank)
      if (!has_come_(rank)) missing += str(missing.empty() ? "" : ", ", rank);
    if (!missing.empty()) return "these ranks have not come yet: " + missing;
    return "all ranks have come, but some cannot connect to each other: does a firewall close their ports, or does "
           "another "
           "program use one?";
  }

  void gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    gloo::AllgatherOptions options(context_);
    std::vector<char> input(own.size());  // Gloo asks for memory that it could write to
    std::memcpy(input.data(), own.data(), own.size());
    options.setInput(input.data(), input.size());
    options.setOutput(reinterpret_cast<char*>(all.data()), all.size());
    while_meeting([&] { gloo::allgather(options); });
  }
  std::unique_ptr<lmx::processes::BeatLink> beats() override { return make_beats(more_while_meeting()); }
  std::unique_ptr<lmx::processes::Link> link(Watchdog& watchdog) override {
    auto memory = std::make_unique<PeerMemory>(
        launch_.rank, launch_.world, config_.direct,
        [this](std::span<const std::byte> own, std::span<std::byte> all) { gather(own, all); });
    return make_link(more_while_meeting(), std::move(memory), watchdog, [this] { return more(); });
  }
  void leave() override {
    try {
      meet();
    } catch (const std::exception&) {  // a rank has ended at once, which is no error: everything has been computed
    }
    context_.reset();
  }

 private:
  // The watchdog does not run yet, so this rank cannot know which rank it has lost. An lmx that has started the ranks
  // knows how each of them has ended, and reports that; until then this rank must not end, because a rank whose
  // watchdog runs already would report it as lost, too.
  void while_meeting(const std::function<void()>& body) {
    try {
      body();
    } catch (const lmx::Error&) {
      throw;
    } catch (const std::exception& e) {  // Gloo also throws std::system_error
      const std::string text = str("[gloo] a rank was lost while the ranks were meeting: ", e.what());
      if (launch_.launcher != lmx::Launcher::lmx) throw lmx::RunError(text);
      std::this_thread::sleep_for(kToBeReported);
      throw lmx::EndProcess(kDisturbed, text, true);
    }
  }

  std::shared_ptr<gloo::Context> more_while_meeting() {
    std::shared_ptr<gloo::Context> made;
    while_meeting([&] { made = more(); });
    return made;
  }

  // Lets absent() ask during its lifetime.
  class Arrivals {
   public:
    Arrivals(GlooTransport& transport, std::function<bool(int)> has_come) : transport_(transport) {
      set(std::move(has_come));
    }
    ~Arrivals() { set({}); }
    Arrivals(const Arrivals&) = delete;
    Arrivals& operator=(const Arrivals&) = delete;

   private:
    void set(std::function<bool(int)> has_come) {
      const std::lock_guard lock(transport_.mutex_);
      transport_.has_come_ = std::move(has_come);
    }
    GlooTransport& transport_;
  };

  void meet_in_folder() {
    const std::string folder = variable(kFolderVariable);
    PatientFileStore store(folder);
    const auto sign = [&](int rank) { return str(folder, "/come-", rank); };
    std::ofstream(sign(launch_.rank)).close();
    {
      std::function<bool(int)> has_come;  // of one rank, so that the warning comes once
      if (launch_.rank == 0) has_come = [&](int rank) { return std::filesystem::exists(sign(rank)); };
      const Arrivals arrivals(*this, std::move(has_come));
      connect(store, "127.0.0.1");
    }
    if (launch_.rank != 0) return;
    // If lmx is killed, nothing remains.
    std::error_code error;
    std::filesystem::remove_all(folder, error);
  }

  void meet_at_store() {
    std::unique_ptr<StoreServer> server;
    if (launch_.rank == 0) server = std::make_unique<StoreServer>(meeting_.address, meeting_.secret);
    const auto sign = [](int rank) { return str("come/", rank); };
    std::optional<Arrivals> arrivals;
    if (server) arrivals.emplace(*this, [&](int rank) { return server->has(sign(rank)); });
    if (launch_.rank == 1) arrivals.emplace(*this, [](int rank) { return rank != 0; });  // there is no store yet
    StoreClient store(meeting_.address, meeting_.secret);
    if (!server) arrivals.reset();
    store.set(sign(launch_.rank), {});
    connect(store, store.own_address());
  }

  // Returns when all ranks are connected. After that no rank needs the store. `address`: of this host.
  void connect(gloo::rendezvous::Store& store, const std::string& address) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    if (!config_.interface.empty()) {
      attributes.hostname.clear();
      attributes.iface = config_.interface;
    }
    std::shared_ptr<GuardedDevice> device;
    try {
      device = GuardedDevice::make(attributes);
    } catch (const std::exception& e) {
      throw UserError(str("[gloo] ",
                          config_.interface.empty() ? "address " + address : "comm.interface " + config_.interface,
                          " cannot be used for the data: ", e.what()));
    }
    device->learn_sources(store, launch_.rank, launch_.world);
    device_ = std::move(device);
    const auto context = std::make_shared<gloo::rendezvous::Context>(launch_.rank, launch_.world);
    context->setTimeout(kForever);
    context->connectFullMesh(store, device_);
    context_ = context;
    meet();
  }

  void meet() {
    gloo::BarrierOptions all(context_);
    gloo::barrier(all);
  }

  // Further connections between all ranks. Those through which they are made carry nothing else: Gloo's factory has set
  // their send buffers to the length of an address, and long messages would wait 40 ms for each 64 KB.
  std::shared_ptr<gloo::Context> more() {
    if (launch_.world == 1) return context_;
    gloo::rendezvous::ContextFactory factory(context_);
    return factory.makeContext(device_);
  }

  GlooConfig config_;
  lmx::Launch launch_;
  Meeting meeting_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::Context> context_;
  mutable std::mutex mutex_;
  std::function<bool(int)> has_come_;  // on rank 0 while the ranks meet: whether a rank has come
};

std::unique_ptr<lmx::CommGroup> make_gloo(const lmx::Node& node, const std::string& path, const lmx::CommEnv& env) {
  const auto config = lmx::read_config<GlooConfig>(node, path);
  const lmx::Launch launch = lmx::detect_launch();
  if (launch.launcher == lmx::Launcher::none) {
    if (config.ranks == 0)
      throw UserError(
          str("[", path, "] name=gloo: say how many ranks, comm.ranks=4, or start lmx by torchrun or srun"));
    lmx::processes::require_few_ranks(config.ranks, path);
    start_ranks(static_cast<int>(config.ranks));
  }
  require_started_ranks(config, launch, path);
  Meeting meeting;
  if (launch.launcher != lmx::Launcher::lmx) meeting = read_meeting(config, launch, path);
  return std::make_unique<lmx::processes::ProcessGroup>(
      std::make_unique<GlooTransport>(config, launch, std::move(meeting)), "Gloo", config, launch, env, 0);
}

}  // namespace
}  // namespace lmx_gloo

LMX_PLUGIN(comm, gloo, lmx_gloo::GlooConfig, lmx_gloo::make_gloo)

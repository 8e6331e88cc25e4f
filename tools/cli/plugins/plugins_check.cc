// lmx plugins check: a child process loads and checks the plugin; this process reports how the child ends.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "backend/cuda.h"
#include "cli/commands.h"
#include "cli/plugins/plugins.h"
#include "conformance/conformance.h"
#include "lmx/config.h"
#include "lmx/launch.h"

extern char** environ;

namespace lmx::app::cli {
namespace check {

namespace {

// The checks for every kind.
void check_fields(conformance::Report& report, const conformance::Subject& s) {
  report.run("fields", [&] {
    std::set<std::string> names;
    for (const FieldInfo& f : s.plugin.descriptor->fields()) {
      if (!names.insert(f.name).second) conformance::fail("the field ", f.name, " is listed twice");
      if (f.help.empty()) conformance::fail("the field ", f.name, " has no help text");
    }
    return str(names.size(), " fields, each with its meaning");
  });
  report.run("config", [&] {
    const std::string path = s.plugin.kind;
    const Node full = s.plugin.descriptor->full_config(s.config, path);
    Node again = full;
    again.set("name", Node::string(s.plugin.name));
    if (to_json(s.plugin.descriptor->full_config(again, path)) != to_json(full))
      conformance::fail("its config with every default reads back to another one");
    Node wrong = s.config;
    wrong.set("no_such_field", Node::scalar("1"));
    try {
      s.plugin.descriptor->full_config(wrong, path);
    } catch (const UserError&) {
      return std::string("defaults read back; an unknown key is refused");
    }
    conformance::fail("an unknown key is accepted; fields() must list every key");
  });
}

}  // namespace
}  // namespace check

namespace {

constexpr const char* kAllRan = "behind the last check";

constexpr const char *kConfig = "--config", *kDevice = "--device";

struct CheckOptions {
  std::string file, config = "{}", device = "cpu";
  bool child = false, approximate = false;
  int timeout = 120;
};

// Returns the folder of lmx's own plugins of a kind, which is beside the core's library.
std::string own_plugins(const char* kind) {
  Dl_info core{};
  const auto in_core = reinterpret_cast<const void*>(&Registry::instance);
  if (dladdr(in_core, &core) == 0 || !core.dli_fname) throw RunError("[plugins] the core's library is not found");
  const std::filesystem::path folder = std::filesystem::canonical(core.dli_fname).parent_path();
  return folder / "lmx" / "plugins" / kind;
}

int check_in_child(const CheckOptions& o) {
  conformance::Report report;
  std::cout << conformance::kBegins << "loading" << std::endl;
  const PluginInfo& plugin = plugin_of_file(o.file);
  // The ranks of a strategy use the plugin `virtual`, and its config may name a codec. No other folder is searched, so
  // that FILE has priority over a plugin of the same name.
  if (plugin.kind == "sync")
    for (const PluginKind kind : {PluginKind::comm, PluginKind::codec})
      Registry::instance().add_directory(own_plugins(name_of(kind)));
  conformance::Subject subject{plugin, parse_option(o.config, kConfig), o.approximate};
  if (subject.config.kind != Node::Kind::map)
    throw UserError(str(kConfig, " '", o.config, "': expected a map, such as '{cells: 8}'"));
  subject.config.set("name", Node::string(plugin.name));
  std::cout << plugin.kind << " " << plugin.name << " " << plugin.version << ", " << plugin.path << "\nsha256 "
            << plugin.hash << ", build " << plugin.descriptor->build_id << std::endl;
  check::check_fields(report, subject);
  const Device device = device_named(o.device, str("[plugins] ", kDevice, ": "));
  const bool on_device = device.kind != Device::Kind::cpu, model = plugin.kind == "model", sync = plugin.kind == "sync",
             optimizer = plugin.kind == "optimizer", codec = plugin.kind == "codec";
  if (on_device && !model && !sync && !optimizer && !codec)
    throw UserError(str("[plugins] ", kDevice, " ", o.device, " is for plugins of the kinds model, sync, ",
                        "optimizer and codec, and ", plugin.name, " is of the kind ", plugin.kind));
  if (model) conformance::check_model(report, subject);
  if (model && on_device) conformance::check_model_on(report, subject, device);
  if (sync) conformance::check_sync(report, subject);
  if (sync && on_device) {
    subject.device = device;
    conformance::check_sync(report, subject);
  }
  if (plugin.kind == "batcher") conformance::check_batcher(report, subject);
  if (plugin.kind == "loss") conformance::check_loss(report, subject);
  if (optimizer) conformance::check_optimizer(report, subject);
  if (optimizer && on_device) conformance::check_optimizer_on(report, subject, device);
  if (plugin.kind == "schedule") conformance::check_schedule(report, subject);
  if (plugin.kind == "metric") conformance::check_metric(report, subject);
  if (codec) conformance::check_codec(report, subject);
  if (codec && on_device) {
    subject.device = device;
    conformance::check_codec(report, subject);
  }
  if (plugin.kind == "comm")
    std::cout << "skip  the ranks of a communicator are checked by lmx's own tests of it" << std::endl;
  std::cout << conformance::kBegins << kAllRan << '\n';
  std::cout << report.passes() << " passed, " << report.failures() << " failed" << std::endl;
  return report.failures() ? 1 : 0;
}

// Prints the child's lines immediately, and remembers which check is running. False: no line for `seconds`.
bool forward(int fd, int seconds, std::string& running) {
  std::string pending;
  char block[4096];
  while (true) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, seconds * 1000);
    if (ready == 0) return false;
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t n = read(fd, block, sizeof block);
    if (n <= 0) break;
    pending.append(block, static_cast<size_t>(n));
    for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      if (pending[0] == conformance::kBegins)
        running = pending.substr(1, end - 1);
      else
        std::cout << pending.substr(0, end) << std::endl;
    }
  }
  std::cout << pending << std::flush;
  return true;
}

pid_t start_child(const CheckOptions& o, int out) {
  std::vector<std::string> words{"lmx", "plugins", "check", o.file, "--child", kConfig, o.config, kDevice, o.device};
  if (o.approximate) words.emplace_back("--approximate");
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, own_program().c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) throw RunError(str("[plugins] cannot start the process that loads the plugin: ", std::strerror(failed)));
  return pid;
}

void check_plugin(const CheckOptions& o) {
  if (o.child) {
    const int code = check_in_child(o);
    if (code) throw ExitCode{code};
    return;
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw RunError(str("[plugins] pipe: ", std::strerror(errno)));
  const pid_t pid = start_child(o, ends[1]);
  close(ends[1]);
  std::string running = "loading";
  const bool answered = forward(ends[0], o.timeout, running);
  if (!answered) kill(pid, SIGKILL);
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!answered || WIFSIGNALED(status)) {
    std::cout << "FAIL  " << running << ": "
              << (answered ? str("the process that had loaded the plugin died: ", strsignal(WTERMSIG(status)))
                           : str("nothing was heard for ", o.timeout, " s"))
              << std::endl;
    throw ExitCode{1};
  }
  if (WEXITSTATUS(status)) throw ExitCode{WEXITSTATUS(status)};
  if (running != kAllRan) {
    std::cout << "FAIL  " << running << ": the plugin ended the process that had loaded it" << std::endl;
    throw ExitCode{1};
  }
}

}  // namespace

void add_plugins_check(Command group) {
  const Command command =
      group.add_subcommand("check", "load a plugin in a separate process and test it by the rules of its kind");
  set_examples(command, {{"lmx plugins check build/lib/lmx/plugins/sync/my_sync/my_sync.so",
                          "prints one line for each check; exit code 0, 1 or 2"},
                         {"lmx plugins check my_model.so --config '{cells: 8}'", "with values of its fields"},
                         {"lmx plugins check my_model.so --device cuda", "also compares a GPU with the CPU"},
                         {"lmx plugins check my_sync.so --approximate", "a strategy that rounds the gradients"}});
  const auto o = std::make_shared<CheckOptions>();
  command.add_option("FILE", o->file, "the library; its folder contains plugin.toml").required();
  command.add_option("--config VALUES", o->config, "values of its fields, written as in an override");
  command.add_option("--device DEVICE", o->device,
                     "cuda or cuda:N: a model, an optimizer or a codec is also compared with the CPU on this device, a "
                     "sync plugin is checked there again");
  command.add_flag("--approximate", o->approximate,
                   "a sync plugin may differ from the sum in a step; the mean of many steps must still be near it. The "
                   "gradient of a loss may differ from the difference quotients");
  command.add_option("--timeout S", o->timeout, "seconds without a line after which a check counts as hanging")
      .positive();
  command.add_flag("--child", o->child).hidden();
  command.callback([o] { check_plugin(*o); });
}

}  // namespace lmx::app::cli

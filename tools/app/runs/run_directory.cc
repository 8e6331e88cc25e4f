#include "app/runs/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/log.h"
#include "recipe/recipe.h"
#include "runfiles/checkpoint.h"
#include "runfiles/metrics.h"

namespace lmx::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown";
}

[[noreturn]] void refuse_full(const std::string& path) {
  throw UserError(str("[run] run.dir ", path, " exists and is not empty; --resume ", path,
                      " continues the run in it, or choose another folder"));
}

// Returns false if the folder exists already.
bool make_run_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const bool made = fs::create_directory(path, error);
  if (error) throw RunError(str("[run] cannot create ", path, ": ", error.message()));
  if (made) sync_directory(fs::absolute(path).parent_path().string());
  return made;
}

Json host_json() {
  utsname system{};
  uname(&system);
  return {{"name", host_name()},
          {"system", str(system.sysname, " ", system.release)},
          {"cpu", cpu_model()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)}};
}

}  // namespace

std::string host_name() {
  utsname system{};
  uname(&system);
  return system.nodename;
}

void require_place(const std::string& wanted, const std::string& recipe) {
  std::error_code error;
  if (!wanted.empty() && fs::is_directory(wanted, error) && !fs::is_empty(wanted, error)) refuse_full(wanted);
  const std::string path = wanted.empty() ? "runs/" + recipe : wanted;
  fs::path there = fs::absolute(path);
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  const int reason = !fs::is_directory(there, error) ? ENOTDIR : access(there.c_str(), W_OK | X_OK) != 0 ? errno : 0;
  if (reason == ENOTDIR) throw UserError(str("[run] run.dir ", path, ": ", there.string(), " is no folder"));
  if (reason != 0) throw RunError(str("[run] cannot create ", path, ": ", std::strerror(reason)));
}

std::string create_run_directory(const std::string& wanted, const std::string& recipe) {
  if (!wanted.empty()) {
    std::error_code error;
    if (make_run_folder(wanted) || fs::is_empty(wanted, error)) return wanted;
    refuse_full(wanted);
  }
  const std::string base = str("runs/", recipe, "/", local_time("%Y-%m-%d_%H%M%S"));
  std::string path = base;
  for (int suffix = 2; !make_run_folder(path); ++suffix) path = str(base, "-", suffix);
  return path;
}

std::string newest_run(const std::string& wanted, const std::string& recipe) {
  std::error_code error;
  if (!wanted.empty()) return fs::exists(wanted, error) ? wanted : "";
  std::vector<std::pair<fs::file_time_type, std::string>> runs;
  for (const auto& entry : fs::directory_iterator("runs/" + recipe, error)) {
    const fs::path config = entry.path() / "config.yaml";
    if (fs::exists(config, error)) runs.emplace_back(fs::last_write_time(config, error), entry.path().string());
  }
  return runs.empty() ? "" : std::max_element(runs.begin(), runs.end())->second;
}

Node read_run_config(const std::string& directory) {
  std::error_code error;
  const std::string path = directory + "/config.yaml";
  if (!fs::exists(directory, error))
    throw UserError(str("[run] there is no run directory ", directory, error ? ": " + error.message() : ""));
  if (!fs::is_directory(directory, error)) throw UserError(str("[run] ", directory, " is no directory"));
  if (access(directory.c_str(), R_OK | X_OK) != 0)
    throw UserError(str("[run] cannot read the run directory ", directory, ": ", std::strerror(errno)));
  if (!fs::exists(path, error)) throw UserError(str("[run] ", directory, " holds no run: it has no config.yaml"));
  Node config = parse_yaml(read_file(path), path);
  if (config.kind != Node::Kind::map || config.entries.empty())
    throw UserError(str("[run] ", path, " is damaged: it holds no recipe"));
  return config;
}

bool holds_nothing(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours =
        name == ".lock" || name == "log.txt" || name == "status.json" || name.find(".tmp-") != std::string::npos;
    if (!ours) return false;
  }
  return !error;
}

namespace {

// A path or an error message may contain bytes that are not UTF-8. They become U+FFFD in JSON.
std::string json_text(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json init_json(const InitReport& init) {
  Json json = Json::object();
  if (!init.path.empty()) {
    json = {{"from", init.path}, {"sha256", init.sha256}, {"taken", init.taken}, {"partly", init.partly}};
    json["kept"] = Json::object();
    for (const InitReport::Kept& kept : init.kept) json["kept"][kept.name] = kept.why;
    json["unused"] = init.unused;
  }
  json["frozen"] = init.frozen;
  return json;
}

}  // namespace

RunLock::RunLock(const std::string& directory) : lock_(directory + "/.lock", "[run] ") {
  if (!lock_.take_soon())
    throw UserError(str("[run] another process is training in ", directory, " (its status.json names it)"));
}

void write_status(const std::string& directory, const std::string& state, int64_t step, const std::string& reason,
                  const std::string& cause) {
  Json status{{"state", state},
              {"step", step},
              {"pid", getpid()},
              {"host", host_name()},
              {"time", local_time("%Y-%m-%dT%H:%M:%S%z")}};
  if (!reason.empty()) status["reason"] = reason;
  if (!cause.empty()) status["cause"] = cause;
  write_file(directory + "/status.json", json_text(status));
}

namespace {

// Returns status.json if it says "running", otherwise null.
Json running_status(const std::string& directory) {
  const std::string path = directory + "/status.json";
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  Json status = Json::parse(read_file(path), nullptr, false);
  return status.is_object() && status.value("state", Json()) == "running" ? status : Json();
}

}  // namespace

bool says_running(const std::string& directory) {
  return !running_status(directory).is_null();
}

bool has_lost_process(const std::string& directory) {
  const Json status = running_status(directory);
  if (status.is_null() || status.value("host", Json()) != host_name()) return false;
  const Json pid = status.value("pid", Json());
  if (!pid.is_number_integer() || pid.get<int64_t>() <= 0) return false;
  const bool ended = kill(pid.get<pid_t>(), 0) != 0 && errno == ESRCH;
  return ended && !FileLock::is_held(directory + "/.lock");
}

void note_lost_run(const std::string& directory, fs::file_time_type begin, const std::string& reason) {
  try {
    if (directory.empty() || !says_running(directory)) return;
    if (fs::last_write_time(directory + "/status.json") < begin || FileLock::is_held(directory + "/.lock")) return;
    write_status(directory, "failed", last_recorded_step(directory), reason);
  } catch (const std::exception&) {  // the reason is printed even if this record cannot be written
  }
}

std::string to_json_line(const RecipeChange& c) {
  const Json line{{"step", c.step}, {"split", "change"}, {"key", c.key}, {"before", c.before}, {"now", c.now}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void write_provenance(const std::string& directory, const Provenance& p) {
  const std::string path = directory + "/provenance.json";
  Json all{{"format", 1}, {"starts", Json::array()}};
  std::error_code error;
  if (fs::exists(path, error)) {
    const Json before = Json::parse(read_file(path), nullptr, false);
    if (before.is_object() && before.contains("starts") && before["starts"].is_array()) {
      all = before;
    } else {
      fs::rename(path, path + ".damaged", error);
      log_warn(str("[run] ", path, " is damaged; it is now ", path, ".damaged, and a new record begins"));
    }
  }
  Json start{{"time", local_time("%Y-%m-%dT%H:%M:%S%z")},
             {"command_line", p.command_line},
             {"directory", fs::current_path(error).string()}};
  start["lmx"] = {{"version", kVersion}, {"abi", kAbi}, {"compiler", __VERSION__}};
  start["host"] = host_json();
  start["compute"] = {{"device", p.device},
                      {"isa", p.isa},
                      {"threads", p.threads},
                      {"precision", p.precision},
                      {"products", p.products}};
  if (p.cuda)
    start["compute"]["cuda"] = {{"name", p.cuda->name},
                                {"compute_capability", str(p.cuda->major, ".", p.cuda->minor)},
                                {"memory_bytes", p.cuda->memory},
                                {"driver", cuda_version_text(p.cuda->driver)},
                                {"runtime", cuda_version_text(p.cuda->runtime)}};
  if (!p.cudnn.empty()) start["compute"]["cuda"]["cudnn"] = p.cudnn;
  start["data"] = {{"hash", p.data_hash}, {"directory", p.data_directory}, {"source", p.data_note}};
  if (p.valid_true_perplexity) start["data"]["valid_true_perplexity"] = *p.valid_true_perplexity;
  for (const PluginInfo& plugin : p.plugins)
    start["plugins"][plugin.kind + "/" + plugin.name] = {
        {"version", plugin.version}, {"path", plugin.path}, {"sha256", plugin.hash}};
  start["parameters"] = p.parameters;
  start["lr_factor"] = p.lr_factor;
  if (!p.init.nothing()) start["init"] = init_json(p.init);
  for (const RecipeChange& c : p.changes)
    start["changes"].push_back({{"key", c.key}, {"before", c.before}, {"now", c.now}, {"step", c.step}});
  if (p.restart) {
    start["restart"] = {{"number", p.restart->number}, {"of", p.restart->of}, {"reason", p.restart->reason}};
    if (p.restart->ranks > 0) start["restart"]["ranks"] = p.restart->ranks;
  }
  if (p.fit)
    start["fit"] = {{"global", p.fit->batch.global},
                    {"micro", p.fit->batch.micro},
                    {"micro_tokens", p.fit->batch.micro_tokens},
                    {"passes", p.fit->passes},
                    {"update_tokens", p.fit->tokens},
                    {"estimate_bytes", p.fit->estimate},
                    {"allowed_bytes", p.fit->allowed},
                    {"peak_bytes", p.fit->peak},
                    {"probes", p.fit->probes}};
  all["starts"].push_back(start);
  write_file(path, json_text(all));
}

namespace {

// Returns the last start; null if nothing readable is recorded.
Json last_start(const std::string& directory) {
  const std::string path = directory + "/provenance.json";
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const Json all = Json::parse(read_file(path), nullptr, false);
  try {
    return all.at("starts").back();
  } catch (const Json::exception&) {
    return {};
  }
}

}  // namespace

std::string recorded_data_hash(const std::string& directory) {
  const Json start = last_start(directory);
  try {
    return start.at("data").at("hash").get<std::string>();
  } catch (const Json::exception&) {
    return {};
  }
}

std::vector<std::string> changed_plugins(const std::string& directory, const std::vector<PluginInfo>& plugins) {
  std::vector<std::string> changes;
  const Json start = last_start(directory);
  for (const PluginInfo& plugin : plugins) {
    try {
      const std::string name = plugin.kind + "/" + plugin.name;
      const Json& before = start.at("plugins").at(name);
      const auto hash = before.at("sha256").get<std::string>();
      if (hash == plugin.hash) continue;
      changes.push_back(str("the plugin ", name, " is another build than at the last start: version ",
                            before.at("version").get<std::string>(), ", SHA-256 ", hash.substr(0, 12),
                            " then; version ", plugin.version, ", SHA-256 ", plugin.hash.substr(0, 12), " now (",
                            plugin.path, "); the run may continue with other numbers"));
    } catch (const Json::exception&) {  // an older run, or one that did not load this plugin
    }
  }
  return changes;
}

void save_vocabulary(const std::string& directory, const Vocabulary& vocabulary) {
  vocabulary.save(directory + "/vocabulary.tsv");
}

Vocabulary load_vocabulary(const std::string& directory) {
  const std::string path = directory + "/vocabulary.tsv";
  std::error_code error;
  if (!fs::exists(path, error))
    throw UserError(str("[run] ", path, " is missing: the run was killed before it began, or the file was lost"));
  return Vocabulary::load(path);
}

namespace {

// Opens and locks a folder. Returns -1 (errno) if it is none, a link to one, or locked: its process lives.
int lock_folder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0 || flock(folder, LOCK_EX | LOCK_NB) == 0) return folder;
  close(folder);
  return -1;
}

void remove_leftover(const std::string& draft) {
  const int leftover = lock_folder(draft);
  if (leftover < 0) return;
  std::error_code error;
  fs::remove_all(draft, error);
  close(leftover);
}

// The absolute path of a folder, without the slashes at its end.
fs::path path_of_new(const std::string& target) {
  std::error_code error;  // of "/", which leaves the empty path
  return fs::absolute(target.substr(0, target.find_last_not_of('/') + 1), error);
}

int create_locked(const std::string& draft) {
  if (mkdir(draft.c_str(), 0777) != 0) return -1;
  const int folder = lock_folder(draft);
  // Another process took it for a leftover before it was locked.
  if (folder < 0 && (errno == EWOULDBLOCK || errno == ENOENT)) errno = EEXIST;
  return folder;
}

}  // namespace

void check_new_folder(const std::string& command, const std::string& target) {
  std::error_code error;
  const std::string name = path_of_new(target).filename().string();
  if (name.empty() || name == "." || name == "..")
    throw UserError(str("[", command, "] '", target, "' is no path that ends in the name of a folder to make"));
  if (fs::exists(target, error) && !(fs::is_directory(target, error) && fs::is_empty(target, error)))
    throw UserError(str("[", command, "] ", target, " exists; choose a folder that does not exist, or is empty"));
}

NewFolder::NewFolder(std::string command, std::string target)
    : command_(std::move(command)), target_(std::move(target)) {
  check_new_folder(command_, target_);
  const fs::path path = path_of_new(target_), parent = path.parent_path();
  make_folder(parent.string(), str("[", command_, "] "));
  const std::string hidden = (parent / str(".", path.filename().string())).string();
  const Temporary made = make_temporary(hidden, remove_leftover, create_locked);
  if (made.descriptor < 0)
    throw RunError(str("[", command_, "] cannot create ", made.path, ": ", std::strerror(errno)));
  draft_ = made.path;
  lock_ = made.descriptor;
}

NewFolder::~NewFolder() {
  std::error_code error;
  if (!finished_) fs::remove_all(draft_, error);
  close(lock_);
}

void NewFolder::end_after_signal() const {
  if (const int signal = SignalGuard::received(); signal != 0)
    throw EndProcess(128 + signal, str("[", command_, "] ", SignalGuard::name(signal), ": nothing was written"), false);
}

std::string NewFolder::path(const std::string& name) {
  end_after_signal();
  names_.push_back(name);
  const fs::path path = fs::path(draft_) / name;
  make_folder(path.parent_path().string(), str("[", command_, "] "));
  return path.string();
}

void NewFolder::write(const std::string& name, std::string_view text) {
  write_file(path(name), text);
}

void NewFolder::write(const std::string& name, const nlohmann::ordered_json& json) {
  write(name, std::string_view(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
}

void NewFolder::copy(const std::string& from, const std::string& name) {
  write(name, std::string_view(read_file(from)));
}

std::vector<std::string> NewFolder::finish() {
  end_after_signal();
  std::error_code error;
  fs::remove(target_, error);  // removes an empty folder
  fs::rename(draft_, target_, error);
  if (error) throw RunError(str("[", command_, "] cannot create ", target_, ": ", error.message()));
  finished_ = true;
  return names_;
}

}  // namespace lmx::app

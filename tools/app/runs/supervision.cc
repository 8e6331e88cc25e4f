#include "app/runs/supervision.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kVariable = "LMX_SUPERVISION";

std::string run_file(const std::string& folder) {
  return folder + "/run";
}
std::string restart_file(const std::string& folder) {
  return folder + "/restart.json";
}

// A file of the folder that this process was started with; "" if there is no folder or no such file.
std::string read_if_there(std::string (*name)(const std::string&)) {
  const char* folder = std::getenv(kVariable);
  std::error_code error;
  if (!folder || !*folder || !fs::exists(name(folder), error)) return {};
  return read_file(name(folder));
}

}  // namespace

Supervision::Supervision() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  std::string pattern = (parent / "lmx-restarts-XXXXXX").string();
  if (error || !mkdtemp(pattern.data()))
    throw RunError(str("[run] --restarts cannot create a folder in ", parent.string(), ": ",
                       error ? error.message() : std::strerror(errno)));
  folder_ = pattern;
}

Supervision::~Supervision() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

std::pair<std::string, std::string> Supervision::variable() const {
  return {kVariable, folder_};
}

std::string Supervision::run() const {
  std::error_code error;
  return fs::exists(run_file(folder_), error) ? read_file(run_file(folder_)) : "";
}

void Supervision::announce(const Restart& restart) const {
  const Json json{{"number", restart.number}, {"of", restart.of}, {"ranks", restart.ranks}, {"reason", restart.reason}};
  write_file(restart_file(folder_), json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// The folder is missing if the supervisor was killed; then no process reads the file.
void report_run(const std::string& directory) {
  const char* folder = std::getenv(kVariable);
  std::error_code error;
  if (folder && fs::is_directory(folder, error)) write_file(run_file(folder), directory);
}

bool is_supervised() {
  return std::getenv(kVariable) != nullptr;
}

std::optional<Restart> restart_of_this_start() {
  const Json json = Json::parse(read_if_there(restart_file), nullptr, false);
  if (!json.is_object()) return {};
  return Restart{json.at("number"), json.at("of"), json.at("ranks"), json.at("reason")};
}

}  // namespace lmx::app

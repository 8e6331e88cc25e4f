// Checkpoint folders. A folder named step-N is complete: its files are written and fsynced under a hidden name first,
// and the rename is the last action. state.json contains the hashes of the tensor files and of itself.
#include "runfiles/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "backend/cuda.h"
#include "base/files.h"
#include "base/output_file.h"

namespace lmx {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kFiles[] = {"model.safetensors", "train_state.safetensors"};

std::string rank_file(size_t rank) {
  return str("rank-", rank, ".safetensors");
}

// The files of a checkpoint with separate files of `ranks` ranks.
std::vector<std::string> files_of(size_t ranks) {
  std::vector<std::string> names(std::begin(kFiles), std::end(kFiles));
  for (size_t r = 0; r < ranks; ++r) names.push_back(rank_file(r));
  return names;
}

std::string state_json(const std::string& folder, const std::map<std::string, std::string>& numbers, size_t ranks) {
  Json state{{"format", kFormat}, {"numbers", numbers}, {"ranks", ranks}};
  for (const std::string& name : files_of(ranks)) {
    const std::string path = folder + "/" + name;
    state["files"][name] = {{"bytes", fs::file_size(path)}, {"sha256", sha256_of_file(path)}};
  }
  state["sha256"] = sha256_of_text(state.dump());
  return state.dump(1) + "\n";
}

// The advice at the end of a message about this file. It tells the user to remove a checkpoint only if there is one
// before it, and nothing else ever.
std::string advice(const std::string& path) {
  const std::string folder = checkpoint_around(path);
  if (folder.empty()) return "";
  const std::vector<CheckpointInfo> all = list_checkpoints(fs::path(folder).parent_path().parent_path().string());
  return !all.empty() && all.front().folder != folder ? "; remove that folder to fall back to the checkpoint before it"
                                                      : "";
}

[[noreturn]] void damaged(const std::string& path, const std::string& why) {
  throw UserError(str("[checkpoint] ", path, " is damaged: ", why, advice(path)));
}

// Rejects values nested deeper than lmx writes while it reads them: the function that writes them again is recursive.
Json parse_state(const std::string& path) {
  constexpr int kMaxDepth = 4;  // {files: {name: {bytes: n}}} needs 3
  const auto check = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) damaged(path, "it is nested too deeply");
    return true;
  };
  return Json::parse(read_file(path), check, false);
}

Json read_state(const std::string& path) {
  if (!fs::exists(path))
    throw UserError(str("[checkpoint] ", path, " is missing: ", fs::path(path).parent_path().string(),
                        " is no checkpoint; those of a run are in RUN/checkpoints"));
  Json state = parse_state(path);
  if (!state.is_object() || !state.contains("sha256")) damaged(path, "it is no JSON object with a hash");
  const Json hash = state["sha256"];
  state.erase("sha256");
  if (hash != sha256_of_text(state.dump())) damaged(path, "its content does not match its hash");
  if (const auto format = state.find("format"); format == state.end() || *format != kFormat)
    throw UserError(str("[checkpoint] ", path, " has format ", format == state.end() ? "none" : format->dump(),
                        "; this lmx reads format ", kFormat));
  return state;
}

std::map<std::string, std::string> numbers_of(const Json& state, const std::string& path) {
  try {
    return state.at("numbers").get<std::map<std::string, std::string>>();
  } catch (const Json::exception& e) {
    damaged(path, e.what());
  }
}

void verify_file(const std::string& folder, const std::string& name, const Json& files) {
  const std::string path = folder + "/" + name;
  if (!fs::exists(path)) throw UserError(str("[checkpoint] ", path, " is missing", advice(path)));
  const auto size = fs::file_size(path);
  const Json& expected = files.at(name).at("bytes");
  if (expected != size) damaged(path, str("it has ", size, " bytes, written were ", expected.dump()));
  if (files.at(name).at("sha256") != sha256_of_file(path)) damaged(path, "its SHA-256 is not the one in state.json");
}

// Renames `temporary` to `target`. If `target` exists (the run was resumed from an older checkpoint), the two names are
// exchanged, so that one of them exists at any time.
void move_into_place(const std::string& temporary, const std::string& target) {
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST && renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(temporary);
    return;
  }
  if (errno != EINVAL && errno != ENOSYS)
    throw fs::filesystem_error("rename", temporary, target, std::error_code(errno, std::generic_category()));
  fs::remove_all(target);  // the file system does not support renameat2's flags
  fs::rename(temporary, target);
}

// The step of "step-120"; -1 for any other name.
int64_t step_of(const std::string& name) {
  int64_t step = -1;
  const char* end = name.data() + name.size();
  if (!name.starts_with("step-") || name.size() == 5) return -1;
  const auto [stop, error] = std::from_chars(name.data() + 5, end, step);
  return error == std::errc() && stop == end && step >= 0 ? step : -1;
}

std::string draft_of(const std::string& run_dir, int64_t step) {
  return str(run_dir, "/checkpoints/.step-", step);
}

// Calls `write`. If it fails, removes `written`; earlier checkpoints are not touched.
template <class Write>
void guarded(const std::string& run_dir, int64_t step, const std::string& written, const Write& write) {
  const auto failed = [&](const std::string& why) {
    std::error_code error;
    fs::remove_all(written, error);
    const char* others = list_checkpoints(run_dir).empty() ? "" : ", earlier checkpoints are intact";
    return RunError(str("[checkpoint] ", run_dir, "/checkpoints/step-", step, " was not written", others, ": ", why));
  };
  try {
    write();
  } catch (const fs::filesystem_error& e) {
    throw failed(e.code().message());
  } catch (const RunError& e) {
    throw failed(e.what());
  }
}

}  // namespace

void begin_checkpoint(const std::string& run_dir, int64_t step) {
  const std::string draft = draft_of(run_dir, step);
  guarded(run_dir, step, draft, [&] {
    if (fs::create_directories(run_dir + "/checkpoints")) sync_directory(run_dir);
    remove_unfinished_checkpoints(run_dir);
    fs::create_directory(draft);
  });
}

void add_to_checkpoint(const std::string& run_dir, int64_t step, int rank, const StateDict& state) {
  // Only the file is removed after a failure. The folder stays, since other ranks may be writing to it and would report
  // that it is missing; the next start removes it.
  const std::string file = draft_of(run_dir, step) + "/" + rank_file(static_cast<size_t>(rank));
  guarded(run_dir, step, file, [&] { save_safetensors(file, state); });
}

std::string finish_checkpoint(const std::string& run_dir, int64_t step, const TrainState& state, int ranks) {
  const std::string parent = run_dir + "/checkpoints", target = str(parent, "/step-", step);
  const std::string draft = draft_of(run_dir, step);
  guarded(run_dir, step, draft, [&] {
    save_safetensors(draft + "/" + kFiles[0], state.model);
    save_safetensors(draft + "/" + kFiles[1], state.train);
    write_file(draft + "/state.json", state_json(draft, state.numbers, static_cast<size_t>(ranks)));
    move_into_place(draft, target);  // each file is on the disk, and its entry in the draft
    sync_directory(parent);
  });
  return target;
}

std::string save_checkpoint(const std::string& run_dir, int64_t step, const TrainState& state) {
  begin_checkpoint(run_dir, step);
  for (size_t r = 0; r < state.ranks.size(); ++r) add_to_checkpoint(run_dir, step, static_cast<int>(r), state.ranks[r]);
  return finish_checkpoint(run_dir, step, state, static_cast<int>(state.ranks.size()));
}

namespace {

// Number of separate rank files. UserError if the text was not written by lmx.
size_t ranks_of(const Json& state, const std::string& path) {
  const Json count = state.value("ranks", Json(0U));
  if (!count.is_number_unsigned() || count.get<size_t>() > state.at("files").size())
    damaged(path, str("it is of ", count.dump(), " ranks"));
  return count;
}

// Reads state.json, and verifies the files for whose names `wanted` returns true. `ranks` of the result has one empty
// entry for each rank's file.
TrainState load_numbers(const std::string& folder,
                        const std::function<bool(const std::string& name, size_t ranks)>& wanted) {
  const std::string path = folder + "/state.json";
  const Json state = read_state(path);
  TrainState out;
  out.numbers = numbers_of(state, path);
  try {
    out.ranks.resize(ranks_of(state, path));
    for (const std::string& name : files_of(out.ranks.size()))
      if (wanted(name, out.ranks.size())) verify_file(folder, name, state.at("files"));
  } catch (const Json::exception& e) {
    damaged(path, e.what());
  }
  return out;
}

void load_common(TrainState& out, const std::string& folder, const std::shared_ptr<Allocator>& allocator) {
  out.model = load_safetensors(folder + "/" + kFiles[0], allocator);
  out.train = load_safetensors(folder + "/" + kFiles[1], allocator);
}

}  // namespace

TrainState load_checkpoint(const std::string& folder, const std::shared_ptr<Allocator>& allocator) {
  TrainState out = load_numbers(folder, [](const std::string&, size_t) { return true; });
  load_common(out, folder, allocator);
  for (size_t r = 0; r < out.ranks.size(); ++r) out.ranks[r] = load_safetensors(folder + "/" + rank_file(r), allocator);
  return out;
}

TrainState load_checkpoint_of(const std::string& folder, const std::shared_ptr<Allocator>& allocator, int rank,
                              int ranks) {
  const auto own = static_cast<size_t>(rank);
  TrainState out = load_numbers(folder, [&](const std::string& name, size_t there) {
    const bool common = std::find(std::begin(kFiles), std::end(kFiles), name) != std::end(kFiles);
    return rank == 0 || common || (name == rank_file(own) && there == static_cast<size_t>(ranks));
  });
  load_common(out, folder, allocator);
  const bool as_many = out.ranks.size() == static_cast<size_t>(ranks);
  for (size_t r = 0; r < out.ranks.size(); ++r) {
    const std::string file = folder + "/" + rank_file(r);
    if (as_many && r == own) out.ranks[r] = load_safetensors(file, allocator);
    if (!as_many) out.ranks[r] = map_safetensors(file, allocator);
  }
  return out;
}

TrainState load_model(const std::string& folder, const std::shared_ptr<Allocator>& allocator,
                      const std::string& prefix) {
  TrainState out = load_numbers(folder, [](const std::string& name, size_t) { return name == kFiles[0]; });
  out.model = load_safetensors(folder + "/" + kFiles[0], allocator);
  const StateDict mapped = map_safetensors(folder + "/" + kFiles[1], allocator);
  auto at = mapped.lower_bound(prefix);
  const auto needed = [&] { return at != mapped.end() && at->first.starts_with(prefix); };
  if (needed()) load_numbers(folder, [](const std::string& name, size_t) { return name == kFiles[1]; });
  for (; needed(); ++at) out.train.emplace(at->first, copy_to(at->second, allocator));
  return out;
}

std::map<std::string, std::string> checkpoint_numbers(const std::string& folder) {
  const std::string path = folder + "/state.json";
  return numbers_of(read_state(path), path);
}

std::vector<CheckpointInfo> list_checkpoints(const std::string& run_dir) {
  std::vector<CheckpointInfo> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir + "/checkpoints", error)) {
    const int64_t step = step_of(entry.path().filename().string());
    if (step >= 0 && entry.is_directory(error)) found.push_back({step, entry.path().string()});
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.step < b.step; });
  return found;
}

std::string checkpoint_around(const std::string& path) {
  std::error_code error;
  for (fs::path folder = fs::weakly_canonical(path, error); folder.has_relative_path(); folder = folder.parent_path())
    if (step_of(folder.filename().string()) >= 0 && folder.parent_path().filename() == "checkpoints" &&
        fs::exists(folder / "state.json", error))
      return folder.string();
  return "";
}

void remove_unfinished_checkpoints(const std::string& run_dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir + "/checkpoints", error))
    if (entry.path().filename().string().starts_with(".step-")) fs::remove_all(entry.path(), error);
}

void prune_checkpoints(const std::string& run_dir, int keep, const std::vector<int64_t>& protect) {
  const std::vector<CheckpointInfo> all = list_checkpoints(run_dir);
  for (size_t i = 0; i + static_cast<size_t>(std::max(keep, 1)) < all.size(); ++i) {
    if (std::find(protect.begin(), protect.end(), all[i].step) != protect.end()) continue;
    // Renamed first: if the process is killed during the removal, no incomplete checkpoint may remain under a valid
    // name.
    const std::string dying = str(run_dir, "/checkpoints/.step-", all[i].step);
    std::error_code error;
    fs::rename(all[i].folder, dying, error);
    fs::remove_all(error ? all[i].folder : dying, error);
  }
}

}  // namespace lmx

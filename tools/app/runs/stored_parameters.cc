#include "app/runs/stored_parameters.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "app/runs/run_directory.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "nn/state_dict.h"
#include "runfiles/checkpoint.h"
#include "train/position.h"

namespace lmx::app {

std::string find_checkpoint(const std::string& directory, const std::string& which) {
  const std::vector<CheckpointInfo> all = list_checkpoints(directory);
  if (all.empty()) throw UserError(str("[checkpoint] ", directory, " has no checkpoint yet"));
  if (which == "last") return all.back().folder;
  std::string wanted = which;
  if (which == "best") {
    const auto numbers = checkpoint_numbers(all.back().folder);
    const auto best = numbers.find("best_step");
    wanted = best == numbers.end() ? "-1" : best->second;
    if (wanted == "-1")
      throw UserError(str("[checkpoint] ", directory, " has no best checkpoint: it was never validated"));
  }
  std::vector<std::string> steps;
  for (const CheckpointInfo& c : all) {
    if (std::to_string(c.step) == wanted) return c.folder;
    steps.push_back(std::to_string(c.step));
  }
  throw UserError(str("[checkpoint] ", directory, " has no checkpoint '", which, "'",
                      which == "best" ? str(" (step ", wanted, ")") : "",
                      "; there are last, best after a validation, and the steps ", config::join(steps)));
}

std::string find_parameters(const std::string& directory, const std::string& which) {
  const bool names_step = !which.empty() && which.find_first_not_of("0123456789") == std::string::npos;
  std::error_code error;
  if (which == "last" || which == "best" || names_step || !std::filesystem::exists(which, error))
    return find_checkpoint(directory, which);
  return which;
}

namespace {

// Returns the vocabulary mark of a parameter file. For model.safetensors of a checkpoint, the mark is in the state.json
// beside it.
VocabularyMark mark_of_file(const std::string& path) {
  VocabularyMark mark = get_mark(safetensors_metadata(path));
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (mark.sha256.empty() && std::filesystem::exists(folder / "state.json"))
    mark = get_mark(checkpoint_numbers(folder.string()));
  return mark;
}

}  // namespace

StoredParameters load_stored(const std::string& path, const std::shared_ptr<Allocator>& allocator) {
  if (!std::filesystem::is_directory(path)) return {load_safetensors(path, allocator), {}, -1, mark_of_file(path)};
  TrainState state = load_model(path, allocator, kAverages);
  StoredParameters stored{std::move(state.model), with_prefix(state.train, kAverages), -1, get_mark(state.numbers)};
  const auto found = state.numbers.find("step");
  if (found != state.numbers.end()) stored.step = std::llround(number_from_text(found->second));
  return stored;
}

void require_finite(const StateDict& values, const std::string& from) {
  for (const auto& [name, t] : values) {
    if (t.dtype() != DType::f32) continue;
    const auto all = t.values<float>();
    const auto bad = std::count_if(all.begin(), all.end(), [](float x) { return !std::isfinite(x); });
    if (bad > 0)
      throw RunError(str("[checkpoint] ", from, ": ", count_text(bad), " of ", count_text(t.numel()), " values of ",
                         name,
                         " are NaN or infinite, so that the model computes nothing; the run has diverged: use an "
                         "earlier checkpoint (--checkpoint STEP), and train with a lower optimizer.lr or a clip"));
  }
}

std::filesystem::path run_of(const std::string& checkpoint) {
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(checkpoint, error);
  for (auto folder = path; folder.has_relative_path(); folder = folder.parent_path())
    if (folder.filename() == "checkpoints") return folder.parent_path();
  return path.parent_path();
}

namespace {

namespace fs = std::filesystem;

std::string shown(const VocabularyMark& mark) {
  return "SHA-256 " + mark.sha256.substr(0, 12);
}

// Example: ": entry 7 is 'a' there, 'b' here".
std::string first_difference(const std::optional<Vocabulary>& there, const Vocabulary& here) {
  if (!there) return {};
  int32_t i = 0;
  const auto common = static_cast<int32_t>(std::min(there->size(), here.size()));
  while (i < common && there->word(i) == here.word(i)) ++i;
  const auto word = [i](const Vocabulary& v) {
    return i < v.size() ? str('\'', v.word(i), '\'') : std::string("none");
  };
  return str(": entry ", i, " is ", word(*there), " there, ", word(here), " here");
}

}  // namespace

std::optional<Vocabulary> vocabulary_beside(const std::string& checkpoint, const VocabularyMark& mark) {
  try {
    Vocabulary found = load_vocabulary(run_of(checkpoint).string());
    if (mark_of(found).sha256 == mark.sha256) return found;
  } catch (const Error&) {  // no vocabulary, or an unreadable one
  }
  return std::nullopt;
}

void check_vocabulary(const VocabularyMark& mark, const std::string& checkpoint, const Vocabulary& vocabulary,
                      const std::string& directory) {
  const VocabularyMark here = mark_of(vocabulary);
  if (mark.sha256.empty() || mark.sha256 == here.sha256) return;
  const std::optional<Vocabulary> there = vocabulary_beside(checkpoint, mark);
  std::error_code error;
  if (!there && fs::equivalent(run_of(checkpoint), directory, error))
    throw UserError(str("[checkpoint] ", directory, "/vocabulary.tsv is no longer the vocabulary that ", checkpoint,
                        " was trained with: it has ", here.entries, " entries (", shown(here), "), recorded are ",
                        mark.entries, " (", shown(mark), "); restore the file"));
  throw UserError(str("[checkpoint] ", checkpoint, " was trained with a vocabulary of ", mark.entries, " entries (",
                      shown(mark), "), this run's has ", here.entries, " (", shown(here), ", ", directory, ")",
                      first_difference(there, vocabulary),
                      "; use a checkpoint of this run, or the run that it comes from"));
}

void check_one_vocabulary(const VocabularyMark& a, const std::string& checkpoint_a, const VocabularyMark& b,
                          const std::string& checkpoint_b) {
  if (a.sha256.empty() || b.sha256.empty() || a.sha256 == b.sha256) return;
  const std::optional<Vocabulary> one = vocabulary_beside(checkpoint_a, a), other = vocabulary_beside(checkpoint_b, b);
  throw UserError(str("[average] ", checkpoint_a, " was trained with a vocabulary of ", a.entries, " entries (",
                      shown(a), "), ", checkpoint_b, " with one of ", b.entries, " (", shown(b), ")",
                      other ? first_difference(one, *other) : "",
                      "; only checkpoints of one vocabulary have an average"));
}

}  // namespace lmx::app

#include "app/runs/vocabulary_check.h"

#include <algorithm>
#include <filesystem>

#include "app/runs/run_directory.h"
#include "lmx/error.h"

namespace lmx::train {
namespace {

namespace fs = std::filesystem;

std::string shown(const VocabularyMark& mark) {
  return "SHA-256 " + mark.sha256.substr(0, 12);
}

// Returns the run that parameters belong to, according to their path: RUN/checkpoints/step-N, a file in it, or a file
// in RUN.
fs::path run_of(const std::string& checkpoint) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(checkpoint, error);
  for (fs::path folder = path; folder.has_relative_path(); folder = folder.parent_path())
    if (folder.filename() == "checkpoints") return folder.parent_path();
  return path.parent_path();
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

}  // namespace lmx::train

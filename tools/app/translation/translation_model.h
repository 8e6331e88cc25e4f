// Translates lines of text with a network whose parameters are in memory: a saved run, or one that is being trained.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/translation/search.h"
#include "app/translation/translate.h"
#include "data/dataset.h"
#include "recipe/components.h"

namespace lmx::train {

// The objects that a TextTranslator uses; all of them outlive it.
struct TranslationModel {
  const Context& ctx;
  const Network& network;
  const ParameterStore& params;
  const TextCodecs& codecs;
  int64_t vocabulary = 0;  // entries
};

class TextTranslator {
 public:
  // UserError: the model does not translate, options out of their range.
  TextTranslator(const TranslationModel& model, const TranslateOptions& options);
  std::vector<std::vector<Translation>> translate(std::span<const std::string> lines,
                                                  const std::function<void(int64_t)>& done = {}) const;
  // Returns the best translation of each sentence of the side `source` of prepared pairs.
  std::vector<Translation> translate_sources(const PairArray& pairs,
                                             const std::function<void(int64_t)>& done = {}) const;

 private:
  struct Piece;
  void search_all(std::vector<Piece>& pieces, const std::function<void(int64_t)>& done) const;
  std::vector<Piece> pieces_of(std::span<const std::string> lines) const;
  void search(std::span<Piece*> batch) const;
  std::vector<std::vector<Translation>> assembled(const std::vector<Piece>& pieces,
                                                  std::span<const std::string> lines) const;
  Translation written(const Hypothesis& hypothesis, const std::string& line) const;

  TranslationModel model_;
  TranslateOptions options_;
};

// Returns the ids of a line, with </s> at the end. UserError: ids beyond the vocabulary, which means that text codec
// and vocabulary are from different runs.
std::vector<int32_t> encode_line(const TextCodec& codec, std::string_view line, int64_t vocabulary);

}  // namespace lmx::train

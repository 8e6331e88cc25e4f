// Labelled texts in three parts, and probes over them: what `lmx probe` and experiments share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "app/probe/transfer.h"

namespace lmx_cli {

struct ProbeTexts {
  lmx::LabelledTexts train, valid, test;
};
struct ProbeFeatures {
  lmx::FeatureMatrix train, valid, test;
};

// A tenth for validation and, with `test`, one for testing, by a permutation that `seed` draws.
ProbeTexts divide_texts(const lmx::LabelledTexts& all, int64_t seed, bool test = true);

// Where labelled texts stand in CSV files and JSON lines, as options of a command.
struct TextColumns {
  std::string text = "sentence", label = "label";
  std::vector<std::string> classes;  // the words of labels 0 and 1; empty: as read_labelled() finds them
  void add_to(CLI::App& command);
  void check(const CLI::App& command) const;  // UserError: not two different classes
  static const std::vector<std::string>& options();
};
// A labelled corpus of the registry. UserError: it has no labels, it is missing.
ProbeTexts texts_of_corpus(const std::string& corpus, const TextColumns& columns, int64_t seed);

ProbeFeatures features_of_texts(const std::string& run, const ProbeTexts& texts, const lmx::FeatureOptions& options);

// Over how often each byte stands in a text, standardised: shares of bytes are small numbers of very different size.
lmx::ProbeResult probe_bytes(const ProbeTexts& texts, const lmx::ProbeOptions& options);

}  // namespace lmx_cli

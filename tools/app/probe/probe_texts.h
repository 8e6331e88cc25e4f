// Labelled texts in three parts, and probes over them; used by `lmx probe` and by experiments.
#pragma once

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

// Divides texts by a random permutation with `seed`: one tenth for validation and, with `test`, one tenth for testing.
ProbeTexts divide_texts(const lmx::LabelledTexts& all, int64_t seed, bool test = true);

// Columns of CSV files, or fields of JSON-lines files, with labelled texts.
struct TextColumns {
  std::string text = "sentence", label = "label";
  std::vector<std::string> classes;  // the words of labels 0 and 1; empty: as in read_labelled()
};
// Returns a labelled corpus of the registry. UserError: it has no labels, or is missing.
ProbeTexts texts_of_corpus(const std::string& corpus, const TextColumns& columns, int64_t seed);

ProbeFeatures features_of_texts(const std::string& run, const ProbeTexts& texts, const lmx::FeatureOptions& options);

// Probes the frequency of each byte in a text. The columns are standardised, because the frequencies are small numbers
// of very different size.
lmx::ProbeResult probe_bytes(const ProbeTexts& texts, const lmx::ProbeOptions& options);

}  // namespace lmx_cli

// Labelled texts in three parts, and probes over them: what `lmx probe` and experiments share.
#pragma once

#include <string>

#include "lmx/transfer.h"

namespace lmx_cli {

struct ProbeTexts {
  lmx::LabelledTexts train, valid, test;
};
struct ProbeFeatures {
  lmx::FeatureMatrix train, valid, test;
};

// A tenth each for validation and test, by a permutation that `seed` draws.
ProbeTexts divide_texts(const lmx::LabelledTexts& all, int64_t seed);

struct TextColumns {
  std::string text = "sentence", label = "label";
};
// A labelled corpus of the registry. UserError: it has no labels, it is missing.
ProbeTexts texts_of_corpus(const std::string& corpus, const TextColumns& columns, int64_t seed);

ProbeFeatures features_of_texts(const std::string& run, const ProbeTexts& texts, const lmx::FeatureOptions& options);

// Over how often each byte stands in a text, standardised: shares of bytes are small numbers of very different size.
lmx::ProbeResult probe_bytes(const ProbeTexts& texts, const lmx::ProbeOptions& options);

}  // namespace lmx_cli

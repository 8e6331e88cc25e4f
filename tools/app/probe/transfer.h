// What a language model has learned, used for something else: states as features of texts, linear probes over them, and
// one unit looked at (Radford 2017, Puri 2018).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/inference/generate.h"
#include "recipe/recipe.h"

namespace lmx {

// Texts with their labels, 0 or 1; without labels these are empty.
struct LabelledTexts {
  std::vector<std::string> texts;
  std::vector<int> labels;
  std::vector<std::string> places;   // "FILE:LINE" of each, for messages; may be empty
  std::vector<std::string> classes;  // the words of labels 0 and 1
};
// A CSV file with a header, or JSON lines (.jsonl, .ndjson) of objects, also with .gz. `label` "": none. `classes`: the
// words of labels 0 and 1, those of the training texts where `path` holds others; empty: 0 and 1, or the two other
// words that the file has, of which the lesser one, by bytes, is label 0. UserError: a missing column (names those
// there are), another label, no text at all.
LabelledTexts read_labelled(const std::string& path, const std::string& text, const std::string& label,
                            const std::vector<std::string>& classes = {});

// Rows of numbers, one a text.
struct FeatureMatrix {
  int64_t rows = 0, columns = 0;
  std::vector<float> values;  // (rows, columns)
  std::vector<int> labels;    // (rows), or empty
  std::string note;           // what they are: "cell state lstm.0.c"
};

struct FeatureOptions {
  std::string state = "cell";  // as of StateUnit
  std::string checkpoint = "last";
  int64_t batch = 64;  // texts at once
};
// The state behind the last token of each text. Every text starts from a zero state and is prepared as the run's data
// was (Puri 2018: "\n " in front, " " behind). UserError: not a run of chars or bytes, no such state, invalid UTF-8 for
// chars.
FeatureMatrix text_features(const std::string& directory, const LabelledTexts& texts, const FeatureOptions& options);

// How often each byte stands in a text, divided by the text's length: (texts, 256).
FeatureMatrix byte_counts(const LabelledTexts& texts);

// As CSV (columns label, f0, f1, ...) where `path` ends in .csv, else as safetensors (features, labels). RunError:
// disk.
void save_features(const FeatureMatrix& features, const std::string& path);
// UserError: missing, damaged, or not written by save_features: labels other than 0 and 1, values that are no numbers.
FeatureMatrix load_features(const std::string& path);

// Logistic regression: minimises penalty(w) + C sum_i log(1 + exp(-y_i (w x_i + b))), y in {-1, 1}, where the penalty
// is |w|_1 ("l1") or |w|^2 / 2 ("l2") and b is not penalised. The objective of scikit-learn's solver saga.
struct LinearModel {
  std::vector<double> weights;
  double bias = 0;
  double objective = 0;
  int iterations = 0;
  bool converged = true;
};
LinearModel fit_logistic(const FeatureMatrix& features, const std::string& penalty, double c);
double accuracy(const LinearModel& model, const FeatureMatrix& features);

struct ProbeOptions {
  std::vector<std::string> penalties{"l1", "l2"};
  std::vector<double> c;     // empty: 2^-8 to 2^0
  bool standardise = false;  // each column to mean 0 and variance 1 of the training texts
};
struct ProbeFit {
  std::string penalty;
  double c = 0;                           // the one with the best validation accuracy, of equal ones the least
  double train = 0, valid = 0, test = 0;  // accuracy, 0 to 1; test 0 without test texts
  int64_t used = 0;                       // weights that are not 0
  LinearModel model;
};
// The unit with the largest weight under L1, and a regression on it alone (Puri 2018's code).
struct StrongestUnit {
  int64_t unit = 0;
  double weight = 0;
  double threshold = 0;  // of its value as it stands in the features, where the regression changes sides
  double train = 0, valid = 0, test = 0;
};
struct ProbeResult {
  std::vector<ProbeFit> fits;
  StrongestUnit strongest;
};
// UserError: an unknown penalty, a C that is no number above 0.
void check_probe(const ProbeOptions& options);
// As check_probe, and UserError: no labels, one class alone, other numbers of columns. `test` may have no rows.
ProbeResult probe(const FeatureMatrix& train, const FeatureMatrix& valid, const FeatureMatrix& test,
                  const ProbeOptions& options);

// The values of a unit at each token of a text, which starts from a zero state.
struct UnitTrace {
  std::vector<std::string> tokens;  // as text: a character, a byte (several bytes of one character stay apart)
  std::vector<double> values;
  std::string note;
};
UnitTrace trace_unit(const std::string& directory, const std::string& text, const StateUnit& unit,
                     const std::string& checkpoint);

}  // namespace lmx

// Uses a language model for other tasks: states as features of texts, linear probes over them, and the values of one
// unit (Radford 2017, Puri 2018).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/inference/generate.h"
#include "recipe/recipe.h"

namespace lmx::app {

// Texts with labels 0 or 1; `labels` and `classes` are empty if there are no labels.
struct LabelledTexts {
  std::vector<std::string> texts;
  std::vector<int> labels;
  std::vector<std::string> places;   // "FILE:LINE" of each text, for messages; may be empty
  std::vector<std::string> classes;  // the words of labels 0 and 1
};
// Reads a CSV file with a header, or JSON lines (.jsonl, .ndjson) of objects; .gz and .zst are possible. `label` "": no
// labels. `classes`: the words of labels 0 and 1, for example those of the training texts. Empty: 0 and 1, or the two
// other words in the file, of which the smaller one, by bytes, is label 0. UserError: a missing column (the message
// lists the columns), another label, no text.
LabelledTexts read_labelled(const std::string& path, const std::string& text, const std::string& label,
                            const std::vector<std::string>& classes = {});

// A matrix with one row per text.
struct FeatureMatrix {
  int64_t rows = 0, columns = 0;
  std::vector<float> values;  // (rows, columns)
  std::vector<int> labels;    // (rows), or empty
  std::string note;           // description of the features: "cell state lstm.0.c"
};

struct FeatureOptions {
  std::string state = "cell";  // see StateUnit
  std::string checkpoint = "last";
  int64_t batch = 64;  // texts per batch
  std::string device;  // as recipe_of_run()
};
// Returns the state after the last token of each text. Every text starts from a zero state and is prepared like the
// run's data (Puri 2018: "\n " at the start, " " at the end). UserError: not a run of chars or bytes, no such state,
// invalid UTF-8 for chars.
FeatureMatrix text_features(const std::string& directory, const LabelledTexts& texts, const FeatureOptions& options);

// Returns the number of occurrences of each byte in a text, divided by the text's length: (texts, 256).
FeatureMatrix byte_counts(const LabelledTexts& texts);

// Writes CSV (columns label, f0, f1, ...) if `path` ends in .csv, otherwise safetensors (features, labels). RunError: a
// disk error.
void save_features(const FeatureMatrix& features, const std::string& path);
// UserError: missing, damaged, or not from save_features: labels other than 0 and 1, values that are not numbers.
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
  bool standardise = false;  // scale each column to mean 0 and variance 1 over the training texts
};
struct ProbeFit {
  std::string penalty;
  double c = 0;                           // has the best validation accuracy; of equal ones the smallest
  double train = 0, valid = 0, test = 0;  // accuracy, 0 to 1; test 0 without test texts
  int64_t used = 0;                       // weights that are not 0
  LinearModel model;
};
// The unit with the largest weight under L1, and a regression on it alone (Puri 2018's code).
struct StrongestUnit {
  int64_t unit = 0;
  double weight = 0;
  double threshold = 0;  // unscaled value of the unit at which the regression changes its decision
  double train = 0, valid = 0, test = 0;
};
struct ProbeResult {
  std::vector<ProbeFit> fits;
  StrongestUnit strongest;
};
// UserError: an unknown penalty, a C that is no number above 0.
void check_probe(const ProbeOptions& options);
// UserError: as check_probe, or no labels, a single class, different numbers of columns. `test` may have no rows.
ProbeResult probe(const FeatureMatrix& train, const FeatureMatrix& valid, const FeatureMatrix& test,
                  const ProbeOptions& options);

// The values of a unit at each token of a text that starts from a zero state.
struct UnitTrace {
  std::vector<std::string> tokens;  // as text: a character or a byte (the bytes of one character are separate)
  std::vector<double> values;
  std::string note;
};
UnitTrace trace_unit(const std::string& directory, const std::string& text, const StateUnit& unit,
                     const std::string& checkpoint, const std::string& device = "");

// Solvers of logistic regression over a dense matrix, for the objective of the linear probes above.

// The data of a fit, in the layout of the solvers: columns minus their means. The bias compensates for the means. (A
// column with small deviations from a large mean is nearly collinear with the bias; then solvers need very many steps,
// or end beside the minimum.) These centred columns are the x of all formulas here. REQUIRES: as many labels as rows,
// rows > 0.
class LogisticProblem {
 public:
  explicit LogisticProblem(const FeatureMatrix& features);
  int64_t rows() const { return rows_; }
  const float* column(int64_t j) const { return by_column_.data() + j * rows_; }
  // Computes z = X w + b.
  void scores(std::span<const double> w, double b, std::vector<double>& z) const;
  // Computes g_j = sum_i x_ij r_i.
  void gradient(std::span<const double> r, std::vector<double>& g) const;
  // Returns sum_i log(1 + exp(-y_i z_i)). `r` receives the derivative by z_i, sigma(z_i) - [y_i = 1]; it may be null.
  double loss(std::span<const double> z, std::vector<double>* r) const;
  // Returns the second derivatives of the loss by z_i, at least 1e-12.
  static std::vector<double> curvature(std::span<const double> z);
  // Returns sum_i h_i x_ij x_ik over the given n columns, followed by a column of ones: (n + 1, n + 1), row-major;
  // summed in float.
  std::vector<double> weighted_products(std::span<const int64_t> columns, std::span<const double> h) const;
  // L2: Newton's method or, with many columns, L-BFGS. L1: proximal Newton with coordinate descent. Both begin at
  // `start` (empty: zero). The models refer to the original columns.
  LinearModel fit_l2(double c, const LinearModel& start) const;
  LinearModel fit_l1(double c, const LinearModel& start) const;

 private:
  // Convert a model of the original columns to one of the centred columns, and back.
  LinearModel started(const LinearModel& start) const;
  LinearModel finished(LinearModel model) const;
  int64_t rows_, columns_;
  std::vector<float> by_column_;  // (columns, rows)
  std::vector<double> means_;     // of the columns
  std::vector<int> labels_;
};

// Labelled texts in three parts, and probes over them; used by `lmx probe` and by experiments.

struct ProbeTexts {
  LabelledTexts train, valid, test;
};
struct ProbeFeatures {
  FeatureMatrix train, valid, test;
};

// Divides texts by a random permutation with `seed`: one tenth for validation and, with `test`, one tenth for testing.
ProbeTexts divide_texts(const LabelledTexts& all, int64_t seed, bool test = true);

// Columns of CSV files, or fields of JSON-lines files, with labelled texts.
struct TextColumns {
  std::string text = "sentence", label = "label";
  std::vector<std::string> classes;  // the words of labels 0 and 1; empty: as in read_labelled()
};
// Returns a labelled corpus of the registry. UserError: it has no labels, or is missing.
ProbeTexts texts_of_corpus(const std::string& corpus, const TextColumns& columns, int64_t seed);

ProbeFeatures features_of_texts(const std::string& run, const ProbeTexts& texts, const FeatureOptions& options);

// Probes the frequency of each byte in a text. The columns are standardised, because the frequencies are small numbers
// of very different size.
ProbeResult probe_bytes(const ProbeTexts& texts, const ProbeOptions& options);

}  // namespace lmx::app

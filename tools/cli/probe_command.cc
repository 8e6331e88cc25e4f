// lmx probe
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include "app/corpora/corpora.h"
#include "app/probe/transfer.h"
#include "app/report/chart.h"
#include "base/output_file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::cli {
namespace {

struct ProbeFlags {
  PluginDirectories directories;
  std::string run, corpus, train, valid, test, histogram, save;
  TextColumns columns;
  int64_t seed = 1;
  bool bag_of_bytes = false;
  FeatureOptions features;
  ProbeOptions probe;
};

ProbeTexts texts_of_files(const ProbeFlags& o) {
  const LabelledTexts train = read_labelled(o.train, o.columns.text, o.columns.label, o.columns.classes);
  const auto read = [&](const std::string& path) {
    return path.empty() ? LabelledTexts{} : read_labelled(path, o.columns.text, o.columns.label, train.classes);
  };
  const LabelledTexts valid = read(o.valid), test = read(o.test);
  if (!o.valid.empty()) return {train, valid, test};
  ProbeTexts texts = divide_texts(train, o.seed, o.test.empty());
  if (!o.test.empty()) texts.test = test;
  return texts;
}

void save(const ProbeFeatures& sets, const std::string& stem) {
  save_features(sets.train, stem + "-train.safetensors");
  save_features(sets.valid, stem + "-valid.safetensors");
  if (sets.test.rows) save_features(sets.test, stem + "-test.safetensors");
}

// Draws how often each class has which values of the unit, as bars.
std::string histogram_of(const FeatureMatrix& f, const StrongestUnit& unit) {
  constexpr int kBins = 40;
  std::vector<double> values;
  for (int64_t r = 0; r < f.rows; ++r)
    values.push_back(static_cast<double>(f.values[static_cast<size_t>(r * f.columns + unit.unit)]));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double low = *least, width = std::max((*most - low) / kBins, 1e-12);
  Chart chart{
      str("unit ", unit.unit, " behind the last byte"), "value (the begin of a bar)", "texts", false, false, {}, {}};
  for (int b = 0; b < kBins; ++b) chart.names.push_back(b % 5 == 0 ? format("%.3g", low + b * width) : "");
  for (const int label : {0, 1}) {
    ChartSeries series{str("label ", label), std::vector<ChartPoint>(kBins), false, false, false};
    for (int b = 0; b < kBins; ++b) series.points[static_cast<size_t>(b)].x = b;
    for (size_t i = 0; i < values.size(); ++i) {
      const int bin = std::min(kBins - 1, static_cast<int>((values[i] - low) / width));
      if (f.labels[i] == label) ++series.points[static_cast<size_t>(bin)].y;
    }
    for (ChartPoint& p : series.points)
      p.hint = str(series.label, ", ", low + p.x * width, " to ", low + (p.x + 1) * width, ": ", p.y, " texts");
    chart.series.push_back(series);
  }
  return svg(chart);
}

void print(const ProbeResult& r, int64_t units, bool tested, const std::string& name) {
  for (const ProbeFit& f : r.fits) {
    const std::string what = name + f.penalty;
    if (tested) std::printf("%s test_accuracy_percent %.2f\n", what.c_str(), 100 * f.test);
    std::printf("%s valid_accuracy_percent %.2f (C 2^%g, train %.2f %%, %lld of %lld weights used)\n", what.c_str(),
                100 * f.valid, std::log2(f.c), 100 * f.train, static_cast<long long>(f.used),
                static_cast<long long>(units));
  }
}

void print_unit(const StrongestUnit& u, bool tested) {
  if (u.weight == 0) {
    std::printf("strongest_unit none (all weights are 0; with a larger --c fewer are)\n");
    return;
  }
  std::printf("strongest_unit %lld (weight %.4g)\n", static_cast<long long>(u.unit), u.weight);
  if (tested) std::printf("strongest_unit test_accuracy_percent %.2f\n", 100 * u.test);
  std::printf("strongest_unit valid_accuracy_percent %.2f (train %.2f %%; label %d above %.4g)\n", 100 * u.valid,
              100 * u.train, u.weight > 0 ? 1 : 0, u.threshold);
}

void check(Command command, const ProbeFlags& o) {
  if (o.corpus.empty() && o.train.empty()) refuse_given(command, {"--valid", "--test"}, "without --train");
  if (o.corpus.empty() == o.train.empty())
    throw UserError("[probe] name one of: --corpus NAME (with a run), --train FILE (with --valid and --test)");
  if (o.run.empty() && !o.corpus.empty())
    throw UserError("[probe] a corpus holds texts, and a run's model reads them: lmx probe RUN --corpus NAME");
  if (o.run.empty() && o.valid.empty())
    throw UserError("[probe] features of a training split need those of a validation split, too: --valid FILE");
  if (o.bag_of_bytes && o.run.empty())
    throw UserError("[probe] --bag-of-bytes counts the bytes of texts; it needs a run and texts");
  if (o.run.empty()) {
    const std::string why = "without a run: the files hold features";
    refuse_given(command, text_column_options(), why);
    refuse_given(command, {"--seed", "--state", "--checkpoint", "--batch", "--save", "--device"}, why);
  }
  if (!o.corpus.empty()) refuse_given(command, {"--valid", "--test"}, "with --corpus, which has its own");
  if (o.corpus.empty() ? !o.valid.empty() : !find_corpus(o.corpus).valid.empty())
    refuse_given(command, {"--seed"}, "if validation texts are given: nothing is sampled");
  check_text_columns(command, o.columns);
  if (o.save.ends_with('/'))
    throw UserError(
        str("[probe] --save ", o.save, ": name what the files' names begin with, such as ", o.save, "sst2"));
  const std::string problem = o.save.empty() ? "" : output_problem(o.save + "-train.safetensors");
  if (!problem.empty()) throw UserError("[probe] --save: " + problem);
  check_probe(o.probe);
}

void probe_command(Command command, const ProbeFlags& o) {
  check(command, o);
  ProbeFeatures sets;
  ProbeTexts texts;
  if (o.run.empty()) {
    sets = {load_features(o.train), load_features(o.valid), o.test.empty() ? FeatureMatrix{} : load_features(o.test)};
  } else {
    texts = o.corpus.empty() ? texts_of_files(o) : texts_of_corpus(o.corpus, o.columns, o.seed);
    o.directories.load();
    sets = features_of_texts(o.run, texts, o.features);
    if (!o.save.empty()) save(sets, o.save);
    std::cout << sets.train.note << "\n";
  }
  std::cout << "texts train " << sets.train.rows << ", valid " << sets.valid.rows << ", test " << sets.test.rows
            << "; units " << sets.train.columns << std::endl;
  const bool tested = sets.test.rows > 0;
  const ProbeResult result = probe(sets.train, sets.valid, sets.test, o.probe);
  print(result, sets.train.columns, tested, "");
  print_unit(result.strongest, tested);
  if (!o.histogram.empty() && result.strongest.weight != 0) {
    write_file(o.histogram, histogram_of(sets.train, result.strongest));
    std::cout << "written " << o.histogram << "\n";
  }
  if (o.bag_of_bytes) print(probe_bytes(texts, o.probe), 256, tested, "bag_of_bytes ");
}

}  // namespace

void add_probe(Command app) {
  const Command command =
      app.add_subcommand("probe", "logistic regression on a model's features: two classes of texts");
  set_examples(command, {{"lmx probe runs/puri_desk/2026-05-01_101500 --corpus sst2 --histogram unit.svg",
                          "L1 and L2, C chosen on validation; the strongest unit drawn"},
                         {"lmx probe runs/puri_desk/2026-05-01_101500 --corpus movie_reviews --bag-of-bytes",
                          "a tenth each for validation and test; with a baseline"},
                         {"lmx probe --train train.safetensors --valid valid.safetensors --test test.csv",
                          "with features that `lmx features` wrote"}});
  const auto o = std::make_shared<ProbeFlags>();
  command.add_option("RUN", o->run, "a run's folder; without it --train, --valid and --test are features");
  command.add_option("--corpus NAME", o->corpus, "labelled texts of the registry: sst2, movie_reviews");
  command.add_option("--train FILE", o->train, "a file of texts (CSV or .jsonl), or features");
  command.add_option("--valid FILE", o->valid,
                     "texts for validation; by default a tenth of --train, and another tenth for the test");
  command.add_option("--test FILE", o->test,
                     "texts for which accuracy is printed; by default a tenth of --train if --valid is not given");
  add_text_columns(command, o->columns);
  command.add_option("--seed N", o->seed, "seed of the split").show_default();
  command
      .add_option("--state NAME", o->features.state, "cell or hidden of the last layer, or a tensor's name: lstm.0.c")
      .show_default();
  command
      .add_option("--checkpoint WHICH", o->features.checkpoint, "last, best, a step, or a file or folder of parameters")
      .show_default();
  command.add_option("--batch N", o->features.batch, "texts at once").show_default();
  command.add_option("--penalty KIND", o->probe.penalties, "l1, l2 or both").separated_by_commas().show_default();
  command.add_option("--c X", o->probe.c, "weights of the loss to choose from; 2^-8 to 2^0 by default")
      .separated_by_commas();
  command.add_flag("--standardise", o->probe.standardise, "each unit to mean 0 and variance 1 of the training texts");
  command.add_flag("--bag-of-bytes", o->bag_of_bytes, "also probe the byte frequencies of the texts, as a baseline");
  command.add_option("--histogram SVG", o->histogram, "values of the strongest unit by class").output_file();
  command.add_option("--save STEM", o->save, "also write the features: STEM-train.safetensors ...")
      .writes({"-train.safetensors", "-valid.safetensors", "-test.safetensors"});
  add_device(command, o->features.device);
  o->directories.add_to(command);
  command.callback([command, o] { probe_command(command, *o); });
}

}  // namespace lmx::app::cli

// lmx features
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <sstream>

#include "app/probe/transfer.h"
#include "app/report/chart.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::cli {
namespace {

struct FeaturesFlags {
  PluginDirectories directories;
  std::string run, input, out;
  TextColumns columns;
  std::string heatmap, text, text_file;
  bool no_labels = false;
  int64_t unit = -1;
  FeatureOptions features;
};

// Returns a colour from blue (smallest value) over white (0) to orange (largest), which everyone can distinguish.
std::string colour(double value, double most) {
  const double share = most > 0 ? std::min(1.0, std::abs(value) / most) : 0;
  const int full[3] = {value > 0 ? 230 : 86, value > 0 ? 159 : 180, value > 0 ? 0 : 233};
  return format("#%02x%02x%02x", static_cast<int>(255 + share * (full[0] - 255)),
                static_cast<int>(255 + share * (full[1] - 255)), static_cast<int>(255 + share * (full[2] - 255)));
}

// The bytes of one UTF-8 character are in one element, with the colour of the last byte.
std::string heatmap_page(const UnitTrace& trace) {
  double most = 0, sum = 0;
  for (const double v : trace.values) {
    most = std::max(most, std::abs(v));
    sum += v;
  }
  std::ostringstream page;
  page << "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>" << escaped(trace.note)
       << "</title>\n<style>body{font:16px/1.6 monospace;max-width:60rem;margin:2rem auto;color:#000}"
       << "pre{white-space:pre-wrap;font:inherit}</style></head><body>\n<h1 style='font-size:1.1rem'>"
       << escaped(trace.note) << "</h1>\n<p>";
  const std::string scale = format("values from %.4g to %.4g, mean %.4g, after the last token %.4g",
                                   *std::min_element(trace.values.begin(), trace.values.end()),
                                   *std::max_element(trace.values.begin(), trace.values.end()),
                                   sum / static_cast<double>(trace.values.size()), trace.values.back());
  page << scale << "; <span style='background:" << colour(-1, 1) << "'>" << -most << "</span> <span>0</span> "
       << "<span style='background:" << colour(1, 1) << "'>" << most << "</span></p>\n<pre>";
  for (size_t i = 0; i < trace.tokens.size();) {
    std::string text = trace.tokens[i];
    size_t last = i;
    while (last + 1 < trace.tokens.size() && (static_cast<unsigned char>(trace.tokens[last + 1][0]) & 0xC0) == 0x80)
      text += trace.tokens[++last];
    page << "<span style='background:" << colour(trace.values[last], most) << "' title='"
         << format("%.4g", trace.values[last]) << "'>" << (text == "\n" ? "↵\n" : escaped(text)) << "</span>";
    i = last + 1;
  }
  page << "</pre></body></html>\n";
  return page.str();
}

std::string text_to_trace(const FeaturesFlags& o) {
  if (o.text.empty() == o.text_file.empty())
    throw UserError("[features] --heatmap shows one text: give --text TEXT or --text-file FILE");
  if (o.text_file.empty()) return o.text;
  return read_file(o.text_file);
}

void heatmap(Command command, const FeaturesFlags& o) {
  const std::string why = "with --heatmap, which shows one unit over --text or --text-file";
  refuse_given(command, {"TEXTS", "--out", "--no-labels", "--batch"}, why);
  refuse_given(command, text_column_options(), why);
  if (o.unit < 0)
    throw UserError("[features] --heatmap shows one unit: give --unit N (`lmx probe` names the strongest)");
  const std::string text = text_to_trace(o);
  o.directories.load();
  const UnitTrace trace = trace_unit(o.run, text, {o.features.state, o.unit}, o.features.checkpoint, o.features.device);
  write_file(o.heatmap, heatmap_page(trace));
  std::cout << trace.note << "\nlast value " << trace.values.back() << "\nwritten " << o.heatmap << "\n";
}

void features(Command command, const FeaturesFlags& o) {
  if (!o.heatmap.empty()) return heatmap(command, o);
  refuse_given(command, {"--unit", "--text", "--text-file"}, "without --heatmap");
  if (o.no_labels) refuse_given(command, {"--label-column", "--classes"}, "with --no-labels");
  if (o.input.empty() || o.out.empty())
    throw UserError(
        "[features] name a file of texts (CSV or .jsonl) and --out FILE, or --heatmap FILE with --unit and --text");
  check_text_columns(command, o.columns);
  const LabelledTexts texts =
      read_labelled(o.input, o.columns.text, o.no_labels ? "" : o.columns.label, o.columns.classes);
  o.directories.load();
  const FeatureMatrix matrix = text_features(o.run, texts, o.features);
  save_features(matrix, o.out);
  std::cout << matrix.note << "\n"
            << "texts " << matrix.rows << "\nunits " << matrix.columns << "\nwritten " << o.out << "\n";
}

}  // namespace

void add_text_columns(Command command, TextColumns& columns) {
  command.add_option("--text-column NAME", columns.text, "column, or field of JSON, of the texts").show_default();
  command.add_option("--label-column NAME", columns.label, "column, or field of JSON, of the labels").show_default();
  command
      .add_option("--classes A,B", columns.classes,
                  "the words of labels 0 and 1, as neg,pos; by default those in the file")
      .separated_by_commas();
}

void check_text_columns(Command command, const TextColumns& columns) {
  const std::vector<std::string>& words = columns.classes;
  if (words.empty() || (words.size() == 2 && words[0] != words[1])) return;
  throw UserError(str("[", command.name(), "] --classes takes two different words, as neg,pos"));
}

const std::vector<std::string>& text_column_options() {
  static const std::vector<std::string> names{"--text-column", "--label-column", "--classes"};
  return names;
}

void add_features(Command app) {
  const Command command = app.add_subcommand(
      "features", "a character model's state after the last byte of each text, or one unit over a text");
  set_examples(command,
               {{"lmx features runs/puri_desk/2026-05-01_101500 sst2/train.csv --out train.safetensors",
                 "the cell state after each sentence, with its label"},
                {"lmx features runs/puri_desk/2026-05-01_101500 texts.csv --text-column body --no-labels --state "
                 "hidden --out f.csv",
                 "the hidden state as CSV"},
                {"lmx features runs/puri_desk/2026-05-01_101500 --heatmap map.html --unit 388 --text 'A fine film.'",
                 "the values of one unit over a text"}});
  const auto o = std::make_shared<FeaturesFlags>();
  command.add_option("RUN", o->run, "a run's folder").required();
  command.add_option("TEXTS", o->input, "a CSV file with a header, or JSON lines (.jsonl)");
  command.add_option("--out FILE", o->out, "features to write: .csv, else safetensors").output_file();
  command
      .add_option("--state NAME", o->features.state, "cell or hidden of the last layer, or a tensor's name: lstm.0.c")
      .show_default();
  add_text_columns(command, o->columns);
  command.add_flag("--no-labels", o->no_labels, "the file has none");
  command.add_option("--batch N", o->features.batch, "texts at once").show_default();
  command
      .add_option("--checkpoint WHICH", o->features.checkpoint, "last, best, a step, or a file or folder of parameters")
      .show_default();
  command.add_option("--heatmap HTML", o->heatmap, "a page with a unit's values over a text").output_file();
  command.add_option("--unit N", o->unit, "unit of the state for the heat map, counted from 0");
  command.add_option("--text TEXT", o->text, "text for the heat map");
  command.add_option("--text-file FILE", o->text_file, "file with the text for the heat map");
  add_device(command, o->features.device);
  o->directories.add_to(command);
  command.callback([command, o] { features(command, *o); });
}

}  // namespace lmx::app::cli

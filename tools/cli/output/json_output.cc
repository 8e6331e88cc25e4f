#include "cli/output/json_output.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "app/scores/bleu.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app::cli {

void add_json(Command command, bool& json) {
  command.add_flag("--json", json, "print the result as JSON, with all digits (docs/json.md)");
}

void print_json(const Json& value) {
  std::cout << value.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
}

namespace {

Json to_json(int64_t line, const std::string& source, const std::vector<Translation>& found) {
  Json translations = Json::array();
  for (const Translation& t : found)
    translations.push_back({{"text", t.text},
                            {"tokens", t.tokens},
                            {"logprob", json_number(t.logprob)},
                            {"score", json_number(t.score)},
                            {"length", t.length}});
  return {{"line", line}, {"source", source}, {"translations", translations}};
}

// The same limit as `lmx translate` without --json: splitting such a long line into subwords would take minutes.
void check_lengths(const Lines& lines, const std::string& input) {
  constexpr size_t kMostBytes = 1 << 20;
  for (size_t i = 0; i < lines.size(); ++i)
    if (lines[i].size() > kMostBytes)
      throw UserError(str("[text] ", input == "-" ? "standard input" : input, ":", i + 1, ": this line has ",
                          lines[i].size(), " bytes, more than ", kMostBytes, "; give a sentence a line"));
}

}  // namespace

TranslatedFile translate_as_json(const std::string& run, const TranslateOptions& options, const std::string& input,
                                 const std::string& output) {
  constexpr size_t kBatchesAtOnce = 16;
  const Translator translator(run, options);
  const Lines lines = read_lines(input);
  check_lengths(lines, input);
  OutputFile out(output);
  const auto begin = std::chrono::steady_clock::now();
  TranslatedFile done;
  const size_t window = kBatchesAtOnce * static_cast<size_t>(std::max<int64_t>(options.batch, 1));
  for (size_t first = 0; first < lines.size(); first += window) {
    const std::span part = std::span(lines).subspan(first, std::min(window, lines.size() - first));
    const auto found = translator.translate(part, [&](int64_t n) {
      progress_line(str("translated ", done.lines + n, " of ", lines.size(), " sentences"));
    });
    for (size_t i = 0; i < part.size(); ++i) {
      out.write(to_json(done.lines++, part[i], found[i]).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
      done.tokens += found[i][0].length;
    }
  }
  progress_line("");
  out.close();
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return done;
}

}  // namespace lmx::app::cli

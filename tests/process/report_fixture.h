// Runs that consist of records only, the page that lmx report writes for them, and that page in a browser.
#pragma once

#include <cmath>

#include "process/run_fixture.h"

namespace lmx_test {

// The first of these programs on PATH; "" if there is none.
inline std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (const std::string file = on_path(name); !file.empty()) return file;
  return "";
}

// Decodes the result of JavaScript's encodeURIComponent().
inline std::string percent_decoded(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool coded = text[i] == '%' && i + 2 < text.size();
    plain += coded ? static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)) : text[i];
    if (coded) i += 2;
  }
  return plain;
}

class ReportPageTest : public RunTest {
 protected:
  Outcome report(const Words& more) const { return lmx(joined({"report"}, more)); }

  // Makes a run folder with these records and the other required files.
  void make_run(const std::string& dir, const std::vector<Json>& records, const std::string& config = "seed: 1\n",
                const std::string& status = "") {
    std::filesystem::create_directories(folder_ / dir);
    write(dir + "/provenance.json", R"({"starts":[{"lmx":{"version":"0.0-test"}}]})");
    write(dir + "/config.yaml", config);
    if (!status.empty()) write(dir + "/status.json", status);
    std::string lines;
    for (const Json& r : records) lines += r.dump() + "\n";
    write(dir + "/metrics.jsonl", lines);
  }

  Json data_of(const std::string& file) const {
    const std::string text = read_file(folder_ / file), begin = R"(<script id="data" type="application/json">)";
    const size_t at = text.find(begin);
    EXPECT_NE(at, std::string::npos);
    return Json::parse(text.substr(at + begin.size(), text.find("</script>", at) - at - begin.size()));
  }

  // The document after a browser has run the page's scripts; `link` is the part after the #.
  std::string opened(const std::string& file, const std::string& link, const std::string& size = "1400,1000") const {
    const Outcome o = run_process({browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                   "--user-data-dir=" + path("profile"), "--window-size=" + size, "--dump-dom",
                                   "file://" + path(file) + "#" + link});
    EXPECT_THAT(o, Succeeds());
    return o.out.substr(0, o.out.find("<script id=\"data\""));
  }

  // The value of a JavaScript expression on the page, or the error that it threw.
  Json told(const std::string& file, const std::string& expression, const std::string& link = "") const {
    write("asked.html",
          read_file(folder_ / file) +
              "<script>{const mark = document.createElement('pre');"
              "mark.id = 'told'; let said; try { said = " +
              expression +
              "; } catch (error) { said = {error: String(error)}; }"
              "mark.textContent = encodeURIComponent(JSON.stringify(said)); document.body.prepend(mark);}</script>");
    const std::string page = opened("asked.html", link), begin = "<pre id=\"told\">";
    const size_t at = page.find(begin);
    if (at == std::string::npos) return {{"error", "the page has no answer"}};
    return Json::parse(percent_decoded(page.substr(at + begin.size(), page.find("</pre>", at) - at - begin.size())));
  }
};

inline std::vector<Json> falling(int steps, double start) {
  std::vector<Json> records;
  for (int step = 1; step <= steps; ++step) {
    const double nll = start / std::sqrt(step);
    records.push_back({{"step", step},
                       {"split", "train"},
                       {"nll_nat", nll},
                       {"ppl", std::exp(nll)},
                       {"lr", 0.5},
                       {"tokens", 100 * step},
                       {"epoch", step * 0.1},
                       {"step_s", 0.5}});
    if (step % 10 == 0)
      records.push_back({{"step", step}, {"split", "valid"}, {"nll_nat", nll + 1}, {"ppl", std::exp(nll + 1)}});
  }
  return records;
}

}  // namespace lmx_test

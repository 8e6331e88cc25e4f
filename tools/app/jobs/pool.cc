#include "app/jobs/pool.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "app/records/line_file.h"
#include "lmx/error.h"

namespace lmx_cli::jobs {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(50);

// Quotes a value for the override grammar.
std::string override_value(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  if (text.find('/') != std::string::npos && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = text.find_first_not_of('\\', i);
    const bool before_quote = text[i] == '\\' && (end == std::string::npos || text[end] == '\'');
    if (text[i] == '\'' || before_quote) quoted += '\\';
    quoted += text[i];
  }
  return quoted + "'";
}

}  // namespace

Pool::~Pool() = default;

void Pool::start(const Job& job) {
  running_.push_back({job.id, Child(job.words, job.log, job.around), Clock::now(), job.around.cores});
}

void Pool::pass_signals_on() {
  if (SignalNote::count() == told_) return;
  told_ = SignalNote::count();
  signal_ = SignalNote::received();
  for (const Running& r : running_) r.child.send(SIGTERM);
}

std::optional<Ended> Pool::poll() {
  pass_signals_on();
  for (auto r = running_.begin(); r != running_.end(); ++r) {
    const std::optional<int> code = r->child.poll();
    if (!code) continue;
    const double seconds = std::chrono::duration<double>(Clock::now() - r->start).count();
    Ended ended{r->id, *code, seconds, std::move(r->cores)};
    running_.erase(r);
    return ended;
  }
  return {};
}

void Pool::send(const std::string& id, int signal) const {
  for (const Running& r : running_)
    if (r.id == id) r.child.send(signal);
}

void Pool::wait() {
  std::this_thread::sleep_for(kPollEvery);
}

std::vector<std::string> run_command(const std::string& recipe, const std::string& directory,
                                     const std::vector<std::string>& plugin_directories) {
  std::vector<std::string> words{own_program(), "run", recipe, "run.dir=" + override_value(directory),
                                 "--resume",    "auto"};
  for (const std::string& plugins : plugin_directories) words.insert(words.end(), {"--plugin-dir", plugins});
  return words;
}

std::string last_error(const std::string& log) {
  constexpr size_t kBelow = 20;  // lines of a launcher that follow the message of its program
  const std::string mark = "error: ";
  std::vector<std::string> lines;
  std::istringstream text(read_text(log));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  size_t last = lines.size();
  while (last > 0 && lines[last - 1].find(mark) == std::string::npos) --last;
  if (last == 0) return "see " + log;
  for (size_t i = last; i > 0 && i + kBelow > last; --i)
    if (lines[i - 1].starts_with(mark)) return lines[i - 1].substr(mark.size());
  return lines[last - 1].substr(lines[last - 1].find(mark) + mark.size());
}

// Reads only the end of the file: every line contains its step, and every second one its epoch.
double last_number(const std::string& folder, const std::string& name) {
  std::ifstream file(folder + "/metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return 0;
  const std::streamoff size = file.tellg(), tail = std::min<std::streamoff>(size, 16384);
  file.seekg(size - tail);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string key = "\"" + name + "\":";
  const size_t at = text.rfind(key);
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + key.size(), nullptr);
}

std::string time_text(double seconds) {
  const auto s = static_cast<long long>(std::llround(std::max(0.0, seconds)));
  char text[64];
  if (s < 60) std::snprintf(text, sizeof text, "%llds", s);
  if (s >= 60 && s < 3600) std::snprintf(text, sizeof text, "%lldm%02llds", s / 60, s % 60);
  if (s >= 3600) std::snprintf(text, sizeof text, "%lldh%02lldm", s / 3600, s % 3600 / 60);
  return text;
}

}  // namespace lmx_cli::jobs

#include "app/run/run.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "backend/cuda.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/matmul.h"
#include "tensor/caching_allocator.h"

namespace lmx::app {

namespace {

// Returns whether steps have sequences that are shorter than the longest possible one.
bool varies(const Session& s) {
  return s.batcher.step_size(0).tokens > 0;
}

// Examples: "batch 6 sequences = 30 words"; "batch 128 sub-batches, 16 a rank = 402,112 words in the first step".
std::string batch_text(const Session& s) {
  const int64_t items = s.recipe.batch.global;
  if (!s.sub_batches())
    return str("batch ", items, " sequences = ", count_text(s.size_of_step(0).tokens), " ", s.data.unit,
               varies(s) ? "s in the first step" : "s");
  const auto ranks = static_cast<int64_t>(s.comm.size());
  return str("batch ", items, items == 1 ? " sub-batch" : " sub-batches",
             ranks > 1 ? str(", ", (items + ranks - 1) / ranks, " a rank") : "", " = ",
             count_text(s.size_of_step(0).tokens), " ", s.data.unit, "s in the first step");
}

// Example: "cuda:0 (NVIDIA H100 80GB HBM3, compute capability 9.0)".
std::string device_text(Device device) {
  const std::string details = device.kind == Device::Kind::cpu ? cpu_isa() : describe(cuda_device_info(device.index));
  return str(name_of(device), " (", details, ")");
}

}  // namespace

void announce(const Session& s, const InitReport& init, const CommGroup& group, const std::string& directory) {
  log_info(str("run ", directory));
  log_info(str("device ", device_text(s.ctx.device), ", ", group.describe(), ", ", plural(s.comm.threads(), "thread"),
               group.size() == 1 ? ", " : " each, ", s.recipe.precision,
               s.recipe.products == "exact" ? "" : str(", products ", s.recipe.products)));
  if (s.ctx.device.kind == Device::Kind::cpu && s.recipe.precision == "bf16" && multiplies_in_f32(DType::bf16))
    log_warn(
        "this CPU multiplies bf16 no faster than fp32: matrix products round their inputs to bf16 and run in fp32, so "
        "precision=fp32 would be a little faster");
  for (const std::string& line : warnings_of(s.recipe, s.network, *s.sync, s.comm.size(), s.batcher.plan()))
    log_warn(line);
  log_info(str(count_text(s.params.count()), " parameters, vocabulary ", count_text(s.data.vocabulary.size())));
  log_info(str(batch_text(s), ", ", count_text(s.batcher.steps_per_epoch()), " steps an epoch, ",
               count_text(s.shared->total_steps), " steps"));
  for (const std::string& line : describe(init)) log_info(line);
  for (const std::string& line : s.batcher.describe()) log_info(line);
  if (s.recipe.lr_rule.name != "fixed")
    log_info(str("lr_rule ", s.recipe.lr_rule.name, ": factor ", s.shared->lr_factor));
  for (const std::string& line : s.sync->describe(s.comm.size())) log_info(line);
  if (!s.data.report.empty()) log_debug(s.data.report);
}

namespace {

// The counts contain the work of the whole process: all virtual ranks, validation and checkpoints.
std::string work_text(const DeviceCounts& counts) {
  return str("the device did ", count_text(counts.all_launches()), " launches of kernels and graphs, ",
             count_text(counts.uploads.times), " uploads (", bytes_text(counts.uploads.bytes), ") and ",
             count_text(counts.downloads.times), " downloads (", bytes_text(counts.downloads.bytes),
             "); the host waited for it ", count_text(counts.waits), " times");
}

// Writes the peaks of each rank until the end of the run. The records contain those until the last step: the validation
// and the checkpoint after it may need more.
void write_memory(Session& s, const MemoryStats& memory, const std::string& directory, int64_t step) {
  std::string own;
  for (int c = 0; c < kMemClasses; ++c)
    own += str(", \"", name_of(static_cast<MemClass>(c)), "\": ", memory.peak[static_cast<size_t>(c)]);
  const std::vector<std::string> all =
      s.comm.gather_texts(str("{\"rank\": ", s.comm.rank(), own, ", \"total\": ", memory.total_peak, "}"), "control");
  if (!s.leads()) return;
  write_file(directory + "/memory.json",
             str("{\"step\": ", step, ", \"peak_bytes\": [\n  ", config::join(all, ",\n  "), "]}\n"));
}

}  // namespace

void report_totals(Session& s, const TrafficCounter& traffic, const std::string& directory, int64_t step) {
  const MemoryStats memory = s.memory();
  write_memory(s, memory, directory, step);
  const double own[] = {static_cast<double>(memory.total_peak), static_cast<double>(sum_of(traffic.recorded()).sent)};
  double most = 0, sent = 0;
  {
    const std::vector<double> all = s.comm.gather_numbers(own, "control");
    for (size_t i = 0; i < all.size(); i += 2) {
      most = std::max(most, all[i]);
      sent += all[i + 1];
    }
  }
  const std::vector<std::string> tables = s.comm.gather_texts(traffic.to_json(), "control");
  if (!s.leads()) return;
  log_info(str("peak memory ", peak_text(memory)));
  if (s.ctx.device.kind == Device::Kind::cuda) {
    log_info(str("peak memory of the host for tensors ", peak_text(s.ctx.host->stats())));
    const CudaDevice& device = cuda_device(s.ctx.device);
    if (const int64_t graphs = device.graph_memory().peak; graphs > 0)
      log_info(str("peak memory of CUDA graphs on the device ", bytes_text(graphs), ", of all ranks of this process"));
    log_debug(work_text(device.counts()));
  }
  for (const std::string& line : s.sync->summary()) log_info(line);
  if (s.comm.size() == 1) return;
  log_info(str("most of any rank ", bytes_text(static_cast<int64_t>(most)), "; up to the last record all ranks sent ",
               bytes_text(static_cast<int64_t>(sent)), ", a rank and step (mean of ranks, most of any):"));
  for (const std::string& line : traffic_lines(tables)) log_info("  " + line);
}

namespace {

using Json = nlohmann::ordered_json;

// An anonymous file in memory.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("lmx-trace", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw RunError(str("[trace] no memory for its spans: ", std::strerror(errno)));
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return str("/proc/self/fd/", descriptor_); }

 private:
  int descriptor_;
};

Json name_of(const char* what, int rank, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string rank_rows(const Tracer& tracer, int rank) {
  const MemoryFile file;
  tracer.write(file.path());
  Json spans = Json::parse(read_file(file.path()))["traceEvents"];
  int threads = 0;
  std::set<int> on_device;  // threads whose work the device has done
  for (Json& span : spans) {
    span["pid"] = rank;
    const int row = span["tid"];
    if (row < Tracer::kDeviceRow)
      threads = std::max(threads, row + 1);
    else
      on_device.insert(row - Tracer::kDeviceRow);
  }
  const std::string own = str("rank ", rank);
  const auto of_thread = [](const std::string& text, int t) { return t ? str(text, ", thread ", t + 1) : text; };
  Json rows = Json::array({name_of("process_name", rank, 0, own)});
  rows.push_back(
      {{"ph", "M"}, {"name", "process_sort_index"}, {"pid", rank}, {"tid", 0}, {"args", {{"sort_index", rank}}}});
  for (int t = 0; t < threads; ++t) rows.push_back(name_of("thread_name", rank, t, of_thread(own, t)));
  for (const int t : on_device)
    rows.push_back(name_of("thread_name", rank, Tracer::kDeviceRow + t, of_thread(own + ", device", t)));
  rows.insert(rows.end(), spans.begin(), spans.end());
  return rows.dump();
}

void write_rank_trace(const std::string& path, const std::vector<std::string>& rows) {
  Json all = Json::array();
  for (const std::string& text : rows)
    for (Json& row : Json::parse(text)) all.push_back(std::move(row));
  write_file(path, Json{{"traceEvents", all}, {"displayTimeUnit", "ms"}}.dump() + "\n");
}

}  // namespace lmx::app

// plugin.toml, fields of plugins, checkpoints, metrics.jsonl, journals, the files of tokenizers and of models of
// Hugging Face, and the table of all targets.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "app/experiment/journal.h"
#include "app/huggingface/layouts.h"
#include "app/huggingface/weights.h"
#include "app/prepare/token_file.h"
#include "app/records/records.h"
#include "app/sweep/journal.h"
#include "app/text/subword_tokenizer.h"
#include "base/files.h"
#include "data/tokenizer_file.h"
#include "lmx/error.h"
#include "plugin/manifest.h"
#include "runfiles/checkpoint.h"
#include "runfiles/metrics.h"
#include "scratch.h"
#include "targets.h"

namespace lmx::fuzz {
namespace {

// The JSON files of a model of Hugging Face. Its weights are the target `checkpoint`.

using app::huggingface::GptFields;
using app::huggingface::Layout;

void read_config(const std::string& text) {
  const app::huggingface::Json config = app::huggingface::parse_object(text, "config.json");
  const Layout& layout = app::huggingface::layout_of(config, "config.json");
  const GptFields fields = app::huggingface::fields_of(layout, config, "config.json");
  const app::huggingface::Json written = app::huggingface::config_of(layout, fields);
  if (app::huggingface::fields_of(layout, written, "written.json") != fields)
    throw std::logic_error(str("the fields of a config read back to others: ", written.dump()));
}

}  // namespace

void huggingface(std::string_view input) {
  const std::string text(input);
  try {
    read_config(text);
  } catch (const UserError&) {
  }
  try {
    static_cast<void>(app::huggingface::files_of_index(text, "index.json"));
  } catch (const UserError&) {
  }
}

// tokenizer.json of a tokenizer's author.

void tokenizer_json(std::string_view input) {
  const std::string text =
      "It's  12345 na\xC3\xAFve e\xCC\x81\xE2\x80\xA8\n\n\tif (x) { <|endoftext|> }\xF0\x9F\x98\x80 ";
  try {
    for (const char* special : {"text", "token"}) {
      const auto tokenizer = app::make_json_tokenizer({std::string(input), "input", false, special});
      for (const int32_t id : tokenizer->encode(text))
        if (id < 0 || id >= tokenizer->size()) throw std::logic_error("an id that no token has");
      static_cast<void>(tokenizer->decode(tokenizer->encode(text)));
    }
  } catch (const UserError&) {
  }
}

// Files that open_dataset() maps, and of which a recipe is only checked (lmx config).
void tokens(std::string_view input) {
  static const Scratch scratch;
  const std::string path = scratch.path("ids.bin");
  scratch.write("ids.bin", input);
  for (const char* format : {"llmc", "raw16", "raw32"}) {
    try {
      const auto part = app::token_part(path, std::ssize(input), format);
      static_cast<void>(app::token_hash(part));
      app::check_ids(part, 50'257, true);
    } catch (const UserError&) {
    }
  }
  try {
    if (tokenizer_entries(path) < 1) throw std::logic_error("a tokenizer without entries");
  } catch (const UserError&) {
  }
}

namespace {

using Json = nlohmann::json;

// Adds the required hash to a state.json, so that the code after the hash check is tested. Deeply nested inputs stay
// unchanged: lmx, not this function, must reject them without a stack overflow.
std::string with_hash(std::string_view input) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) {
    if (depth > 50) throw std::length_error("deep");
    return true;
  };
  try {
    Json state = Json::parse(input, shallow);
    if (!state.is_object() || state.contains("sha256")) return std::string(input);
    state["sha256"] = sha256_of_text(state.dump());
    return state.dump(1) + "\n";
  } catch (const Json::exception&) {
  } catch (const std::length_error&) {
  }
  return std::string(input);
}

void load_folder(const Scratch& scratch, std::string_view state) {
  const std::string folder = scratch.path("step-1");
  if (!scratch.has("step-1/model.safetensors")) {
    const auto allocator = Allocator::cpu();
    const Tensor bias = Tensor::zeros(allocator, {2}, DType::f32, MemClass::other);
    for (const char* name : {"model", "train_state", "rank-0"})
      save_safetensors(folder + "/" + name + ".safetensors", {{"bias", bias}});
  }
  scratch.write("step-1/state.json", with_hash(state));
  try {
    load_checkpoint(folder, Allocator::cpu());
  } catch (const UserError&) {
  }
  try {
    checkpoint_numbers(folder);
  } catch (const UserError&) {
  }
}

void load_tensors(const Scratch& scratch, std::string_view input) {
  scratch.write("model.safetensors", input);
  const auto allocator = Allocator::cpu();
  StateDict tensors;
  try {
    tensors = load_safetensors(scratch.path("model.safetensors"), allocator);
  } catch (const UserError&) {
    return;
  }
  const std::string copy = scratch.path("copy.safetensors");
  save_safetensors(copy, tensors);
  const StateDict again = load_safetensors(copy, allocator);
  if (again.size() != tensors.size()) throw std::logic_error("a checkpoint's tensors were lost on their way");
  for (const auto& [name, t] : tensors) {
    const Tensor& other = again.at(name);
    const size_t bytes = static_cast<size_t>(t.bytes());
    if (t.shape() != other.shape() || (bytes > 0 && std::memcmp(t.raw(), other.raw(), bytes) != 0))
      throw std::logic_error(str("tensor '", name, "' reads back to another"));
  }
}

}  // namespace

void manifest(std::string_view input) {
  static const Scratch scratch;
  scratch.write("plugin.toml", input);
  try {
    read_manifest(scratch.path("plugin.toml"));
  } catch (const UserError&) {
  }
  try {
    needs_of(scratch.path("plugin.toml"));
  } catch (const UserError&) {
  }
}

void fields(std::string_view input) {
  const auto file = parse_fields_file(std::string(input));
  if (!file) return;
  const auto again = parse_fields_file(fields_file_text(*file));
  const auto same = [](const FieldInfo& a, const FieldInfo& b) {
    return std::tie(a.name, a.type, a.default_text, a.range, a.help) ==
           std::tie(b.name, b.type, b.default_text, b.range, b.help);
  };
  const bool kept =
      again && std::tie(again->kind, again->library, again->core) == std::tie(file->kind, file->library, file->core) &&
      std::equal(again->fields.begin(), again->fields.end(), file->fields.begin(), file->fields.end(), same);
  if (!kept) throw std::logic_error("a plugin's fields read back to others");
}

void metrics(std::string_view input) {
  static const Scratch scratch;
  scratch.write("metrics.jsonl", input);
  try {
    app::read_records(scratch.path(""));
  } catch (const UserError&) {
  }
  validations(scratch.path(""));
  // `lmx report` reads the lines that a resumed run keeps.
  { const MetricsFile file(scratch.path("metrics.jsonl"), 100, false); }
}

void checkpoint(std::string_view input) {
  static const Scratch scratch({"step-1"});
  if (input.starts_with("{"))
    load_folder(scratch, input);
  else
    load_tensors(scratch, input);
}

// The journals of sweeps and experiments, and the status file of a run.

void journal(std::string_view input) {
  using namespace lmx::app;
  static const Scratch scratch;
  static const app::sweep::Plan plan = [] {
    app::sweep::Plan p;
    p.name = "fuzzed";
    for (const char* id : {"0", "1-seed=2", "02-optimizer.lr=1e-3"}) p.points.emplace_back().id = id;
    return p;
  }();
  scratch.write("journal.jsonl", input);
  scratch.write("status.json", input);
  try {
    app::sweep::read_standing(plan, scratch.path(""));
  } catch (const UserError&) {
  }
  app::read_status(scratch.path(""));
  try {
    app::experiment::Journal(scratch.path("journal.jsonl"));
  } catch (const UserError&) {
  }
}

const std::vector<Target>& targets() {
  static const std::vector<Target> all{{"yaml", yaml},
                                       {"override", override_text},
                                       {"interpolation", interpolation},
                                       {"manifest", manifest},
                                       {"fields", fields},
                                       {"metrics", metrics},
                                       {"checkpoint", checkpoint},
                                       {"journal", journal},
                                       {"tokenizer", tokenizer_json},
                                       {"tokens", tokens},
                                       {"huggingface", huggingface}};
  return all;
}

}  // namespace lmx::fuzz

#include "app/huggingface/import.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "app/huggingface/layouts.h"
#include "app/huggingface/weights.h"
#include "app/runs/run_directory.h"
#include "app/runs/stored_parameters.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/subwords.h"
#include "backend/convert.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/text.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "recipe/components.h"
#include "recipe/recipe.h"
#include "runfiles/checkpoint.h"
#include "runfiles/vocabulary_mark.h"

namespace lmx::app::huggingface {

Tensor transposed(const Tensor& matrix) {
  const int64_t rows = matrix.dim(0), cols = matrix.dim(1);
  Tensor out = Tensor::empty(Allocator::cpu(), {cols, rows}, DType::f32, MemClass::other);
  transpose(matrix.data<float>(), out.data<float>(), rows, cols);
  return out;
}

std::vector<std::pair<std::string, Tensor>> split(const Place& place, const Tensor& value) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  int64_t row = 0;
  for (const Place::Part& part : place.parts) {
    const Tensor own = value.slice(row, row + part.rows);
    tensors.emplace_back(part.tensor, place.transposed ? transposed(own) : own);
    row += part.rows;
  }
  return tensors;
}

Tensor join(const Place& place, const std::vector<Tensor>& tensors) {
  Tensor out = Tensor::empty(Allocator::cpu(), place.shape, DType::f32, MemClass::other);
  float* to = out.data<float>();
  for (const Tensor& tensor : tensors) {
    const Tensor own = place.transposed ? transposed(widened(tensor)) : widened(tensor);
    to = std::copy_n(own.data<float>(), own.numel(), to);
  }
  return out;
}

}  // namespace lmx::app::huggingface

namespace lmx::app {
namespace huggingface {
namespace {

namespace fs = std::filesystem;
using Tokenizer = std::shared_ptr<const SubwordTokenizer>;

constexpr int64_t kMostWords = int64_t{1} << 24;  // far above every vocabulary, and still small in memory
constexpr int64_t kWindow = 1024;                 // tokens of a sequence in the recipe, if the model reads as many

// The recipe of the run is UTF-8, and names both folders.
void require_utf8(const std::string& folder) {
  if (find_invalid_utf8(fs::absolute(folder).string()) != kValidUtf8)
    throw UserError(str("[import] the path of ", folder, " is not UTF-8, as the config.yaml that names it must be; ",
                        "rename the folder"));
}

// The content of config.json.
struct Source {
  std::string directory, path;  // path: of config.json, for messages
  Json config;
  const Layout* layout = nullptr;
  GptFields fields;
  int64_t words = 0;
};

Source read_source(const std::string& directory) {
  std::error_code error;
  const std::string file = directory + "/config.json";
  if (!fs::is_directory(directory, error))
    throw UserError(str("[import] there is no folder ", directory, "; lmx downloads no models (`hf download ",
                        "OWNER/NAME --local-dir FOLDER` of the package huggingface_hub does)"));
  if (!fs::exists(file, error))
    throw UserError(str("[import] ", directory, " has no config.json, so it is no model of Hugging Face"));
  Source source{directory, "[import] " + file, {}, nullptr, {}, 0};
  source.config = parse_object(read_file(file), source.path);
  source.layout = &layout_of(source.config, source.path);
  source.fields = fields_of(*source.layout, source.config, source.path);
  source.words = integer_of(source.config, "vocab_size", 2, source.path);
  if (source.words > kMostWords)
    throw UserError(str(source.path, ": vocab_size is ", source.words, "; lmx reads at most ", kMostWords, " words"));
  return source;
}

// SentencePiece's file first: the tokenizer.json beside it is of a kind that lmx does not read. Null: there is none.
Tokenizer read_tokenizer(const Source& source) {
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    const std::string path = str(source.directory, "/", name);
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    const auto tokenizer = make_tokenizer({read_file(path), path});
    if (tokenizer->size() > source.words)
      throw UserError(str("[import] ", path, " has ", tokenizer->size(), " ids, more than vocab_size ", source.words,
                          " of config.json"));
    return tokenizer;
  }
  return nullptr;
}

// Each row of the model's table has an entry; rows without a token get names that no text is encoded as.
Vocabulary vocabulary_of(const Source& source, const Tokenizer& tokenizer) {
  std::vector<Vocabulary::Entry> entries;
  for (int64_t id = 0; id < source.words; ++id) {
    const bool known = tokenizer && id < tokenizer->size();
    entries.push_back({known ? tokenizer->name(static_cast<int32_t>(id)) : unused_name(id), 1});
  }
  Vocabulary::Special special{tokenizer ? tokenizer->unk() : -1, tokenizer ? tokenizer->eos() : -1};
  // The token before a text, which is not always the one that the tokenizer's file suggests. Small models of tests have
  // the id of the large ones, which is not in their vocabulary.
  const auto begin = source.config.find("bos_token_id");
  if (begin != source.config.end() && !begin->is_null()) {
    const int64_t id = integer_of(source.config, "bos_token_id", 0, source.path);
    if (id < source.words) special.eos = static_cast<int32_t>(id);
  }
  return Vocabulary(std::move(entries), special);
}

Node model_node(const GptFields& fields, const Mark& mark) {
  Node model = Node::map(mark);
  model.set("name", Node::scalar("gpt", mark));
  for (const auto& [field, value] : fields) {
    const size_t dot = field.find('.');
    const std::string group = field.substr(0, dot);
    if (dot != std::string::npos && !model.find(group)) model.set(group, Node::map(mark));
    Node& owner = dot == std::string::npos ? model : *model.find(group);
    owner.set(dot == std::string::npos ? field : field.substr(dot + 1), Node::scalar(value, mark));
  }
  return model;
}

// Text without files: `lmx run RUN/config.yaml data.files=[...]` trains the model further.
Node data_node(const Source& source, const Tokenizer& tokenizer, const std::string& output) {
  if (!tokenizer) return parse_yaml(str("{name: tokens, vocab_size: ", source.words, "}"), source.path);
  Node data = parse_yaml(str("{name: text, tokens: subwords, vocab_size: ", tokenizer->size(), "}"), source.path);
  data.set("tokenizer_file", Node::string((fs::absolute(output) / tokenizer->file_name()).lexically_normal().string()));
  return data;
}

Node recipe_of(const Source& source, const Tokenizer& tokenizer, const std::string& output) {
  const int64_t context = parse_int(source.fields.at("context")).value();
  Node recipe = parse_yaml(str("batcher: {name: packed_windows, sequence_length: ", std::min(kWindow, context), "}\n",
                               "loss: {name: full_softmax, bias: false}\n", "optimizer: {name: adamw, lr: 2e-5}\n",
                               "train: {eval_batch: 1}\n"),
                           source.path);
  recipe.set("data", data_node(source, tokenizer, output));
  recipe.set("model", model_node(source.fields, Mark{source.path}));
  Node provenance = Node::map();
  provenance.set("imported", Node::string(fs::absolute(source.directory).lexically_normal().string()));
  provenance.set("layout", Node::string(source.layout->name));
  provenance.set("chosen", Node::string("batcher, optimizer and train are for fine-tuning; they are not of the model"));
  recipe.set("provenance", std::move(provenance));
  return recipe;
}

StateDict read_parameters(const Source& source, const std::vector<ParameterSpec>& specs, const NewFolder& folder) {
  Weights weights(source.directory, *source.layout);
  StateDict parameters;
  for (const Place& place : places_of(*source.layout, specs)) {
    folder.end_after_signal();
    parameters.emplace(place.parameter, join(place, weights.take(place)));
  }
  weights.check_rest(*source.layout, parameters.at("embedding.weight"));
  return parameters;
}

// Copies the carried files of the folder `from` to the run `to`.
void carry(const fs::path& from, const fs::path& to) {
  fs::create_directory(to / app::kCarriedFolder);
  const auto copy = [&](const char* name) {
    if (fs::exists(from / name))
      write_file((to / app::kCarriedFolder / name).string(), read_file((from / name).string()));
  };
  copy("config.json");
  for (const char* name : kCarriedFiles) copy(name);
}

}  // namespace
}  // namespace huggingface

ImportReport import_huggingface(const std::string& directory, const std::string& output) {
  using namespace huggingface;
  NewFolder folder("import", output);
  for (const std::string& named : {directory, output}) require_utf8(named);
  const Source source = read_source(directory);
  const Tokenizer tokenizer = read_tokenizer(source);
  const Vocabulary vocabulary = vocabulary_of(source, tokenizer);
  const CheckedRecipe recipe = check_recipe(recipe_of(source, tokenizer, output), "imported");
  const Network network = make_network(recipe.given, source.words, &vocabulary);
  TrainState state;
  state.model = read_parameters(source, network.specs, folder);
  state.numbers["step"] = "0";
  put_mark(state.numbers, mark_of(vocabulary));
  folder.write("config.yaml", std::string_view(to_yaml(recipe.full)));
  save_vocabulary(folder.draft(), vocabulary);
  if (tokenizer) save_text_codecs({nullptr, tokenizer}, folder.draft());
  carry(directory, folder.draft());
  write_status(folder.draft(), "done", 0, "imported from " + directory);
  folder.end_after_signal();
  save_checkpoint(folder.draft(), 0, state);
  ImportReport report{source.layout->name, tokenizer ? tokenizer->file_name() : "", 0, source.words};
  for (const auto& [name, value] : state.model) report.parameters += value.numel();
  folder.finish();
  return report;
}

void carry_files(const std::string& checkpoint, const SubwordTokenizer& tokenizer, const std::string& directory) {
  namespace fs = std::filesystem;
  const fs::path from = run_of(checkpoint), file = from / tokenizer.file_name();
  if (fs::exists(from / kCarriedFolder) && fs::exists(file) && read_file(file.string()) == tokenizer.file())
    huggingface::carry(from / kCarriedFolder, directory);
}

}  // namespace lmx::app

#include "app/text/subwords.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "app/text/subword_tokenizer.h"
#include "app/text/utf8.h"
#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581: represents the space before a word in a piece
constexpr int64_t kMostWords = 1'000'000;            // different words of a text that subwords are trained on
constexpr size_t kLongestWord = 1024;  // bytes; longer words are not trained on: subwords are much shorter

// Passes words to the trainer by falling count, equal counts by bytes, each as a line "word<TAB>count".
class WordLines : public sentencepiece::SentenceIterator {
 public:
  // At most `most` words, the most frequent ones.
  WordLines(const WordTable& words, int64_t most) : words_(words) {
    for (int64_t i = 0; i < words.size(); ++i)
      if (words.word(i).size() <= kLongestWord) order_.push_back(i);
    std::sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
      return words.count(a) != words.count(b) ? words.count(a) > words.count(b) : words.word(a) < words.word(b);
    });
    order_.resize(std::min(order_.size(), static_cast<size_t>(most)));
    read();
  }
  bool done() const override { return at_ >= order_.size(); }
  void Next() override {
    ++at_;
    read();
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  bool empty() const { return order_.empty(); }

 private:
  void read() {
    if (!done()) line_ = str(words_.word(order_[at_]), '\t', words_.count(order_[at_]));
  }
  const WordTable& words_;
  std::vector<int64_t> order_;
  size_t at_ = 0;
  std::string line_;
};

// The occurrences of each character, the most frequent first.
std::vector<int64_t> character_counts(const WordTable& words) {
  std::map<char32_t, int64_t> counts;
  std::u32string text;
  for (int64_t i = 0; i < words.size(); ++i) {
    if (words.word(i).size() > kLongestWord) continue;
    text.clear();
    decode_utf8(words.word(i), text);
    for (const char32_t c : text) counts[c == ' ' ? 0x2581 : c] += words.count(i);
  }
  counts.try_emplace(0x2581, 0);
  std::vector<int64_t> falling;
  for (const auto& [c, count] : counts) falling.push_back(count);
  std::sort(falling.begin(), falling.end(), std::greater<>());
  return falling;
}

constexpr double kCoverage = 0.9995;  // share of a text's characters that are subwords; the others are bytes

// Returns how many characters must be subwords. REQUIRES: the counts are falling.
int64_t characters_needed(const std::vector<int64_t>& counts, bool text) {
  if (!text) return static_cast<int64_t>(counts.size());
  const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  int64_t needed = 0;
  for (double covered = 0; needed < std::ssize(counts) && covered < kCoverage * all; ++needed)
    covered += static_cast<double>(counts[static_cast<size_t>(needed)]);
  return needed;
}

std::unordered_map<std::string, std::string> trainer_options(const SubwordTraining& training) {
  std::unordered_map<std::string, std::string> options{
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(training.vocab_size)},
      {"hard_vocab_limit", "false"},  // train_subwords() reports too few merges with their number
      {"normalization_rule_name", "identity"},
      {"input_format", "tsv"},
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"max_sentencepiece_length", "64"},
      {"num_threads", "1"},  // more would change the model's bytes and save little time
      {"minloglevel", "2"}};
  const std::string split = training.split_scripts || training.text ? "true" : "false";
  options["split_by_unicode_script"] = options["split_by_number"] = split;
  options["character_coverage"] = training.text ? std::to_string(kCoverage) : "1.0";
  if (!training.text) return options;
  options["byte_fallback"] = options["split_digits"] = options["allow_whitespace_only_pieces"] = "true";
  options["remove_extra_whitespaces"] = options["add_dummy_prefix"] = "false";
  return options;
}

}  // namespace

std::string train_subwords(const WordTable& words, const SubwordTraining& training) {
  WordLines lines(words, training.text ? kMostWords : words.size());
  if (lines.empty()) throw UserError("[data] there is no word to train subwords on");
  const int64_t special = training.text ? 2 + 256 : 2;
  const int64_t characters = characters_needed(character_counts(words), training.text);
  if (training.vocab_size < characters + special) {
    throw UserError(str(
        "[data] data.vocab_size ", training.vocab_size, " is too small: the training text has ", characters,
        training.text ? " frequent" : " distinct", " characters, each of which is a subword, and ",
        training.text ? "<unk>, </s> and the 256 bytes" : "<unk> and </s>", "; use at least ", characters + special));
  }
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(trainer_options(training), &lines, &model);
  if (!status.ok()) throw RunError(str("[data] training subwords failed: ", status.ToString()));
  sentencepiece::SentencePieceProcessor processor;
  if (!processor.LoadFromSerializedProto(model).ok()) throw RunError("[data] training subwords made no model");
  if (processor.GetPieceSize() != training.vocab_size) {
    throw UserError(str("[data] data.vocab_size ", training.vocab_size,
                        " is more than the training text has subwords: byte-pair encoding ", "finds ",
                        processor.GetPieceSize(), " with <unk> and </s>; use at most that"));
  }
  return model;
}

struct Subwords::Impl {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<std::string> pieces;
  std::string bytes;
};

Subwords::Subwords() : impl_(std::make_unique<Impl>()) {}
Subwords::~Subwords() = default;

void Subwords::check_exists(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return;
  throw UserError(str("[data] no subword model ", path,
                      "; name one that sentencepiece wrote, or leave `subword_model` out to train one"));
}

std::shared_ptr<const Subwords> Subwords::load(const std::string& path) {
  check_exists(path);
  std::shared_ptr<Subwords> subwords(new Subwords);
  Impl& impl = *subwords->impl_;
  impl.bytes = read_file(path);
  const auto& processor = impl.processor;
  if (impl.bytes.empty() || !impl.processor.LoadFromSerializedProto(impl.bytes).ok())
    throw UserError(str("[data] ", path, " is damaged, or no sentencepiece model"));
  if (processor.unk_id() != Vocabulary::kUnk || processor.eos_id() != Vocabulary::kEos || processor.bos_id() >= 0) {
    throw UserError(str("[data] subword model ", path, " has <unk> ", processor.unk_id(), ", </s> ", processor.eos_id(),
                        ", <s> ", processor.bos_id(),
                        "; lmx needs 0, 1 and none: train it with --unk_id=0 --eos_id=1 --bos_id=-1 --pad_id=-1"));
  }
  for (int id = 0; id < processor.GetPieceSize(); ++id) impl.pieces.push_back(processor.IdToPiece(id));
  return subwords;
}

int64_t Subwords::size() const {
  return static_cast<int64_t>(impl_->pieces.size());
}
const std::string& Subwords::piece(int32_t id) const {
  return impl_->pieces.at(static_cast<size_t>(id));
}
const std::string& Subwords::bytes() const {
  return impl_->bytes;
}

void Subwords::encode(std::string_view words, std::vector<int32_t>& ids) const {
  std::vector<int> found;
  const auto status = impl_->processor.Encode(words, &found);
  if (!status.ok()) throw RunError(str("[data] sentencepiece cannot encode a line: ", status.ToString()));
  ids.insert(ids.end(), found.begin(), found.end());
}

std::string Subwords::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id == Vocabulary::kEos) break;
    LMX_CHECK(id >= 0 && id < size(), id, " of ", size());
    if (id == Vocabulary::kUnk) {
      text += "<unk>";
      continue;
    }
    const std::string_view piece = impl_->pieces[static_cast<size_t>(id)];
    for (size_t at = 0; at < piece.size();) {
      const bool space = piece.substr(at).starts_with(kSpace);
      if (!space)
        text.push_back(piece[at]);
      else if (!text.empty() && text.back() != ' ')
        text.push_back(' ');
      at += space ? kSpace.size() : 1;
    }
  }
  if (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

void WordEncoder::encode(std::string_view words, std::vector<int32_t>& ids) {
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    const std::string_view word = words.substr(at, end - at);
    at = end + 1;
    words_.append(word, ids, [this](std::string_view piece, std::vector<int32_t>& to) { subwords_.encode(piece, to); });
  }
}

namespace {

using Json = nlohmann::ordered_json;

std::string squeeze(std::string_view line) {
  std::u32string text;
  decode_utf8(line, text);
  std::string out;
  out.reserve(line.size());
  for (const char32_t c : moses::squeezed(text)) append_utf8(out, c);
  return out;
}

class SubwordCodec : public TextCodec {
 public:
  SubwordCodec(LineSettings settings, std::shared_ptr<const Subwords> subwords)
      : lines_(std::move(settings)), subwords_(std::move(subwords)) {}
  std::vector<int32_t> encode(std::string_view line) const override {
    const size_t bad = find_invalid_utf8(line);
    if (bad != kValidUtf8) refuse_invalid_utf8("input", 1, 0, line, bad);
    std::vector<int32_t> ids;
    subwords_->encode(lines_.words(line), ids);
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) const override { return lines_.text(decode_tokens(ids)); }
  std::string decode_tokens(std::span<const int32_t> ids) const override { return subwords_->decode(ids); }
  const std::string& language() const override { return lines_.settings().language; }
  const LineSettings& settings() const { return lines_.settings(); }
  const Subwords& subwords() const { return *subwords_; }

 private:
  LineTokenizer lines_;
  std::shared_ptr<const Subwords> subwords_;
};

Json to_json(const LineSettings& s) {
  return {{"language", s.language},
          {"moses", s.moses},
          {"lower_case", s.lower_case},
          {"escape", s.escape},
          {"aggressive_dashes", s.aggressive_dashes}};
}

LineSettings from_json(const Json& json) {
  return {json.at("language"), json.at("moses"), json.at("lower_case"), json.at("escape"),
          json.at("aggressive_dashes")};
}

}  // namespace

LineTokenizer::LineTokenizer(LineSettings settings)
    : settings_(std::move(settings)), moses_({settings_.language, settings_.aggressive_dashes, settings_.escape}) {}

std::string LineTokenizer::words(std::string_view line) const {
  const std::string lowered = settings_.lower_case ? lower_case(line) : "";
  const std::string_view text = settings_.lower_case ? std::string_view(lowered) : line;
  return settings_.moses ? moses_.tokenize(text) : squeeze(text);
}

std::string LineTokenizer::ready_words(std::string_view line, std::string_view joiner) const {
  std::string words = squeeze(settings_.lower_case ? lower_case(line) : line);
  if (joiner.empty()) return words;
  std::string joined;
  joined.reserve(words.size());
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    std::string_view piece = std::string_view(words).substr(at, end - at);
    const bool goes_on = piece.ends_with(joiner);
    if (goes_on) piece.remove_suffix(joiner.size());
    joined += piece;
    if (!goes_on && end < words.size()) joined.push_back(' ');
    at = end + 1;
  }
  return joined;
}

std::string LineTokenizer::text(std::string_view words) const {
  return settings_.moses ? moses_detokenize(words, settings_.language) : std::string(words);
}

std::shared_ptr<const TextCodec> make_codec(LineSettings settings, std::shared_ptr<const Subwords> subwords) {
  return std::make_shared<SubwordCodec>(std::move(settings), std::move(subwords));
}

namespace {

void require_file(const std::string& directory, const std::string& name, const char* kind) {
  const std::string path = str(directory, "/", name);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw UserError(
        str("[data] ", path, " is missing: ", directory, " is not of a ", kind, ", or was not copied whole"));
}

// Calls read(json) with the content of codecs.json. UserError: the file is damaged. REQUIRES: read() opens no other
// file.
template <class Read>
auto read_codecs(const std::string& directory, Read&& read) {
  const std::string path = directory + "/" + kCodecFile;
  try {
    const Json json = Json::parse(read_file(path));
    if (json.at("format") != 1) throw UserError(str("format ", json.at("format").dump(), ", this lmx reads 1"));
    return read(json);
  } catch (const std::exception& e) {
    throw UserError(str("[data] ", path, " is damaged: ", e.what()));
  }
}

// UserError: the file `name` of the folder has another content than its codecs.json states.
void require_hash(const std::string& content, const std::string& hash, const std::string& directory,
                  const std::string& name) {
  if (hash_text(content) != hash)
    throw UserError(str("[data] ", directory, "/", name, " is damaged, or is not the file that ", directory, "/",
                        kCodecFile, " was written for; copy the whole folder again"));
}

void save_tokenizer(const SubwordTokenizer& tokenizer, const std::string& directory) {
  make_folder(directory, "[data] ");
  write_file(str(directory, "/", tokenizer.file_name()), tokenizer.file());
  const Json json = {{"format", 1},
                     {"tokenizer", tokenizer.file_name()},
                     {"xxh3", hash_text(tokenizer.file())},
                     {"own", tokenizer.own()}};
  write_file(directory + "/" + kCodecFile, json.dump(1) + "\n");
}

}  // namespace

void save_text_codecs(const TextCodecs& codecs, const std::string& directory) {
  if (const auto* text = dynamic_cast<const SubwordTokenizer*>(codecs.target.get()))
    return save_tokenizer(*text, directory);
  const auto* source = dynamic_cast<const SubwordCodec*>(codecs.source.get());
  const auto* target = dynamic_cast<const SubwordCodec*>(codecs.target.get());
  LMX_CHECK(source && target && source->subwords().bytes() == target->subwords().bytes(), "codecs of two models");
  make_folder(directory, "[data] ");
  const std::string& model = source->subwords().bytes();
  write_file(directory + "/" + kSubwordFile, model);
  const Json json = {{"format", 1},
                     {"subwords_xxh3", hash_text(model)},
                     {"source", to_json(source->settings())},
                     {"target", to_json(target->settings())}};
  write_file(directory + "/" + kCodecFile, json.dump(1) + "\n");
}

TextCodecs load_text_codecs(const std::string& directory) {
  const std::string model = directory + "/" + kSubwordFile;
  for (const char* file : {kCodecFile, kSubwordFile}) require_file(directory, file, "translation run");
  struct Stated {
    std::string hash;
    LineSettings source, target;
  };
  const auto stated = read_codecs(directory, [](const Json& json) {
    return Stated{json.at("subwords_xxh3"), from_json(json.at("source")), from_json(json.at("target"))};
  });
  const std::shared_ptr<const Subwords> subwords = Subwords::load(model);
  require_hash(subwords->bytes(), stated.hash, directory, kSubwordFile);
  return {make_codec(stated.source, subwords), make_codec(stated.target, subwords)};
}

std::shared_ptr<const SubwordTokenizer> load_text_tokenizer(const std::string& directory,
                                                            const std::string& special_text) {
  const char* kind = "run of subwords";
  require_file(directory, kCodecFile, kind);
  struct Stated {
    std::string name, hash;
    bool own;
  };
  const auto stated = read_codecs(directory, [](const Json& json) {
    return Stated{json.at("tokenizer"), json.at("xxh3"), json.at("own")};
  });
  require_file(directory, stated.name, kind);
  const std::string path = str(directory, "/", stated.name);
  TokenizerFile file{read_file(path), path, stated.own, special_text};
  require_hash(file.content, stated.hash, directory, stated.name);
  return make_tokenizer(std::move(file));
}

}  // namespace lmx::app

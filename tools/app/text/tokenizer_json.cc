// Byte-level BPE from a tokenizer.json of Hugging Face.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "app/text/byte_pairs.h"
#include "app/text/json_object.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/utf8.h"
#include "data/word_table.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

using JsonValue = nlohmann::json;

constexpr size_t kFreeIds = 1024;  // ids without a token; a hostile file must not fill the memory with them
constexpr const char* kUnread[] = {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"};
// GPT-2's pattern, for a ByteLevel that has no pattern of its own.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Everything that a file says.
struct Definition {
  std::vector<std::string> names;  // by id; "" for an id without a token
  std::vector<std::string> texts;  // bytes by id; "" for special tokens
  WordTable pieces;                // texts of the model's vocabulary
  std::vector<int32_t> piece_ids;  // by index in `pieces`
  std::array<int32_t, 256> byte_ids{};
  BytePairs merges;
  bool whole_pieces = false;  // ignore_merges: a piece that is a token needs no merges
  bool compose = false;       // NFC
  std::vector<PreTokenizerStep> steps;
  std::vector<AddedToken> added;
  int32_t eos = -1;
};

// Reads a file part by part. Refusals name the part.
class FileReader {
 public:
  FileReader(const JsonValue& json, std::string place) : json_(json), place_(std::move(place)) {}

  Definition read() {
    const JsonValue& model = part(json_, "model");
    read_vocabulary(model);
    read_merges(model);
    read_added();
    read_normalizer(value(json_, "normalizer"));
    read_pre_tokenizer(value(json_, "pre_tokenizer"), true);
    if (!byte_level_) refuse("pre_tokenizer: lmx reads byte-level tokenizers only, and there is no ByteLevel");
    read_post_processor(value(json_, "post_processor"));
    read_decoder(value(json_, "decoder"));
    if (d_.eos < 0) d_.eos = usual_eos();
    if (d_.compose) compose_added();
    return std::move(d_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw UserError(place_ + what); }
  static const JsonValue& value(const JsonValue& object, const char* key) {
    static const JsonValue none;
    const auto found = object.find(key);
    return found == object.end() ? none : *found;
  }
  const JsonValue& part(const JsonValue& object, const char* key) const {
    const JsonValue& found = value(object, key);
    if (found.is_null()) refuse(str("has no '", key, "'"));
    return found;
  }
  std::string type_of(const JsonValue& object, const std::string& name) const {
    if (!object.is_object()) refuse(name + " is no object");
    const JsonValue& type = value(object, "type");
    if (!type.is_string()) refuse(name + " has no type");
    return type.get<std::string>();
  }
  bool flag(const JsonValue& object, const char* key, bool usual, const std::string& name) const {
    const JsonValue& found = value(object, key);
    if (found.is_null()) return usual;
    if (!found.is_boolean()) refuse(str(name, ".", key, " is neither true nor false"));
    return found.get<bool>();
  }
  [[noreturn]] void unknown(const std::string& name, const std::string& type, const char* known) const {
    refuse(str("lmx does not read ", name, " ", type, "; it reads ", known));
  }
  int32_t id_of(const JsonValue& number, const std::string& token) const {
    const bool whole = number.is_number_integer() && number >= 0 && number <= greatest_id_;
    if (!whole) refuse(str("the id of '", token, "' is no number from 0 to ", greatest_id_, ": ", number.dump()));
    return number.get<int32_t>();
  }
  // Registers an id, which no other token may have.
  void name(int32_t id, const std::string& token) {
    const auto at = static_cast<size_t>(id);
    if (at >= d_.names.size()) {
      d_.names.resize(at + 1);
      d_.texts.resize(at + 1);
    }
    if (!d_.names[at].empty()) refuse(str("'", d_.names[at], "' and '", token, "' have the same id, ", id));
    d_.names[at] = token;
  }

  void read_vocabulary(const JsonValue& model) {
    if (!model.is_object()) refuse("model is no object");
    const JsonValue& type = value(model, "type");
    if (!type.is_null() && type != "BPE") unknown("a model of type", type.dump(), "BPE");
    for (const char* key : kUnread) {
      const JsonValue& found = value(model, key);
      if (!found.is_null() && found != "" && found != 0.0)
        refuse(str("lmx does not read model.", key, ": ", found.dump()));
    }
    if (flag(model, "byte_fallback", false, "model"))
      refuse("lmx does not read model.byte_fallback; give the .model of SentencePiece instead");
    d_.whole_pieces = flag(model, "ignore_merges", false, "model");
    const JsonValue& vocab = part(model, "vocab");
    if (!vocab.is_object()) refuse("model.vocab is no object");
    if (vocab.empty()) refuse("model.vocab is empty");
    const JsonValue& added = value(json_, "added_tokens");
    greatest_id_ = static_cast<int64_t>(vocab.size() + (added.is_array() ? added.size() : 0) + kFreeIds);
    std::string bytes;
    for (const auto& [token, number] : vocab.items()) {
      const int32_t id = id_of(number, token);
      if (token.empty()) refuse("model.vocab has an empty token");
      name(id, token);
      // A token with other characters is not of bytes, such as an added one: no text is encoded as it.
      if (!bytes_of_characters(token, bytes)) continue;
      d_.texts[static_cast<size_t>(id)] = bytes;
      d_.pieces.add(bytes, 0);
      d_.piece_ids.push_back(id);
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      d_.byte_ids[byte] = piece_id({&c, 1});
      if (d_.byte_ids[byte] < 0)
        refuse(str("model.vocab has no token for byte ", byte, ", '", byte_characters()[byte], "'"));
    }
  }

  int32_t piece_id(std::string_view bytes) const {
    const int64_t index = d_.pieces.find(bytes);
    return index < 0 ? -1 : d_.piece_ids[static_cast<size_t>(index)];
  }

  void read_merges(const JsonValue& model) {
    const JsonValue& merges = part(model, "merges");
    if (!merges.is_array()) refuse("model.merges is no array");
    size_t number = 0;
    for (const JsonValue& merge : merges) {
      const std::string where = str("model.merges[", number++, "]");
      std::string left, right;
      if (merge.is_string()) {
        const std::string text = merge.get<std::string>();
        const size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
          refuse(str(where, " is no pair: '", text, "'"));
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else {
        refuse(where + " is no pair");
      }
      add_merge(where, left, right);
    }
  }

  void add_merge(const std::string& where, const std::string& left, const std::string& right) {
    std::array<int32_t, 3> ids{};
    const std::array<std::string, 3> tokens{left, right, left + right};
    std::string bytes;
    for (size_t i = 0; i < tokens.size(); ++i) {
      ids[i] = bytes_of_characters(tokens[i], bytes) && !bytes.empty() ? piece_id(bytes) : -1;
      if (ids[i] < 0) refuse(str(where, " names '", tokens[i], "', which is not in model.vocab"));
    }
    if (!d_.merges.add(ids[0], ids[1], ids[2])) refuse(str(where, " '", left, " ", right, "' occurs twice"));
  }

  void read_added() {
    const JsonValue& added = value(json_, "added_tokens");
    if (added.is_null()) return;
    if (!added.is_array()) refuse("added_tokens is no array");
    for (const JsonValue& entry : added) {
      const JsonValue& content = value(entry, "content");
      if (!content.is_string() || content == "") refuse("added_tokens: a token has no content");
      AddedToken token;
      token.content = content.get<std::string>();
      token.id = id_of(part(entry, "id"), token.content);
      const std::string where = str("added_tokens '", token.content, "'");
      token.special = flag(entry, "special", false, where);
      token.normalized = flag(entry, "normalized", !token.special, where);
      token.lstrip = flag(entry, "lstrip", false, where);
      token.rstrip = flag(entry, "rstrip", false, where);
      if (flag(entry, "single_word", false, where)) refuse(str("lmx does not read ", where, ".single_word"));
      add_token(token);
    }
  }

  void add_token(const AddedToken& token) {
    for (const AddedToken& other : d_.added)
      if (other.content == token.content) refuse(str("added_tokens has '", token.content, "' twice"));
    const auto at = static_cast<size_t>(token.id);
    const bool known = at < d_.names.size() && d_.names[at] == token.content;
    if (!known) {
      const auto& vocab = value(value(json_, "model"), "vocab");
      if (vocab.contains(token.content))
        refuse(str("'", token.content, "' has two ids, in model.vocab and in added_tokens"));
      name(token.id, token.content);
    }
    d_.texts[at] = token.special ? "" : token.content;
    d_.added.push_back(token);
  }

  // A `normalized` token is searched for in composed text.
  void compose_added() {
    std::set<std::string> contents;
    std::string memory;
    for (AddedToken& token : d_.added) {
      if (!token.normalized) continue;
      token.content = std::string(compose_characters(token.content, memory));
      if (!contents.insert(token.content).second)
        refuse(str("added_tokens has '", token.content, "' twice, as the normalizer NFC writes it"));
    }
  }

  void read_normalizer(const JsonValue& normalizer) {
    if (normalizer.is_null()) return;
    const std::string type = type_of(normalizer, "normalizer");
    if (type == "NFC") {
      d_.compose = true;
    } else if (type == "Sequence") {
      for (const JsonValue& step : part(normalizer, "normalizers")) read_normalizer(step);
    } else {
      unknown("the normalizer", type, "NFC and Sequence");
    }
  }

  void read_pre_tokenizer(const JsonValue& step, bool last) {
    if (step.is_null()) return;
    const std::string type = type_of(step, "pre_tokenizer");
    if (byte_level_) refuse(str("pre_tokenizer: lmx reads ByteLevel only as the last step, and ", type, " follows"));
    if (type == "Sequence") {
      const JsonValue& steps = part(step, "pretokenizers");
      if (!steps.is_array()) refuse("pre_tokenizer.pretokenizers is no array");
      for (const JsonValue& own : steps) read_pre_tokenizer(own, last);
    } else if (type == "ByteLevel") {
      byte_level_ = true;
      const bool pattern = flag(step, "use_regex", true, "pre_tokenizer ByteLevel");
      d_.steps.push_back({pattern ? std::optional(Pattern(kGpt2, false, place_)) : std::nullopt,
                          PreTokenizerStep::Behaviour::isolated,
                          flag(step, "add_prefix_space", true, "pre_tokenizer ByteLevel")});
    } else if (type == "Digits") {
      const bool each = flag(step, "individual_digits", false, "pre_tokenizer Digits");
      d_.steps.push_back({Pattern(each ? "\\p{N}" : "\\p{N}+", false, place_)});
    } else if (type == "Split") {
      read_split(step);
    } else {
      unknown("the pre_tokenizer", type, "ByteLevel, Split, Digits and Sequence");
    }
  }

  void read_split(const JsonValue& step) {
    const std::string where = "pre_tokenizer Split";
    if (flag(step, "invert", false, where)) refuse(str("lmx does not read ", where, ".invert"));
    const JsonValue& pattern = part(step, "pattern");
    const JsonValue &regex = value(pattern, "Regex"), &text = value(pattern, "String");
    if (!regex.is_string() && !text.is_string()) refuse(where + " has no pattern");
    const JsonValue& behaviour = part(step, "behavior");
    using Behaviour = PreTokenizerStep::Behaviour;
    const std::pair<const char*, Behaviour> known[] = {{"Isolated", Behaviour::isolated},
                                                       {"Removed", Behaviour::removed},
                                                       {"MergedWithPrevious", Behaviour::with_previous},
                                                       {"MergedWithNext", Behaviour::with_next}};
    for (const auto& [word, value] : known) {
      if (behaviour != word) continue;
      const bool literal = !regex.is_string();
      d_.steps.push_back(
          {Pattern((literal ? text : regex).get<std::string>(), literal, str(place_, where, ": ")), value});
      return;
    }
    unknown("the behavior of pre_tokenizer Split", behaviour.dump(),
            "Isolated, Removed, MergedWithPrevious and MergedWithNext");
  }

  // The post-processor only says which token comes before a text.
  void read_post_processor(const JsonValue& step) {
    if (step.is_null()) return;
    const std::string type = type_of(step, "post_processor");
    if (type == "ByteLevel") return;
    if (type == "Sequence") {
      for (const JsonValue& own : part(step, "processors")) read_post_processor(own);
    } else if (type == "TemplateProcessing") {
      for (const JsonValue& item : part(step, "single")) {
        const JsonValue& special = value(item, "SpecialToken");
        if (!special.is_object() || d_.eos >= 0) continue;
        for (const AddedToken& token : d_.added)
          if (value(special, "id") == token.content) d_.eos = token.id;
      }
    } else {
      unknown("the post_processor", type, "ByteLevel, TemplateProcessing and Sequence");
    }
  }

  void read_decoder(const JsonValue& decoder) const {
    if (decoder.is_null()) return;
    const std::string type = type_of(decoder, "decoder");
    if (type == "Sequence")
      for (const JsonValue& own : part(decoder, "decoders")) read_decoder(own);
    else if (type != "ByteLevel")
      unknown("the decoder", type, "ByteLevel");
  }

  int32_t usual_eos() const {
    for (const char* usual : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"})
      for (const AddedToken& token : d_.added)
        if (token.content == usual) return token.id;
    return -1;
  }

  const JsonValue& json_;
  std::string place_;
  Definition d_;
  bool byte_level_ = false;
  int64_t greatest_id_ = 0;
};

class JsonTokenizer : public SubwordTokenizer {
 public:
  JsonTokenizer(TokenizerFile file, Definition definition) : file_(std::move(file)), d_(std::move(definition)) {
    for (size_t id = 0; id < d_.names.size(); ++id)
      if (d_.names[id].empty()) d_.names[id] = unused_name(static_cast<int64_t>(id));
    for (const AddedToken& token : d_.added) (token.normalized ? normalized_ : raw_).add(token);
  }
  std::unique_ptr<Encoder> encoder() const override;
  int64_t size() const override { return std::ssize(d_.names); }
  std::string name(int32_t id) const override { return d_.names.at(static_cast<size_t>(id)); }
  std::string text(int32_t id) const override { return d_.texts.at(static_cast<size_t>(id)); }
  int32_t unk() const override { return -1; }
  int32_t eos() const override { return d_.eos; }
  std::string description() const override {
    return str("byte-pair encoding of a tokenizer.json, patterns of Unicode ", pattern_unicode_version());
  }
  const std::string& file() const override { return file_.content; }
  const char* file_name() const override { return "tokenizer.json"; }

  const Definition& definition() const { return d_; }
  // Calls text(part) and token(t) as AddedTokens::cut(), for tokens that are searched for before or after composition.
  template <class OfText, class OfToken>
  void cut(std::string_view text, bool normalized, OfText&& of_text, OfToken&& of_token) const {
    (normalized ? normalized_ : raw_).cut(text, of_text, of_token, [&](const AddedToken& token) {
      if (token.special && file_.special == "refuse")
        throw UserError(str("[data] a text spells the special token '", token.content,
                            "'; data.special_text: text reads it as any other text"));
      return !token.special || file_.special == "token";
    });
  }
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
    if (const int64_t whole = d_.whole_pieces ? d_.pieces.find(piece) : -1; whole >= 0) {
      ids.push_back(d_.piece_ids[static_cast<size_t>(whole)]);
      return;
    }
    std::vector<int32_t> own;
    for (const char c : piece) own.push_back(d_.byte_ids[static_cast<unsigned char>(c)]);
    d_.merges.merge(own);
    ids.insert(ids.end(), own.begin(), own.end());
  }

 private:
  TokenizerFile file_;
  Definition d_;
  AddedTokens raw_, normalized_;
};

class JsonEncoder : public SubwordTokenizer::Encoder {
 public:
  explicit JsonEncoder(const JsonTokenizer& tokenizer)
      : tokenizer_(tokenizer), pre_tokenizer_(tokenizer.definition().steps) {}

  void append(std::string_view text, std::vector<int32_t>& ids) override {
    const auto token = [&](const AddedToken& t) { ids.push_back(t.id); };
    const auto plain = [&](std::string_view part) {
      pre_tokenizer_.cut(part, [&](std::string_view piece) {
        cache_.append(piece, ids,
                      [this](std::string_view p, std::vector<int32_t>& to) { tokenizer_.encode_piece(p, to); });
      });
    };
    const auto raw = [&](std::string_view part) {
      tokenizer_.cut(tokenizer_.definition().compose ? compose_characters(part, composed_) : part, true, plain, token);
    };
    tokenizer_.cut(text, false, raw, token);
  }

 private:
  const JsonTokenizer& tokenizer_;
  PreTokenizer pre_tokenizer_;
  PieceCache cache_;
  std::string composed_;
};

std::unique_ptr<SubwordTokenizer::Encoder> JsonTokenizer::encoder() const {
  return std::make_unique<JsonEncoder>(*this);
}

}  // namespace

std::shared_ptr<const SubwordTokenizer> make_json_tokenizer(TokenizerFile file) {
  const std::string place = "[data] " + file.path;
  const auto json = parse_object<JsonValue>(file.content, place);
  Definition definition = FileReader(json, place + ": ").read();
  return std::make_shared<JsonTokenizer>(std::move(file), std::move(definition));
}

}  // namespace lmx::app

#include "app/text/text_codec.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/text/utf8.h"
#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx {
namespace data {
namespace {

using Json = nlohmann::ordered_json;

// Reduces white space to single spaces, and removes control characters.
std::string squeeze(std::string_view line) {
  std::u32string text;
  decode_utf8(line, text);
  std::string out;
  out.reserve(line.size());
  bool space = false;
  for (const char32_t c : text) {
    if (is_white_space(c)) {
      space = true;
    } else if (c > 0x1F) {
      if (space && !out.empty()) out.push_back(' ');
      space = false;
      append_utf8(out, c);
    }
  }
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
  const std::string lowered = settings_.lower_case ? data::lower_case(line) : "";
  const std::string_view text = settings_.lower_case ? std::string_view(lowered) : line;
  return settings_.moses ? moses_.tokenize(text) : squeeze(text);
}

std::string LineTokenizer::ready_words(std::string_view line, std::string_view joiner) const {
  std::string words = squeeze(settings_.lower_case ? data::lower_case(line) : line);
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

}  // namespace data

void save_text_codecs(const TextCodecs& codecs, const std::string& directory) {
  const auto* source = dynamic_cast<const data::SubwordCodec*>(codecs.source.get());
  const auto* target = dynamic_cast<const data::SubwordCodec*>(codecs.target.get());
  LMX_CHECK(source && target && source->subwords().bytes() == target->subwords().bytes(), "codecs of two models");
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw RunError(str("[data] cannot create ", directory, ": ", error.message()));
  const std::string& model = source->subwords().bytes();
  write_file(directory + "/" + data::kSubwordFile, model);
  const data::Json json = {{"format", 1},
                           {"subwords_xxh3", hash_text(model)},
                           {"source", data::to_json(source->settings())},
                           {"target", data::to_json(target->settings())}};
  write_file(directory + "/" + data::kCodecFile, json.dump(1) + "\n");
}

TextCodecs load_text_codecs(const std::string& directory) {
  const std::string path = directory + "/" + data::kCodecFile, model = directory + "/" + data::kSubwordFile;
  std::error_code error;
  for (const std::string& file : {path, model}) {
    if (std::filesystem::is_regular_file(file, error)) continue;
    throw UserError(
        str("[data] ", file, " is missing: ", directory, " is not of a translation run, or was not copied whole"));
  }
  const std::shared_ptr<const data::Subwords> subwords = data::Subwords::load(model);
  try {
    const data::Json json = data::Json::parse(read_file(path));
    if (json.at("format") != 1) throw UserError(str("format ", json.at("format").dump(), ", this lmx reads 1"));
    if (json.at("subwords_xxh3") != hash_text(subwords->bytes()))
      throw UserError(str(model, " is not the one that it was written for"));
    return {data::make_codec(data::from_json(json.at("source")), subwords),
            data::make_codec(data::from_json(json.at("target")), subwords)};
  } catch (const std::exception& e) {
    throw UserError(str("[data] ", path, " is damaged: ", e.what()));
  }
}

}  // namespace lmx

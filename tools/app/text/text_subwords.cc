// Subwords of any text by SentencePiece.
#include <sentencepiece_processor.h>

#include <array>

#include "app/text/byte_pairs.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/subwords.h"
#include "app/text/utf8.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

constexpr std::string_view kMarkedSpace = "\xE2\x96\x81";  // U+2581: SentencePiece writes a space like that
constexpr std::string_view kReserved = "\xE2\x96\x85";     // U+2585: SentencePiece trains on no word that contains it
constexpr size_t kLongestPart = 256;                       // bytes of a piece that is trained on as a whole

// Returns how many bytes at the start of `text` are encoded as bytes: a control character, or a character with which
// SentencePiece marks something.
size_t bytes_apart(std::string_view text) {
  const auto c = static_cast<unsigned char>(text[0]);
  if (c < 0x20 || c == 0x7F) return 1;
  return text.starts_with(kMarkedSpace) || text.starts_with(kReserved) ? kMarkedSpace.size() : 0;
}

// Cuts a text where no subword that lmx trains on text extends over the cut: before a space that follows another
// character, and around bytes_apart(). Calls piece(text) for the parts and byte(value) for the bytes.
template <class Piece, class Byte>
void for_each_piece(std::string_view text, Piece&& piece, Byte&& byte) {
  size_t begin = 0, at = 0;
  const auto flush = [&] {
    if (at > begin) piece(text.substr(begin, at - begin));
    begin = at;
  };
  while (at < text.size()) {
    const size_t apart = bytes_apart(text.substr(at));
    if (apart > 0 || (text[at] == ' ' && at > begin && text[at - 1] != ' ')) flush();
    for (size_t i = 0; i < apart; ++i) byte(static_cast<unsigned char>(text[at + i]));
    at += apart;
    if (apart > 0)
      begin = at;
    else
      ++at;
  }
  flush();
}

class SentencePieceTokenizer : public SubwordTokenizer {
 public:
  explicit SentencePieceTokenizer(TokenizerFile file) : file_(std::move(file)) {
    if (file_.content.empty() || !processor_.LoadFromSerializedProto(file_.content).ok())
      throw UserError(str("[data] ", file_.path, " is damaged, or no SentencePiece model"));
    for (int id = 0; id < processor_.GetPieceSize(); ++id) texts_.push_back(text_of(id));
    std::vector<int> ids;
    if (processor_.Encode("a", &ids).ok() && !ids.empty())
      prefix_ = texts_[static_cast<size_t>(ids[0])].starts_with(" ");
    for (size_t b = 0; b < byte_ids_.size(); ++b)
      byte_ids_[b] = processor_.PieceToId(format("<0x%02X>", static_cast<unsigned>(b)));
  }

  int64_t size() const override { return static_cast<int64_t>(texts_.size()); }
  std::string name(int32_t id) const override { return processor_.IdToPiece(id); }
  std::string text(int32_t id) const override { return texts_.at(static_cast<size_t>(id)); }
  int32_t unk() const override { return processor_.unk_id(); }
  int32_t eos() const override { return processor_.eos_id() >= 0 ? processor_.eos_id() : processor_.bos_id(); }
  const std::string& file() const override { return file_.content; }
  const char* file_name() const override { return kSubwordFile; }
  bool own() const override { return file_.own; }
  std::string description() const override { return "subwords of SentencePiece"; }

  std::unique_ptr<Encoder> encoder() const override;
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
    std::vector<int> found;
    const auto status = processor_.Encode(piece, &found);
    if (!status.ok()) throw RunError(str("[data] SentencePiece cannot encode a text: ", status.ToString()));
    ids.insert(ids.end(), found.begin(), found.end());
  }
  int32_t byte_id(unsigned char byte) const { return byte_ids_[byte]; }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text = SubwordTokenizer::decode(ids);
    if (prefix_ && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

 private:
  std::string text_of(int id) const {
    if (processor_.IsControl(id) || processor_.IsUnknown(id)) return "";
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};
    std::string text;
    for (size_t at = 0; at < piece.size();) {
      const bool space = std::string_view(piece).substr(at).starts_with(kMarkedSpace);
      text.push_back(space ? ' ' : piece[at]);
      at += space ? kMarkedSpace.size() : 1;
    }
    return text;
  }

  TokenizerFile file_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> texts_;
  std::array<int32_t, 256> byte_ids_{};
  bool prefix_ = false;  // the model puts a space before a text
};

class SentencePieceEncoder : public SubwordTokenizer::Encoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void append(std::string_view text, std::vector<int32_t>& ids) override {
    // A model of other people may have pieces that extend over several words.
    if (!tokenizer_.own()) return tokenizer_.encode_piece(text, ids);
    const auto encode = [this](std::string_view piece, std::vector<int32_t>& to) {
      tokenizer_.encode_piece(piece, to);
    };
    for_each_piece(
        text, [&](std::string_view piece) { cache_.append(piece, ids, encode); },
        [&](unsigned char byte) { ids.push_back(tokenizer_.byte_id(byte)); });
  }

 private:
  const SentencePieceTokenizer& tokenizer_;
  PieceCache cache_;
};

std::unique_ptr<SubwordTokenizer::Encoder> SentencePieceTokenizer::encoder() const {
  return std::make_unique<SentencePieceEncoder>(*this);
}

}  // namespace

void count_pieces(std::string_view text, WordTable& pieces) {
  const auto count = [&](std::string_view piece) {
    while (!piece.empty()) {
      const size_t part = whole_characters(piece, kLongestPart);
      pieces.add(piece.substr(0, part), 1);
      piece.remove_prefix(part);
    }
  };
  for_each_piece(text, count, [](unsigned char) {});
}

namespace {

std::shared_ptr<const SubwordTokenizer> tokenizer_of(TokenizerFile file) {
  const size_t first = file.content.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && file.content[first] == '{';
  if (json || file.path.ends_with(".json")) return make_json_tokenizer(std::move(file));
  if (file.special != "text")
    throw UserError(str("[data] data.special_text ", file.special, " is of a tokenizer.json; ", file.path,
                        " is a model of SentencePiece, which reads no text as a special token"));
  return std::make_shared<SentencePieceTokenizer>(std::move(file));
}

}  // namespace

std::shared_ptr<const SubwordTokenizer> make_tokenizer(TokenizerFile file) {
  const std::string path = file.path;
  auto tokenizer = tokenizer_of(std::move(file));
  // A vocabulary, which may have more entries than the tokenizer, has no name twice.
  for (int32_t id = 0; id < tokenizer->size(); ++id)
    if (const std::string name = tokenizer->name(id); name.starts_with("<no token ") && name != unused_name(id))
      throw UserError(str("[data] ", path, ": the token with the id ", id, " is named '", name,
                          "', as lmx names ids without a token; give it another name"));
  return tokenizer;
}

}  // namespace lmx::app

#include <algorithm>
#include <atomic>
#include <mutex>

#include "app/pairs/parallel.h"
#include "app/prepare/chunks.h"
#include "app/translation/translate.h"
#include "backend/serial.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/parallel.h"

namespace lmx::app {
namespace {

// A batch has at most `batch` times this number of source tokens, so longer sentences are translated in smaller
// batches.
constexpr int64_t kTokensPerSentence = 128;

const std::vector<std::string> kUnknown{"drop", "keep", "copy"};

void check(const TranslateOptions& o) {
  check_search(o.search);
  if (std::find(kUnknown.begin(), kUnknown.end(), o.replace_unknown) == kUnknown.end())
    throw UserError(str("[translate] an unknown word can be drop, keep or copy, not '", o.replace_unknown, "'",
                        did_you_mean(o.replace_unknown, kUnknown)));
  check_batch("translate", o.batch);
  if (o.max_source < 1)
    throw UserError(str("[translate] the longest piece must hold at least 1 token, got ", o.max_source));
  if (o.n_best < 1 || o.n_best > o.search.beam)
    throw UserError(str("[translate] n-best must be 1 to the beam, ", o.search.beam, ", got ", o.n_best));
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  constexpr const char* kSpace = " \t\v\f\r";
  for (size_t at = line.find_first_not_of(kSpace); at != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSpace, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kSpace, end);
  }
  return words;
}

// Appends the ids of `line` in parts of at most `most` ids. Splits between words, and within a word only if the word
// alone is longer.
void cut_ids(const TextCodec& codec, std::string_view line, int64_t most, std::vector<std::vector<int32_t>>& runs) {
  std::vector<int32_t> ids = codec.encode(line);
  if (ids.empty()) return;
  const auto limit = static_cast<size_t>(most);
  if (ids.size() <= limit) {
    runs.push_back(std::move(ids));
    return;
  }
  const std::vector<std::string_view> words = words_of(line);
  if (words.size() < 2) {
    for (size_t at = 0; at < ids.size(); at += limit)
      runs.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(at),
                        ids.begin() + static_cast<std::ptrdiff_t>(std::min(at + limit, ids.size())));
    return;
  }
  // Parts have equal numbers of words, and some room for parts with longer words.
  const size_t parts = std::min(words.size(), std::max<size_t>(2, (ids.size() + ids.size() / 8) / limit + 1));
  for (size_t p = 0; p < parts; ++p) {
    const std::string_view first = words[words.size() * p / parts], last = words[words.size() * (p + 1) / parts - 1];
    cut_ids(codec, {first.data(), static_cast<size_t>(last.data() + last.size() - first.data())}, most, runs);
  }
}

void check_ids(const std::vector<int32_t>& ids, int64_t vocabulary) {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocabulary)
      throw UserError(str("[translate] the run's subwords know an id ", id, ", its vocabulary has ", vocabulary,
                          " entries: they are not of one run"));
}

void add(std::string& text, const std::string& part) {
  if (!part.empty()) text += (text.empty() ? "" : " ") + part;
}

// Appends the translation of a line's next piece.
void append(Translation& line, const Translation& piece) {
  add(line.text, piece.text);
  add(line.tokens, piece.tokens);
  line.logprob += piece.logprob;
  line.score += piece.score;
  line.length += piece.length;
}

}  // namespace

void check_batch(const char* command, int64_t sentences) {
  constexpr int64_t kMost = 1'000'000;
  if (sentences < 1 || sentences > kMost)
    throw UserError(str("[", command, "] a batch holds 1 to ", kMost, " sentences, got ", sentences));
}

std::vector<int32_t> encode_line(const TextCodec& codec, std::string_view line, int64_t vocabulary) {
  std::vector<int32_t> ids = codec.encode(line);
  check_ids(ids, vocabulary);
  ids.push_back(Vocabulary::kEos);
  return ids;
}

// The unit of translation: a line, or a part of a long line.
struct TextTranslator::Piece {
  size_t line = 0;
  std::vector<int32_t> ids;  // with </s>
  std::vector<Hypothesis> found;
};

TextTranslator::TextTranslator(const TranslationModel& model, const TranslateOptions& options)
    : model_(model), options_(options) {
  check(options_);
  if (!model_.network.model->translates())
    throw UserError(
        "[translate] this run's model does not translate: it is a language model (`lmx generate` draws text from it)");
  LMX_CHECK(model_.codecs.source && model_.codecs.target, "a translation run keeps its codecs");
  options_.search.write_unknown = options_.replace_unknown != "drop";
}

std::vector<TextTranslator::Piece> TextTranslator::pieces_of(std::span<const std::string> lines) const {
  std::vector<std::vector<std::vector<int32_t>>> runs(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) cut_ids(*model_.codecs.source, lines[i], options_.max_source, runs[i]);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (runs[i].size() > 1)
      log_warn(str("[translate] a line of ", lines[i].size(), " bytes has more than ", options_.max_source,
                   " tokens; it is translated in ", runs[i].size(), " pieces"));
    for (std::vector<int32_t>& ids : runs[i]) {
      check_ids(ids, model_.vocabulary);
      ids.push_back(Vocabulary::kEos);
      pieces.push_back({i, std::move(ids), {}});
    }
  }
  return pieces;
}

void TextTranslator::search(std::span<Piece*> batch) const {
  std::vector<int32_t> ids;
  std::vector<int64_t> lengths, words;
  for (const Piece* p : batch) {
    ids.insert(ids.end(), p->ids.begin(), p->ids.end());
    lengths.push_back(static_cast<int64_t>(p->ids.size()));
    words.push_back(lengths.back() - 1);
  }
  Context ctx = model_.ctx;
  ctx.tape = nullptr;
  ctx.training = false;
  const Tensor source = Tensor::from<int32_t>(ctx.host, {static_cast<int64_t>(ids.size())}, ids);
  const Network& network = model_.network;
  const auto decode = [&] { return network.model->decode(ctx, model_.params, source, lengths); };
  // A network that was not made from a recipe has no plugin.
  const auto decoding = network.plugin ? in_plugin(*network.plugin, "decode()", decode) : decode();
  const auto logits = [&](const Tensor& features) { return model_.network.loss->logits(ctx, model_.params, features); };
  std::vector<std::vector<Hypothesis>> found = beam_search(ctx, *decoding, logits, words, options_.search);
  for (size_t i = 0; i < batch.size(); ++i) batch[i]->found = std::move(found[i]);
}

// Decodes the text between unknown words separately, and puts the replacements of the unknown words in between.
Translation TextTranslator::written(const Hypothesis& hypothesis, const std::string& line) const {
  const TextCodec& codec = *model_.codecs.target;
  Translation t{"", "", hypothesis.logprob, hypothesis.score, static_cast<int64_t>(hypothesis.ids.size()) + 1};
  std::vector<std::string> unknown;
  if (options_.replace_unknown == "copy") {
    for (const std::string_view word : words_of(line)) {
      const std::vector<int32_t> ids = model_.codecs.source->encode(word);
      if (std::find(ids.begin(), ids.end(), Vocabulary::kUnk) != ids.end()) unknown.emplace_back(word);
    }
  }
  size_t next = 0;
  for (auto at = hypothesis.ids.begin(); at != hypothesis.ids.end();) {
    const auto stop = std::find(at, hypothesis.ids.end(), Vocabulary::kUnk);
    const std::span<const int32_t> known(at, stop);
    if (!known.empty()) add(t.text, codec.decode(known));
    if (!known.empty()) add(t.tokens, codec.decode_tokens(known));
    at = stop;
    if (stop == hypothesis.ids.end()) break;
    const std::string stand_in = options_.replace_unknown == "keep" ? "<unk>"
                                 : next < unknown.size()            ? unknown[next]
                                                                    : "";
    ++next;
    add(t.text, stand_in);
    add(t.tokens, stand_in);
    ++at;
  }
  return t;
}

std::vector<std::vector<Translation>> TextTranslator::assembled(const std::vector<Piece>& pieces,
                                                                std::span<const std::string> lines) const {
  std::vector<size_t> pieces_in(lines.size(), 0);
  for (const Piece& p : pieces) ++pieces_in[p.line];
  std::vector<std::vector<Translation>> out(lines.size());
  for (const Piece& p : pieces) {
    std::vector<Translation>& line = out[p.line];
    const bool whole = pieces_in[p.line] == 1;
    const size_t kept = std::min(p.found.size(), static_cast<size_t>(whole ? options_.n_best : 1));
    for (size_t k = 0; k < kept; ++k) {
      Translation t = written(p.found[k], lines[p.line]);
      whole || line.empty() ? line.push_back(std::move(t)) : append(line[0], t);
    }
  }
  for (std::vector<Translation>& line : out)
    if (line.empty()) line.emplace_back();
  return out;
}

// Translates the longest pieces first, so that memory runs out at once or never.
void TextTranslator::search_all(std::vector<Piece>& pieces, const std::function<void(int64_t)>& done) const {
  std::vector<Piece*> order;
  for (Piece& p : pieces) order.push_back(&p);
  std::stable_sort(order.begin(), order.end(),
                   [](const Piece* a, const Piece* b) { return a->ids.size() > b->ids.size(); });
  std::vector<std::span<Piece*>> batches;
  for (std::span<Piece*> rest(order); !rest.empty(); rest = rest.subspan(batches.back().size())) {
    const auto longest = static_cast<int64_t>(rest[0]->ids.size());
    const int64_t most = std::clamp<int64_t>(options_.batch * kTokensPerSentence / longest, 1, options_.batch);
    batches.push_back(rest.first(std::min(rest.size(), static_cast<size_t>(most))));
  }
  search_batches(batches, done);
}

// On a CPU each thread searches separate batches if there is one for each: a step of a small model has too little work
// to be divided between threads.
void TextTranslator::search_batches(std::span<const std::span<Piece*>> batches,
                                    const std::function<void(int64_t)>& done) const {
  const bool shared =
      model_.ctx.device.kind != Device::Kind::cpu || batches.size() < static_cast<size_t>(num_threads());
  const int workers = shared ? 1 : num_threads();
  std::atomic<size_t> next = 0;
  std::vector<size_t> taken(static_cast<size_t>(workers));
  std::mutex mutex;
  int64_t pieces_done = 0;
  const auto take = [&](int worker) -> int64_t {
    const size_t batch = taken[static_cast<size_t>(worker)] = next.fetch_add(1);
    return batch < batches.size() ? static_cast<int64_t>(batch) : -1;
  };
  const auto visit = [&](int worker) {
    const std::span<Piece*> batch = batches[taken[static_cast<size_t>(worker)]];
    {
      const ThreadLimit threads(shared ? num_threads() : 1);
      search(batch);
    }
    const std::lock_guard lock(mutex);
    pieces_done += static_cast<int64_t>(batch.size());
    if (done) done(pieces_done);
  };
  work_on_chunks(workers, {take, visit, [&] { next = batches.size(); }});
}

std::vector<std::vector<Translation>> TextTranslator::translate(std::span<const std::string> lines,
                                                                const std::function<void(int64_t)>& done) const {
  std::vector<Piece> pieces = pieces_of(lines);
  search_all(pieces, done);
  return assembled(pieces, lines);
}

std::vector<Translation> TextTranslator::translate_sources(const PairArray& pairs,
                                                           const std::function<void(int64_t)>& done) const {
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < pairs.size(); ++i) {
    const std::span<const int32_t> ids = pairs.source(i).first(pairs.source(i).size() - 1);
    const auto limit = static_cast<size_t>(options_.max_source);
    for (size_t at = 0; at < ids.size(); at += limit) {
      const auto part = ids.subspan(at, std::min(limit, ids.size() - at));
      pieces.push_back({static_cast<size_t>(i), {part.begin(), part.end()}, {}});
      pieces.back().ids.push_back(Vocabulary::kEos);
    }
  }
  search_all(pieces, done);
  const std::vector<std::string> no_lines(static_cast<size_t>(pairs.size()));
  std::vector<Translation> best;
  for (std::vector<Translation>& found : assembled(pieces, no_lines)) best.push_back(std::move(found[0]));
  return best;
}

namespace {

// The target side of a split: the original lines, and the words of the preparation.
struct References {
  Lines text, words;
  bool dashes_split = false;  // true: `words` are already split at dashes
};

References references_of(const Recipe& recipe, const Dataset& data, const std::string& split) {
  const auto config = read_config<ParallelConfig>(recipe.data, "data");
  const ParallelSources sources = find_parallel(config, recipe.data);
  const LineTokenizer tokenizer(sources.target);
  References r;
  r.dashes_split = !sources.ready && sources.target.moses && sources.target.aggressive_dashes;
  r.text = read_lines(data.directory + "/" + split + ".target.txt");
  for (std::string& line : r.text) {
    r.words.push_back(sources.ready ? tokenizer.ready_words(line, sources.joiner) : tokenizer.words(line));
    if (sources.ready) line = tokenizer.text(r.words.back());
  }
  return r;
}

}  // namespace

SplitBleu bleu_of_split(const TranslationModel& model, const Recipe& recipe, const Dataset& data,
                        const std::string& split, const TranslateOptions& options) {
  LMX_CHECK(split == "valid" || split == "test", split);
  const PairArray& pairs = split == "test" ? data.test_pairs : data.valid_pairs;
  if (pairs.size() == 0)
    throw UserError(str("[bleu] the ", split, " split of this run's data holds no pairs of sentences"));
  const References references = references_of(recipe, data, split);
  const TextTranslator translator(model, options);
  const std::vector<Translation> found = translator.translate_sources(
      pairs, [&](int64_t n) { progress_line(str("translated ", n, " of ", pairs.size(), " sentences of ", split)); });
  progress_line("");
  Lines text, words;
  for (const Translation& t : found) {
    text.push_back(t.text);
    words.push_back(t.tokens);
  }
  const BleuOptions sacre;
  return {bleu(text, std::span(&references.text, 1), sacre),
          bleu(words, std::span(&references.words, 1), multi_bleu_options()),
          bleu(words, std::span(&references.words, 1), multi_bleu_options(false, !references.dashes_split)),
          bleu_signature(sacre, 1)};
}

}  // namespace lmx::app

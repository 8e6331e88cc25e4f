// The typed configs of `data:`, chosen by its key `name`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx {

// `data.parts`, `data.ratio` and `data.epoch_of` of parallel text: additional training text, mixed with the main text
// in a given ratio.

inline constexpr const char* kMainPart = "main";  // the text of `data:` itself

// One part besides the main text. All of its pairs are training pairs.
struct PartConfig {
  std::string corpus, tokenizer = "auto", joiner;
  std::vector<std::string> source_files, target_files, files;
  std::vector<int64_t> tsv_columns{1, 2}, pairs;
  bool subwords = true;
  int64_t max_words = 0;
  double max_ratio = 0, wrong_targets = 0;
  void fields(Fields& f) {
    f.field("corpus", corpus, "a parallel corpus of the registry; its training pairs are read");
    f.field("source_files", source_files, "or files, directories, globs, also .gz and .zst");
    f.field("target_files", target_files, "the same number of files, in the same order");
    f.field("files", files, "or TSV files with one pair per line");
    f.field("tsv_columns", tsv_columns, "columns of TSV files that contain source and target, from 1", kPositive);
    f.choice("tokenizer", tokenizer, {"auto", "moses", "none", "tokenized"},
             "as for the main text; if the text is not tokenized, either both texts use moses or none");
    f.field("joiner", joiner,
            "tokenized files only: the mark at the end of a piece whose word continues (`@@`); it is removed");
    f.field("pairs", pairs, "[first, last]: only these pairs, counted from 1; empty: all", kPositive);
    f.field("subwords", subwords, "also train the subwords on this text");
    f.field("max_words", max_words, "pairs with a longer side are dropped; 0: no limit", kNonNegative);
    f.field("max_ratio", max_ratio, "pairs with a larger longer / shorter side are dropped; 0: no limit", kNonNegative);
    f.field("wrong_targets", wrong_targets,
            "share of the pairs that get the target of the pair before them, to study the effect of noise", {0, 1});
  }
};

struct MixPart {
  std::string name, path;  // "data.parts.crawl"
  Node node;
  double ratio = 1;
  PartConfig config;  // empty for the main text
};

// The parts of the training text. Empty if `data.parts` is not given; otherwise the first one is the main text.
struct Mix {
  std::vector<MixPart> parts;
  size_t epoch_of = 0;  // the part of which an epoch reads each pair once
  // Number of pairs that an epoch reads from a part: those of the `epoch_of` part times the ratio of the two parts,
  // rounded.
  int64_t draws(size_t part, int64_t defining_pairs) const;
};

// `data` is the whole node. UserError, with the place: an unknown part, a ratio that is not positive, a part without
// text, and others.
Mix read_mix(const Node& data);
// `parts`, `ratio` and `epoch_of` with every default.
void write_mix(const Mix& mix, Node& parts, Node& ratio);

// The most entries of a vocabulary. Sampling rows of a larger one takes seconds in each step.
inline constexpr double kMostEntries = 1 << 24;

struct TextConfig {
  std::string corpus, tokens = "words", field, preprocess = "none", tokenizer = "auto", tokenizer_file, cache_dir;
  std::string document = "paragraph", document_token = "begin", special_text = "text";
  std::vector<std::string> files, valid_files, test_files;
  bool deduplicate = false;
  int64_t vocab_size = 0, split_seed = 1, threads = 0;
  bool lower_case = true, end_of_line = true;
  double valid_fraction = 0.01, test_fraction = 0, train_fraction = 1;
  void fields(Fields& f) {
    f.choice("tokens", tokens, {"words", "chars", "bytes", "subwords"}, "the unit of the text");
    f.required("vocab_size", vocab_size,
               "entries of the vocabulary: <unk>, </s> and the most frequent words or characters; for bytes 256; with "
               "tokenizer_file the entries of the file",
               {3, kMostEntries});
    f.field("corpus", corpus, "a corpus of the registry (`lmx data list`); or give files");
    f.field("files", files, "text files, directories, globs; .gz and .zst are read too");
    f.field("valid_files", valid_files, "files of the validation split; empty: lines of `files` are sampled");
    f.field("test_files", test_files, "files of the test split; empty: lines of `files` are sampled");
    f.field(
        "field", field,
        "the column of .csv files and the field of .jsonl or .ndjson files that contains the text; such files need it "
        "(a corpus has its own)");
    f.choice("preprocess", preprocess, {"none", "puri"},
             "puri (chars, bytes): removes tags, converts to ASCII, decodes HTML's references, writes single spaces, "
             "adds '\\n ' "
             "before and ' ' after");
    f.field("deduplicate", deduplicate, "leave out strings (lines, fields) that equal an earlier one");
    f.choice("tokenizer", tokenizer, {"auto", "rules", "whitespace"},
             "for words: how lines are divided into words: lmx's rules, or white space only; auto: the setting of the "
             "corpus, otherwise rules");
    f.field("tokenizer_file", tokenizer_file,
            "for subwords: the tokenizer, a .model of SentencePiece or a tokenizer.json; empty: byte-pair encoding is "
            "trained on the training split");
    f.choice("document", document, {"paragraph", "file", "string"},
             "for subwords: what a document is in plain text: a run of lines up to an empty line, a whole file, or a "
             "line; a record of a .csv or .jsonl file is always a document");
    f.choice("document_token", document_token, {"begin", "end", "none"},
             "for subwords: where each document has the token for the end of text");
    f.choice("special_text", special_text, {"text", "token", "refuse"},
             "for subwords: how text that spells a special token of tokenizer_file is read: as any other text, as that "
             "token, or not at all");
    f.field("lower_case", lower_case, "lower-case the text (default for chars, bytes and subwords: false)");
    f.field(
        "end_of_line", end_of_line,
        "put </s> (for bytes: \\n) after each line that contains a word, or after each string; default with preprocess "
        "puri: false");
    f.field("valid_fraction", valid_fraction, "share of the lines that become the validation split", {0, 0.9});
    f.field("test_fraction", test_fraction, "share of the lines that become the test split", {0, 0.9});
    f.field("train_fraction", train_fraction,
            "share of the training split's lines that are used; the vocabulary is that of all lines", {0, 1, true});
    f.field("split_seed", split_seed, "seed that chooses these lines; the same on every machine", kNonNegative);
    f.field("cache_dir", cache_dir,
            "where prepared data is kept; empty: LMX_CACHE_DIR, $XDG_CACHE_HOME/lmx or ~/.cache/lmx");
    f.field("threads", threads, "that prepare the data; 0: all cores", {0, 1024});
  }
};

struct ParallelConfig {
  std::string corpus, source_language, target_language, tokenizer = "auto", joiner, subword_model, cache_dir;
  std::vector<std::string> source_files, target_files, valid_source_files, valid_target_files, test_source_files,
      test_target_files, files, valid_files, test_files;
  std::vector<int64_t> tsv_columns{1, 2}, pairs;
  Node parts, ratio;
  std::string epoch_of = kMainPart;
  Mix mix;  // from these three keys, as read_mix reads them
  int64_t vocab_size = 0, max_words = 0, split_seed = 1, threads = 0;
  double max_ratio = 0, valid_fraction = 0.01, test_fraction = 0;
  bool lower_case = false, escape = false, aggressive_dashes = false;
  void fields(Fields& f) {
    f.required("vocab_size", vocab_size, "subwords of both languages together, including <unk> and </s>",
               {3, kMostEntries});
    f.field("corpus", corpus, "a parallel corpus of the registry (`lmx data list`); or give files");
    f.field("source_language", source_language, "language of the source, en, de, fr ...; empty: that of the corpus");
    f.field("target_language", target_language, "language of the side that is predicted; empty: that of the corpus");
    f.field("source_files", source_files,
            "files, directories, globs, also .gz and .zst; line i translates line i of target_files");
    f.field("target_files", target_files, "the same number of files, in the same order");
    f.field("valid_source_files", valid_source_files,
            "files of the validation split; empty: pairs of the training files are sampled");
    f.field("valid_target_files", valid_target_files, "");
    f.field("test_source_files", test_source_files,
            "files of the test split; empty: pairs of the training files are sampled");
    f.field("test_target_files", test_target_files, "");
    f.field("files", files, "TSV files with one pair per line, instead of source_files and target_files");
    f.field("valid_files", valid_files, "TSV files of the validation split");
    f.field("test_files", test_files, "TSV files of the test split");
    f.field("tsv_columns", tsv_columns, "columns of TSV files that contain source and target, from 1", kPositive);
    f.field("pairs", pairs, "[first, last]: only these pairs of the training files, counted from 1; empty: all",
            kPositive);
    f.subtree("parts", parts, "further training text, by name: corpus or files, and its settings");
    f.subtree("ratio", ratio, "pairs of each part that are read, in proportion: {main: 1, NAME: 4}; default 1");
    f.field("epoch_of", epoch_of, "the part of which an epoch reads each pair once; main: the main text");
    f.choice("tokenizer", tokenizer, {"auto", "moses", "none", "tokenized"},
             "moses: Moses' rules, then subwords; none: subwords of the text as it is; tokenized: the files contain "
             "Moses' tokens "
             "already; auto: as the corpus says, else moses");
    f.field("joiner", joiner,
            "tokenized files only: the mark at the end of a piece whose word continues (`@@`); it is removed");
    f.field("lower_case", lower_case, "lower-case both sides");
    f.field("escape", escape, "write & | < > ' \" [ ] as Moses' entities");
    f.field("aggressive_dashes", aggressive_dashes, "cut words at dashes: well @-@ known");
    f.field("subword_model", subword_model,
            "a sentencepiece model to use; empty: byte-pair encoding is trained on both sides");
    f.field("max_words", max_words,
            "training pairs with a longer side are dropped (words before subwords); 0: no limit", kNonNegative);
    f.field("max_ratio", max_ratio,
            "training pairs whose longer side has more than this many times the words of the shorter are "
            "dropped; 0: no limit",
            kNonNegative);
    f.field("valid_fraction", valid_fraction, "share of the pairs that become the validation split", {0, 0.9});
    f.field("test_fraction", test_fraction, "share of the pairs that become the test split", {0, 0.9});
    f.field("split_seed", split_seed, "seed that chooses these pairs; the same on every machine", kNonNegative);
    f.field("cache_dir", cache_dir,
            "where prepared data is kept; empty: LMX_CACHE_DIR, $XDG_CACHE_HOME/lmx or ~/.cache/lmx");
    f.field("threads", threads, "that prepare the data; 0: all cores", {0, 1024});
  }
};

struct SyntheticConfig {
  int64_t vocab_size = 2000, train_tokens = 1'000'000, valid_tokens = 20'000, test_tokens = 20'000;
  int64_t classes = 32, branching = 24, line_length = 12, seed = 1;
  double zipf_exponent = 1.0, noise = 0.2;
  void fields(Fields& f) {
    f.field("vocab_size", vocab_size, "entries of the vocabulary: <unk> (never drawn), </s> and made-up words",
            {4, 10'000'000});
    f.field("train_tokens", train_tokens, "tokens of the training split", {2, 4e9});
    f.field("valid_tokens", valid_tokens, "tokens of the validation split", {2, 4e9});
    f.field("test_tokens", test_tokens, "tokens of the test split; 0: none", {0, 4e9});
    f.field("zipf_exponent", zipf_exponent, "the r-th most frequent word has frequency r^-exponent", {0, 4});
    f.field("classes", classes, "word classes; the class of a word decides what may follow it", {1, 100'000});
    f.field("branching", branching, "words that a class prefers to be followed by", {1, 100'000});
    f.field("noise", noise, "probability that a word is drawn by frequency alone, independent of the words before it",
            kFraction);
    f.field("line_length", line_length, "mean number of words between two </s>", kPositive);
    f.field("seed", seed, "seed of the source and of its text", kNonNegative);
  }
};

// Files of ids that other programs have written.
struct TokensConfig {
  std::vector<std::string> train, valid, test;
  std::string format = "llmc", tokenizer_file;
  int64_t vocab_size = 0;
  void fields(Fields& f) {
    f.required("vocab_size", vocab_size,
               "entries of the vocabulary; every id is below it; with tokenizer_file the entries of the file",
               {2, kMostEntries});
    f.field("train", train, "files or globs of the training split; the files of a glob in the order of their names");
    f.field("valid", valid, "files or globs of the validation split");
    f.field("test", test, "files or globs of the test split");
    f.choice("format", format, {"llmc", "raw16", "raw32"},
             "llmc: as llm.c and modded-nanogpt write them, with a header; raw16, raw32: ids of 2 or 4 bytes, "
             "little-endian, such as the train.bin of nanoGPT");
    f.field("tokenizer_file", tokenizer_file,
            "the tokenizer of the ids, a .model of SentencePiece or a tokenizer.json; without it there are no bits per "
            "byte, and the run "
            "neither reads nor writes text");
  }
};

// The kinds of data, by the value of `data.name`.
enum class Kind { text, synthetic, parallel, tokens };
// UserError if the name is missing or unknown.
Kind kind_of(const Node& data);

// The checked `data:` section of a recipe, by its kind. Defaults that depend on other keys are filled in. A UserError
// names the place of the key.
TextConfig text_config(const Node& data);
ParallelConfig parallel_config(const Node& data);
SyntheticConfig synthetic_config(const Node& data);
TokensConfig tokens_config(const Node& data);

// Number of rows of the model's tables, from the recipe alone (`data.vocab_size`), or from data.tokenizer_file, without
// opening the data.
int64_t vocabulary_size(const Node& data);
// `data:` with every default, as stored in config.yaml.
Node full_data_config(const Node& data);

}  // namespace lmx

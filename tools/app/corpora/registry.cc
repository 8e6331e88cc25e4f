// The registry of corpora. Checksums belong to the files with which lmx's own numbers were measured.
#include <algorithm>
#include <filesystem>

#include "app/corpora/corpora.h"
#include "app/corpora/fetch.h"
#include "app/corpora/sources.h"
#include "base/files.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

Corpus amazon_reviews() {
  return {
      .name = "amazon_reviews",
      .what = "82 M product reviews without repetitions, an object a line (40 GB; Puri 2018, Patwary 2018)",
      .source = "https://jmcauley.ucsd.edu/data/amazon/ (McAuley et al. 2015, aggressively deduplicated data)",
      .licence = "as its page states: research",
      .get =
          "ask for the aggressively deduplicated reviews on that page and put them there as reviews.jsonl.gz (valid "
          "JSON, the text in the field reviewText)",
      .folder = "amazon-reviews",
      .train = {"reviews*.jsonl*"},
      .format = "jsonl",
      .field = "reviewText"};
}

Corpus tieba() {
  return {
      .name = "tieba",
      .what = "posts of Baidu Tieba (34 G characters, 93 GB; Patwary 2018)",
      .source = "internal to Baidu; described in https://arxiv.org/abs/1810.10045",
      .licence = "not public",
      .get =
          "there is no public copy; put other Chinese text there as *.txt, a post a line, or use corpus zh_poetry with "
          "vocab_size at most 13,000",
      .folder = "tieba",
      .train = {"*.txt"}};
}

Corpus fbis() {
  return {
      .name = "fbis",
      .what =
          "Chinese news, the Chinese side of a bilingual corpus, segmented, a sentence a line (4.9 M words; Xiao 2017)",
      .source = "https://catalog.ldc.upenn.edu/LDC2003E14",
      .licence = "LDC user agreement (LDC2003E14)",
      .get =
          "segment the Chinese side of LDC2003E14 into words (the paper: NiuTrans), keep 4,000 sentences as valid.txt "
          "and "
          "4,027 as test.txt, and of the others those of at most 50 words as train.txt",
      .folder = "fbis",
      .train = {"train.txt"},
      .valid = {"valid.txt"},
      .test = {"test.txt"},
      .tokenizer = "whitespace"};
}

Corpus gutenberg() {
  return {.name = "gutenberg",
          .what = "313 English books of 37 authors, a paragraph a line (20 M words)",
          .source = "https://www.gutenberg.org",
          .licence = "public domain in the USA; Project Gutenberg's headers and licence text removed",
          .get =
              "download plain texts from https://www.gutenberg.org and name them in data.files, or put this set's "
              "part-00.txt "
              "to part-09.txt there",
          .folder = "gutenberg",
          .train = {"part-*.txt"},
          .sha256 = {{"part-00.txt", "839aabdb10217276e296b83cc39c1ef7a456717a9fb1bfb4bd497766041c6c68"},
                     {"part-01.txt", "a805349f500d2177cd01024b9b63275aff240f92bcbece4421ee708cd9f7a1bb"},
                     {"part-02.txt", "55a97268664290172aef8569db7b6dc81be2e305d3c453a326738bc5c66f3556"},
                     {"part-03.txt", "fc8f3804dc78a63a6649b8d6b83c4d8215a8b23869ba8514c688e792a1fed7a7"},
                     {"part-04.txt", "ba6bd838a0fdf85e1b46a260af9a0f5baded9257039876b54a30d930f6f03e38"},
                     {"part-05.txt", "da57323c19ee8a5fd8d0e5cdd711b3dc6a5b08595524e4299c34f22a40524485"},
                     {"part-06.txt", "ab5d73f8548250e9e88bcd2614dcdcc2fc9e0216c8e259ec2632580b9e52c9b8"},
                     {"part-07.txt", "67d162b130f740e3231cc7d5f6ac5eea63dc3beccc96617d6c004d23aff1c8d3"},
                     {"part-08.txt", "97e5f370d222122bf9d97b0c9499bee301d8ee4003d918ac52032495d78c87ed"},
                     {"part-09.txt", "6868200c888b3ee4d8bd67427f7a0a3fb160a0a73312a7a51515b917b2fe1660"}}};
}

Corpus movie_reviews() {
  return {
      .name = "movie_reviews",
      .what = "2,000 film reviews with their polarity (CSV label,sentence)",
      .source = "https://www.cs.cornell.edu/people/pabo/movie-review-data/ (Pang and Lee 2004, polarity dataset v2.0)",
      .licence = "CC BY 4.0",
      .get = "download review_polarity from the source and write it as reviews.csv with the columns label,sentence",
      .folder = "movie-reviews",
      .train = {"reviews.csv"},
      .format = "csv",
      .field = "sentence",
      .sha256 = {{"reviews.csv", "9fe53dc00f487c01e00ae1310275a067f862ebf42146556d00bc534cdca49242"}}};
}

Corpus multi30k() {
  return {.name = "multi30k",
          .what = "English-German image captions, raw; as text for a language model its English side (29,000 lines)",
          .source = "https://github.com/multi30k/dataset",
          .licence = "research and education, non-commercial (Elliott et al. 2016, 2017)",
          .get =
              "unpack data/task1/raw of the source as train.en, val.en, test_2016_flickr.en, the same with .de, and "
              "test_2017_flickr",
          .folder = "multi30k",
          .train = {"train.en"},
          .valid = {"val.en"},
          .test = {"test_2016_flickr.en"},
          .sides = {{"en", {"train.en"}, {"val.en"}, {"test_2016_flickr.en"}},
                    {"de", {"train.de"}, {"val.de"}, {"test_2016_flickr.de"}}},
          .sha256 = {{"train.en", "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"},
                     {"train.de", "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"},
                     {"val.en", "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"},
                     {"val.de", "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"},
                     {"test_2016_flickr.en", "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"},
                     {"test_2016_flickr.de", "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"},
                     {"test_2017_flickr.en", "ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98"},
                     {"test_2017_flickr.de", "c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081"}}};
}

Corpus news_commentary() {
  return {
      .name = "news_commentary",
      .what = "English-German commentaries of WMT'14 (version 9): clean text to score crawled pairs with (Ott 2018)",
      .source = "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
      .licence = "as WMT 2014's training data: research",
      .get = "unpack http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz there",
      .folder = "news-commentary",
      .format = "parallel",
      .sides = {{"en", {"training/news-commentary-v9.de-en.en"}, {}, {}},
                {"de", {"training/news-commentary-v9.de-en.de"}, {}, {}}}};
}

Corpus one_billion_word() {
  return {
      .name = "one_billion_word",
      .what = "1-Billion Word benchmark: English news, tokenized, a sentence a line (0.8 G words, 1.8 GB to download)",
      .source = "http://www.statmt.org/lm-benchmark/1-billion-word-language-modeling-benchmark-r13output.tar.gz",
      .licence = "as the news texts of WMT 2011: research (Chelba et al. 2013)",
      .get =
          "download http://www.statmt.org/lm-benchmark/1-billion-word-language-modeling-benchmark-r13output.tar.gz and "
          "unpack "
          "it there with tar --strip-components=1",
      .folder = "one-billion-word",
      .train = {"training-monolingual.tokenized.shuffled/news.en-*"},
      .tokenizer = "whitespace",
      .archive_sha256 = "01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e"};
}

Corpus paracrawl() {
  return {
      .name = "paracrawl",
      .what =
          "English-German pairs crawled from the web, TSV: release 6, cleaned, or a raw one (Ott 2018: 140 M of 4.5 G)",
      .source = "https://paracrawl.eu",
      .licence = "CC0 for the packaging; texts as the crawled sites state",
      .get =
          "for raw pairs, as the paper filters them, write a raw English-German release of https://paracrawl.eu "
          "(release 5: https://s3.amazonaws.com/web-language-models/paracrawl/release5/en-de.classify.gz) as lines "
          "English<TAB>German into files of another folder; lmx data filter, lmx score and lmx data top make "
          "part-best.tsv.gz of them in this one (docs/data.md); lmx data fetch downloads release 6's cleaned pairs",
      .folder = "paracrawl",
      .format = "parallel",
      .sides = {{"en", {"part-*.tsv.gz"}, {}, {}, 1}, {"de", {"part-*.tsv.gz"}, {}, {}, 2}}};
}

Corpus ptb() {
  return {.name = "ptb",
          .what = "Penn Treebank as Mikolov prepared it: 10,000 words with <unk>, a sentence a line (0.93 M words)",
          .source = "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
          .licence = "LDC user agreement of the Penn Treebank (LDC99T42)",
          .get = "put ptb.train.txt, ptb.valid.txt and ptb.test.txt of simple-examples.tgz (folder data) there",
          .folder = "ptb",
          .train = {"ptb.train.txt"},
          .valid = {"ptb.valid.txt"},
          .test = {"ptb.test.txt"},
          .tokenizer = "whitespace"};
}

Corpus ptb_wsj() {
  return {
      .name = "ptb_wsj",
      .what =
          "Wall Street Journal of the Penn Treebank by sections, not Mikolov's preparation (0.95 M words; Xiao 2017)",
      .source = "https://catalog.ldc.upenn.edu/LDC99T42",
      .licence = "LDC user agreement of the Penn Treebank (LDC99T42)",
      .get =
          "write the words of LDC99T42, a sentence a line, as train.txt (sections 00 to 20), valid.txt (21, 22) and "
          "test.txt (23, 24)",
      .folder = "ptb-wsj",
      .train = {"train.txt"},
      .valid = {"valid.txt"},
      .test = {"test.txt"},
      .tokenizer = "whitespace"};
}

Corpus sst2() {
  return {
      .name = "sst2",
      .what = "binary Stanford Sentiment Treebank (CSV label,sentence): train 6,920, val 872, test 1,821",
      .source =
          "https://github.com/NVIDIA/sentiment-discovery (data/binary_sst), from https://nlp.stanford.edu/sentiment/",
      .licence = "research (Socher et al. 2013)",
      .get = "copy train.csv, val.csv and test.csv of data/binary_sst in https://github.com/NVIDIA/sentiment-discovery",
      .folder = "sst2",
      .train = {"train.csv"},
      .valid = {"val.csv"},
      .test = {"test.csv"},
      .format = "csv",
      .field = "sentence",
      .sha256 = {{"train.csv", "6003623bcb35aad3a446a265b8931b7ccab61fcc10f2e9c1fec916ff67c7be35"},
                 {"val.csv", "f34c4987fea208fefc2d62a1b42c83a766cbfc7ce58c2a878ef953cf91f01729"},
                 {"test.csv", "519cea7ed4d22fe7ec4eccbb3d5ba6d88902a3b15ce129f476aa8364463a9fc7"}}};
}

Corpus tinyshakespeare() {
  return {.name = "tinyshakespeare",
          .what = "plays of Shakespeare in one file (1.1 MB)",
          .source = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
          .licence = "public domain",
          .get = "download https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
          .folder = "tinyshakespeare",
          .train = {"input.txt"},
          .sha256 = {{"input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"}}};
}

Corpus wmt14_en_fr() {
  const auto side = [](const char* language) {
    const std::string l = language;
    return CorpusSide{l,
                      {"europarl-v7.fr-en." + l, "commoncrawl.fr-en." + l, "un/undoc.2000.fr-en." + l,
                       "training/news-commentary-v9.fr-en." + l, "giga-fren.release2.fixed." + l + ".gz"},
                      {"newstest2012." + l, "newstest2013." + l},
                      {"newstest2014." + l}};
  };
  return {
      .name = "wmt14_en_fr",
      .what = "English-French of WMT'14, raw, as in Gehring et al. 2017 (36 M pairs after cleaning; Ott 2018)",
      .source = "http://www.statmt.org/wmt14/translation-task.html",
      .licence = "as WMT 2014's training data: research",
      .get =
          "unpack http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz, -commoncrawl.tgz and -un.tgz of "
          "the same "
          "folder, http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz and "
          "http://www.statmt.org/wmt10/training-giga-fren.tar "
          "there, europarl's and commoncrawl's files at the top, and write the segments of newstest2012, 2013 "
          "(http://www.statmt.org/wmt14/dev.tgz) and 2014 (http://www.statmt.org/wmt14/test-full.tgz) one a line as "
          "newstest2012.en, .fr ...",
      .folder = "wmt14-en-fr",
      .format = "parallel",
      .sides = {side("en"), side("fr")}};
}

Corpus wmt16_en_de() {
  const auto side = [](const char* language) {
    const std::string l = language;
    return CorpusSide{l,
                      {"train.tok.clean.bpe.32000." + l},
                      {"newstest2013.tok.bpe.32000." + l},
                      {"newstest2014.tok.bpe.32000." + l}};
  };
  return {.name = "wmt16_en_de",
          .what =
              "English-German of WMT'16 in the filtered version of Vaswani et al. 2017, Moses' tokens (4.5 M pairs; "
              "Ott 2018)",
          .source =
              "https://github.com/facebookresearch/fairseq/tree/main/examples/scaling_nmt (wmt16_en_de.tar.gz on "
              "Google Drive)",
          .licence = "as WMT 2016's training data: research",
          .get =
              "download https://drive.google.com/uc?export=download&id=0B_bZck-ksdkpM25jRUN2X2UxMm8 "
              "(wmt16_en_de.tar.gz) and "
              "unpack it there",
          .folder = "wmt16-en-de",
          .format = "parallel",
          .tokenizer = "tokenized",
          .sides = {side("en"), side("de")},
          .joiner = "@@"};
}

Corpus xinhua() {
  return {.name = "xinhua",
          .what = "English news of the Xinhua agency, tokenized, a sentence a line (110 M words; Xiao 2017)",
          .source = "https://catalog.ldc.upenn.edu/LDC2011T07",
          .licence = "LDC user agreement of English Gigaword (LDC2011T07)",
          .get =
              "tokenize 4.5 M sentences of the Xinhua part of LDC2011T07, keep 5,050 as valid.txt and 5,100 others as "
              "test.txt, and of the rest those of at most 50 words as train.txt",
          .folder = "xinhua",
          .train = {"train.txt"},
          .valid = {"valid.txt"},
          .test = {"test.txt"},
          .tokenizer = "whitespace"};
}

Corpus zh_poetry() {
  return {.name = "zh_poetry",
          .what = "185,432 classical Chinese poems, one a line (12 M characters, 13,478 distinct)",
          .source = "https://github.com/chinese-poetry/chinese-poetry",
          .licence = "MIT",
          .get = "write the poems of https://github.com/chinese-poetry/chinese-poetry one a line as poems.txt",
          .folder = "zh-poetry",
          .train = {"poems.txt"},
          .sha256 = {{"poems.txt", "9e470ccaa8f82e512fd883ddb92a150b36a6a18367dcc7e4b1b2042f49485299"}}};
}

// Returns the file patterns of the corpus without a match in `directory`.
std::vector<std::string> lacking(const Corpus& corpus, const std::string& directory) {
  std::vector<std::string> missing;
  for (const std::string& pattern : patterns_of(corpus, directory)) {
    try {
      find_sources({pattern}, Split::drawn);
    } catch (const UserError&) {
      const std::string name = pattern.substr(directory.size() + 1);
      if (std::find(missing.begin(), missing.end(), name) == missing.end()) missing.push_back(name);
    }
  }
  return missing;
}

}  // namespace

std::vector<std::string> patterns_of(const Corpus& corpus, const std::string& directory) {
  std::vector<const std::vector<std::string>*> all{&corpus.train, &corpus.valid, &corpus.test};
  for (const CorpusSide& side : corpus.sides) all.insert(all.end(), {&side.train, &side.valid, &side.test});
  std::vector<std::string> patterns;
  for (const auto* names : all)
    for (const std::string& name : *names) patterns.push_back(directory + "/" + name);
  return patterns;
}

std::span<const Corpus> corpora() {
  static const std::vector<Corpus> all{
      amazon_reviews(),   fbis(),        gutenberg(),   movie_reviews(), multi30k(), news_commentary(),
      one_billion_word(), paracrawl(),   ptb(),         ptb_wsj(),       sst2(),     tieba(),
      tinyshakespeare(),  wmt14_en_fr(), wmt16_en_de(), xinhua(),        zh_poetry()};
  return all;
}

const Corpus& find_corpus(const std::string& name, const std::string& place) {
  std::vector<std::string> names;
  for (const Corpus& corpus : corpora()) {
    if (corpus.name == name) return corpus;
    names.push_back(corpus.name);
  }
  throw UserError(str(place, "no corpus '", name, "'", did_you_mean(name, names), "; the registry contains ",
                      config::join(names), "; data.files names any other text"));
}

CorpusPlace locate(const Corpus& corpus) {
  CorpusPlace place;
  std::vector<std::string> missing;
  for (const std::string& directory : data_directories()) {
    const std::string folder = directory + "/" + corpus.folder;
    place.searched.push_back(folder);
    const std::vector<std::string> patterns = lacking(corpus, folder);
    if (patterns.empty()) {
      place.directory = folder;
      return place;
    }
    if (missing.empty()) missing = patterns;
  }
  const std::string fetch = downloads_of(corpus.name).empty() ? "" : str("`lmx data fetch ", corpus.name, "`, or ");
  place.problem = str("corpus '", corpus.name, "' is missing: no ", config::join(missing), " in ",
                      config::join(place.searched, " or "), "; to get it: ", fetch, corpus.get,
                      " (LMX_DATA_DIR names the folders of corpora)");
  return place;
}

}  // namespace lmx::app

// Download addresses of the corpora. Checksums are those of the registry (Corpus); unknown ones are left out.
#include "app/corpora/fetch.h"

namespace lmx {
namespace {

std::vector<Download> multi30k_files() {
  std::vector<Download> files;
  for (const char* split : {"train", "val", "test_2016_flickr", "test_2017_flickr"})
    for (const char* language : {"en", "de"}) {
      const std::string file = std::string(split) + "." + language + ".gz";
      files.push_back({"https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/" + file, file, "gz"});
    }
  return files;
}

std::vector<Download> sst2_files() {
  std::vector<Download> files;
  for (const char* file : {"train.csv", "val.csv", "test.csv"})
    files.push_back(
        {std::string("https://raw.githubusercontent.com/NVIDIA/sentiment-discovery/master/data/binary_sst/") + file,
         file});
  return files;
}

std::vector<Download> one_billion_word_files() {
  return {{.url = "http://www.statmt.org/lm-benchmark/1-billion-word-language-modeling-benchmark-r13output.tar.gz",
           .file = "1-billion-word-language-modeling-benchmark-r13output.tar.gz",
           .unpack = "tar",
           .strip = 1}};
}

std::vector<Download> tinyshakespeare_files() {
  return {{.url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
           .file = "input.txt"}};
}

std::vector<Download> news_commentary_files() {
  return {{"http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz", "training-parallel-nc-v9.tar.gz", "tar"}};
}

// newstest2012 to 2014 are SGML files.
std::vector<Download> wmt14_en_fr_files() {
  const std::string wmt13 = "http://www.statmt.org/wmt13/training-parallel-";
  return {{wmt13 + "europarl-v7.tgz", "europarl-v7.tar.gz", "tar", 1},
          {wmt13 + "commoncrawl.tgz", "commoncrawl.tar.gz", "tar"},
          {wmt13 + "un.tgz", "un.tar.gz", "tar"},
          {"http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz", "training-parallel-nc-v9.tar.gz", "tar"},
          {"http://www.statmt.org/wmt10/training-giga-fren.tar", "training-giga-fren.tar", "tar"},
          {.url = "http://www.statmt.org/wmt14/dev.tgz",
           .file = "dev.tar.gz",
           .unpack = "tar",
           .segments = {{"dev/newstest2012-src.en.sgm", "newstest2012.en"},
                        {"dev/newstest2012-ref.fr.sgm", "newstest2012.fr"},
                        {"dev/newstest2013-src.en.sgm", "newstest2013.en"},
                        {"dev/newstest2013-ref.fr.sgm", "newstest2013.fr"}}},
          {.url = "http://www.statmt.org/wmt14/test-full.tgz",
           .file = "test-full.tar.gz",
           .unpack = "tar",
           .segments = {{"test-full/newstest2014-fren-src.en.sgm", "newstest2014.en"},
                        {"test-full/newstest2014-fren-ref.fr.sgm", "newstest2014.fr"}}}};
}

// Cleaned pairs of a later release than the paper's; Corpus::get describes raw ones.
std::vector<Download> paracrawl_files() {
  return {{"https://s3.amazonaws.com/web-language-models/paracrawl/release6/en-de.txt.gz", "part-release6.tsv.gz"}};
}

std::vector<Download> wmt16_en_de_files() {
  return {{"https://drive.usercontent.google.com/download?id=0B_bZck-ksdkpM25jRUN2X2UxMm8&export=download&confirm=t",
           "wmt16_en_de.tar.gz", "tar"}};
}

}  // namespace

std::vector<Download> downloads_of(const std::string& corpus) {
  if (corpus == "multi30k") return multi30k_files();
  if (corpus == "news_commentary") return news_commentary_files();
  if (corpus == "one_billion_word") return one_billion_word_files();
  if (corpus == "paracrawl") return paracrawl_files();
  if (corpus == "sst2") return sst2_files();
  if (corpus == "tinyshakespeare") return tinyshakespeare_files();
  if (corpus == "wmt14_en_fr") return wmt14_en_fr_files();
  if (corpus == "wmt16_en_de") return wmt16_en_de_files();
  return {};
}

}  // namespace lmx

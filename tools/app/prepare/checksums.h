// Steps that every preparation needs: check the corpus, choose folder and number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"

namespace lmx::data {

// Compares the SHA-256 of each file with the registry's. If the registry has none for the corpus, compares it with the
// sum that the first use recorded in the cache. Checks nothing if `corpus` is null. UserError: they differ; the message
// contains both sums.
void verify_checksums(const Corpus* corpus, const std::string& directory, const std::vector<SourceFile>& files,
                      const std::string& cache_dir);

std::string cache_directory(const std::string& configured);  // "": the default one
int preparing_threads(int64_t configured);                   // 0: all cores

}  // namespace lmx::data

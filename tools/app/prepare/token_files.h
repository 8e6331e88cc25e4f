// `data: {name: tokens}`: files of ids that other programs have written, mapped without conversion.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "app/corpora/sources.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "lmx/data.h"

namespace lmx::data {

using TokenFiles = std::array<std::vector<TokenArray::Part>, kSplits>;

// The files of each split. `place`: the position of `data:` in the recipe. UserError: no file, a header of another
// format, a file whose size differs from its header's.
TokenFiles find_token_files(const TokensConfig& config, const std::string& place);
// Maps the files and checks a sample of their ids: the first and last 4,096 of each file, and one of 64 blocks between
// them. UserError: an id that is not below the vocabulary.
Dataset open_token_files(const TokensConfig& config, const std::string& place);
// Checks every id of `tokens`. UserError as above.
void check_all_ids(const TokensConfig& config, const std::string& place);

}  // namespace lmx::data

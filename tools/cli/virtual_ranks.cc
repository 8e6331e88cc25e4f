#include "cli/virtual_ranks.h"

#include "app/compose/compose.h"

#include <algorithm>

#include "lmx/error.h"

namespace lmx_cli {

lmx::Node compose_on_ranks(const std::string& recipe, const lmx::ComposeOptions& options, int64_t ranks) {
  if (ranks == 0) return lmx::compose(recipe, options);
  for (const std::string& word : options.overrides) {
    const size_t begin = std::min(word.find_first_not_of("+~"), word.size());
    const std::string key = word.substr(begin, word.find('=') - begin);
    if (key != "comm" && !key.starts_with("comm.")) continue;
    throw lmx::UserError(lmx::str("--ranks ", ranks, " means comm=virtual comm.ranks=", ranks, ", and '", word,
                                  "' says something else about comm: leave out one of them"));
  }
  lmx::Node tree = lmx::compose(recipe, options);
  const lmx::Mark mark{lmx::str("option '--ranks ", ranks, "'")};
  lmx::Node comm = lmx::Node::map(mark);
  comm.set("name", lmx::Node::string("virtual", mark));
  comm.set("ranks", lmx::Node::scalar(std::to_string(ranks), mark));
  tree.set("comm", comm);
  return tree;
}

}  // namespace lmx_cli

#include "app/compose/virtual_ranks.h"

#include <algorithm>

#include "lmx/error.h"

namespace lmx {

Node compose_on_ranks(const std::string& recipe, const ComposeOptions& options, int64_t ranks, const RunNames& names) {
  if (ranks == 0) return compose_run(recipe, options, names);
  for (const std::string& word : options.overrides) {
    const size_t begin = std::min(word.find_first_not_of("+~"), word.size());
    const std::string key = word.substr(begin, word.find('=') - begin);
    if (key != "comm" && !key.starts_with("comm.")) continue;
    throw UserError(str("--ranks ", ranks, " means comm=virtual comm.ranks=", ranks, ", and '", word,
                        "' says something else about comm: leave out one of them"));
  }
  Node tree = compose_run(recipe, options, names);
  const Mark mark{str("option '--ranks ", ranks, "'")};
  Node comm = Node::map(mark);
  comm.set("name", Node::string("virtual", mark));
  comm.set("ranks", Node::scalar(std::to_string(ranks), mark));
  tree.set("comm", comm);
  return tree;
}

}  // namespace lmx

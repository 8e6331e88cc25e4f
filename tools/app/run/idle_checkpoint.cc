#include "app/run/idle_checkpoint.h"

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/sequence.h"
#include "recipe/components.h"

namespace lmx::train {

std::string idle_checkpoint(const Recipe& recipe, int ranks, int64_t length) {
  const Node model = full_component(PluginKind::model, recipe.model, "model");
  const auto number = [](const Node& config, const char* key) {
    const Node* node = config.find(key);
    return node ? parse_int(node->text).value_or(0) : 0;
  };
  const Node* checkpoint = model.find("checkpoint");
  const int64_t steps = length;
  if (!checkpoint || checkpoint->text != "true" || number(model, "layers") != 1 || steps == 0) return {};
  const int64_t share = (recipe.batch.global + ranks - 1) / ranks;
  const int64_t sequences = recipe.batch.micro > 0 ? std::min(recipe.batch.micro, share) : share;
  if (segment_steps({number(model, "segment"), true}, steps, sequences) < steps) return {};
  return str("[model] checkpoint saves nothing: ", steps, " steps of ", sequences,
             sequences == 1 ? " sequence" : " sequences", " are one piece, which backward makes again as a whole",
             steps > 1 ? str("; model.segment=", (steps + 3) / 4, " would make pieces of it") : "");
}

}  // namespace lmx::train

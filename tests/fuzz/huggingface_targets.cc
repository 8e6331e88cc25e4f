// The JSON files of a model of Hugging Face. Its weights are the target `checkpoint`.
#include <stdexcept>

#include "app/huggingface/layouts.h"
#include "app/huggingface/weights.h"
#include "lmx/error.h"
#include "targets.h"

namespace lmx::fuzz {
namespace {

using huggingface::GptFields;
using huggingface::Json;
using huggingface::Layout;

void read_config(const std::string& text) {
  const Json config = huggingface::parse_object(text, "config.json");
  const Layout& layout = huggingface::layout_of(config, "config.json");
  const GptFields fields = huggingface::fields_of(layout, config, "config.json");
  const Json written = huggingface::config_of(layout, fields);
  if (huggingface::fields_of(layout, written, "written.json") != fields)
    throw std::logic_error(str("the fields of a config read back to others: ", written.dump()));
}

}  // namespace

void huggingface(std::string_view input) {
  const std::string text(input);
  try {
    read_config(text);
  } catch (const UserError&) {
  }
  try {
    static_cast<void>(lmx::huggingface::files_of_index(text, "index.json"));
  } catch (const UserError&) {
  }
}

}  // namespace lmx::fuzz

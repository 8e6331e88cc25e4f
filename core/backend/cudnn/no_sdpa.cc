#include "backend/cudnn/library.h"

namespace lmx::cudnn {

std::string sdpa_refusal(const Context&, const SdpaShape&) {
  return "lmx was built without cudnn-frontend, which `tools/setup --cuda` installs";
}

}  // namespace lmx::cudnn

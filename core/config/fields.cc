#include "lmx/config.h"

namespace lmx {

Fields::~Fields() = default;  // defined here, so that all plugins share one vtable

}  // namespace lmx

#include "lmx/config.h"

namespace lmx {

Fields::~Fields() = default;  // here, so that plugins share one vtable

}  // namespace lmx

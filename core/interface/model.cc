#include "lmx/model.h"

namespace lmx {

// The key function: the class's type information lives here, once.
Model::~Model() = default;

}  // namespace lmx

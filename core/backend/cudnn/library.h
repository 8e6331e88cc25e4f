// The parts of liblmx_cudnn.so.
#pragma once

#include <cudnn.h>

#include <string>

#include "backend/cudnn.h"

namespace lmx::cudnn {

// cuDNN's handle of the context's device, whose calls are enqueued on the context's stream. Made at the first call, and
// never destroyed, because cuDNN may end before objects of static storage do. RunError: cuDNN's error.
cudnnHandle_t handle_of(const Context& ctx);

// Why the context's device does not compute attention of this shape; "" if it does. The kernels of SdpaForward and
// SdpaBackward are in the same file: sdpa.cc, or no_sdpa.cc in a build without cudnn-frontend.
std::string sdpa_refusal(const Context& ctx, const SdpaShape& shape);

// RunError with the expression, its place and cuDNN's message.
void check(cudnnStatus_t status, const char* expression, const char* file, int line);

}  // namespace lmx::cudnn

#define LMX_CUDNN_CHECK(expression) ::lmx::cudnn::check((expression), #expression, __FILE__, __LINE__)

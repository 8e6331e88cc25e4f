// `lmx bench --counts`: what a step asks of a CUDA device.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backend/cuda.h"

namespace lmx_cli {

nlohmann::ordered_json counts_json(const lmx::DeviceCounts& counts);
// Launches by name, most of them first, then copies and waits.
std::string counts_table(const lmx::DeviceCounts& counts);

}  // namespace lmx_cli

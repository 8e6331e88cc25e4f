// The files that `lmx export --to pytorch` writes in addition to the weights.
#pragma once

#include <string_view>

namespace lmx::train {

// lmx_model.py: LSTM, mLSTM and RHN language models in plain PyTorch.
extern const std::string_view kExportedModule;
extern const char* const kExportedReadMe;

}  // namespace lmx::train

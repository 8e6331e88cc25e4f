// The tensors in a folder of Hugging Face.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/huggingface/layouts.h"
#include "lmx/tensor.h"

namespace lmx::app::huggingface {

// The file of each tensor, from the text of model.safetensors.index.json. UserError, beginning with `path`: damaged, or
// a file outside the folder.
std::map<std::string, std::string> files_of_index(const std::string& text, const std::string& path);

// The tensors of model.safetensors, or of the files that model.safetensors.index.json names. The files are mapped.
class Weights {
 public:
  // UserError: a file is missing or damaged, or a tensor is in none of the files, or in two.
  Weights(const std::string& directory, const Layout& layout);
  // Returns and removes the tensors of a parameter. UserError: one is missing, has another shape or type, or a
  // value that is not finite.
  std::vector<Tensor> take(const Place& place);
  // UserError: a tensor is left that is neither a buffer nor the output layer of a tied model, which equals `table`.
  void check_rest(const Layout& layout, const Tensor& table) const;

 private:
  void add(const std::string& path, const Layout& layout);
  void add_files_of(const std::string& index, const std::string& directory, const Layout& layout);
  struct Entry {
    Tensor tensor;
    std::string path, name;  // as the file names it
  };
  std::string source_;
  std::map<std::string, Entry> entries_;
};

}  // namespace lmx::app::huggingface

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/export/export.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "runfiles/checkpoint.h"

namespace lmx::app {

const std::string_view kExportedModule = R"py("""A recurrent language model trained by lmx, in plain PyTorch.

    from lmx_model import load
    model, vocabulary = load(".")          # the folder that holds this file
    logits, state = model(ids)             # ids (B, T) -> logits (B, T, V)
    logits, state = model(more, state)     # goes on where ids ended

    python lmx_model.py "the old man"      # log-likelihood of a text of words, and a continuation

The names of parameters are those of lmx; docs/models.md of lmx gives the layout of each. The gates of the LSTM and the
mLSTM stand in the order i, f, g, o, as in torch.nn.LSTM.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from torch import nn

def parameter(*shape):
    return nn.Parameter(torch.zeros(*shape))

def lstm_gates(z, c, forget_bias):
    """One step of the memory: z (B, 4H) pre-activations, c (B, H) -> output (B, H), c (B, H)."""
    i, f, g, o = z.chunk(4, dim=-1)
    c = torch.sigmoid(f + forget_bias) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c

class LSTM(nn.Module):
    def __init__(self, inputs, config):
        super().__init__()
        self.cells, self.forget_bias = config["cells"], config["forget_bias"]
        self.size = config["projection"] or self.cells
        self.weight_ih = parameter(4 * self.cells, inputs)
        self.weight_hh = parameter(4 * self.cells, self.size)
        self.bias = parameter(4 * self.cells)
        if config["projection"]:
            self.weight_hr = parameter(self.size, self.cells)

    def initial_state(self, batch):
        return self.bias.new_zeros(batch, self.size), self.bias.new_zeros(batch, self.cells)

    def forward(self, x, state):
        h, c = state
        h, c = lstm_gates(x @ self.weight_ih.T + h @ self.weight_hh.T + self.bias, c, self.forget_bias)
        if hasattr(self, "weight_hr"):
            h = h @ self.weight_hr.T
        return h, (h, c)

class MultiplicativeLSTM(nn.Module):
    """m = (W_mx x) * (W_mh h), then an LSTM that reads m in the place of h (Krause et al. 2016)."""

    def __init__(self, inputs, config):
        super().__init__()
        self.size, self.forget_bias = config["cells"], config["forget_bias"]
        self.weight_mx = parameter(self.size, inputs)
        self.weight_mh = parameter(self.size, self.size)
        self.weight_x = parameter(4 * self.size, inputs)
        self.weight_m = parameter(4 * self.size, self.size)
        self.bias = parameter(4 * self.size)

    def initial_state(self, batch):
        return self.bias.new_zeros(batch, self.size), self.bias.new_zeros(batch, self.size)

    def forward(self, x, state):
        h, c = state
        m = (x @ self.weight_mx.T) * (h @ self.weight_mh.T)
        h, c = lstm_gates(x @ self.weight_x.T + m @ self.weight_m.T + self.bias, c, self.forget_bias)
        return h, (h, c)

class RHN(nn.Module):
    """`depth` highway layers a step: s' = tanh(z_h) t + s c (Zilly et al. 2016)."""

    def __init__(self, inputs, config):
        super().__init__()
        self.size, self.coupled, self.transform_bias = config["cells"], config["coupled"], config["transform_bias"]
        gates = (2 if self.coupled else 3) * self.size
        self.weight_x = parameter(gates, inputs)
        self.weight_s = nn.ParameterList([parameter(gates, self.size) for _ in range(config["depth"])])
        self.bias = nn.ParameterList([parameter(gates) for _ in range(config["depth"])])

    def initial_state(self, batch):
        return (self.weight_x.new_zeros(batch, self.size),)

    def forward(self, x, state):
        (s,) = state
        for depth, (weight, bias) in enumerate(zip(self.weight_s, self.bias)):
            z = s @ weight.T + bias
            if depth == 0:  # the input comes in at the first layer alone
                z = z + x @ self.weight_x.T
            blocks = z.chunk(2 if self.coupled else 3, dim=-1)
            transform = torch.sigmoid(blocks[1] + self.transform_bias)
            carry = 1 - transform if self.coupled else torch.sigmoid(blocks[2] - self.transform_bias)
            s = torch.tanh(blocks[0]) * transform + s * carry
        return s, (s,)

class Output(nn.Module):
    """The output layer's own parameters; a tied table is none of them."""

    def __init__(self, words, features, own_table, bias):
        super().__init__()
        self.weight = parameter(words, features) if own_table else None
        self.bias = parameter(words) if bias else None

class LanguageModel(nn.Module):
    CELLS = {"lstm": LSTM, "mlstm": MultiplicativeLSTM, "rhn": RHN}

    def __init__(self, config):
        super().__init__()
        self.name = config["model"]
        self.embedding = nn.Embedding(config["words"], config["embedding"])
        layers = nn.ModuleList()
        for i in range(config["layers"]):
            layers.append(self.CELLS[self.name](layers[-1].size if i else config["embedding"], config))
        setattr(self, self.name, layers)
        tied = config["output_table"] == "embedding.weight"
        self.softmax = Output(config["words"], layers[-1].size, not tied, config["output_bias"])

    def forward(self, ids, state=None):
        """ids (B, T) -> logits (B, T, V) of what follows each id, and the state behind the last one."""
        layers = getattr(self, self.name)
        state = list(state or [layer.initial_state(len(ids)) for layer in layers])
        features = []
        for x in self.embedding(ids).unbind(dim=1):  # (B, E), one step of time
            for i, layer in enumerate(layers):
                x, state[i] = layer(x, state[i])
            features.append(x)
        table = self.embedding.weight if self.softmax.weight is None else self.softmax.weight
        return nn.functional.linear(torch.stack(features, dim=1), table, self.softmax.bias), state

def load(folder="."):
    """The model and its words, in the order of their ids."""
    folder = pathlib.Path(folder)
    model = LanguageModel(json.loads((folder / "config.json").read_text()))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    lines = (folder / "vocabulary.tsv").read_bytes().decode("utf-8").split("\n")[:-1]
    return model.eval(), [line.rsplit("\t", 1)[0] for line in lines]

@torch.no_grad()
def main(text):
    model, vocabulary = load(pathlib.Path(__file__).parent)
    numbers = {word: i for i, word in enumerate(vocabulary)}
    unknown, end_of_line = 0, 1
    ids = [end_of_line] + [numbers.get(word, unknown) for word in text.split()]
    logits, state = model(torch.tensor([ids]))
    likelihood = logits[0, :-1].log_softmax(-1)[range(len(ids) - 1), ids[1:]].sum()
    print(f"log-likelihood {likelihood:.6f} nats")
    for _ in range(10):
        ids.append(int(logits[0, -1].argmax()))
        logits, state = model(torch.tensor([ids[-1:]]), state)
    print(" ".join(vocabulary[i] for i in ids[1:]))

if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
)py";

const char* const kExportedReadMe = R"(A recurrent language model as a PyTorch module.

    python lmx_model.py "the old man"

lmx_model.py   the model in plain PyTorch (needs torch and safetensors), with an example at its end
model.safetensors   the weights, by the names that they have in lmx; weight normalisation is multiplied out
config.json    the sizes
vocabulary.tsv words and their counts, line i being id i: <unk> and </s> first; of bytes id i is byte i
)";

// Writes a recurrent language model as a folder with a PyTorch module: the weights with the names that they have in
// lmx, with weight normalisation multiplied out, and the module that reads them.

namespace {

using Json = nlohmann::ordered_json;

// Computes w = g v / |v|, row by row, with norms summed in double as in training.
Tensor normed(const Tensor& v, const Tensor& g) {
  Tensor w = v.clone(MemClass::other);
  const int64_t cols = v.dim(1);
  for (int64_t r = 0; r < v.dim(0); ++r) {
    float* row = w.data<float>() + r * cols;
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) squares += static_cast<double>(row[c]) * static_cast<double>(row[c]);
    const double norm = std::sqrt(squares);
    const float factor = norm > 0 ? static_cast<float>(static_cast<double>(g.data<float>()[r]) / norm) : 0.0F;
    for (int64_t c = 0; c < cols; ++c) row[c] *= factor;
  }
  return w;
}

StateDict plain_weights(const ExportSource& source) {
  StateDict tensors;
  for (const std::string& name : source.run.params.names()) {
    const std::string stem = name.substr(0, name.size() - std::min<size_t>(2, name.size()));
    if (name.ends_with("_g") && source.has(stem + "_v")) continue;
    if (name.ends_with("_v") && source.has(stem + "_g"))
      tensors.emplace(stem, normed(source.at(name), source.at(stem + "_g")));
    else
      tensors.emplace(name, source.at(name));
  }
  return tensors;
}

// An architecture that the module contains, and the traits that the module needs, in the order of config.json.
struct Architecture {
  std::string name;
  std::vector<const char*> integers, reals, flags;
};

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all{
      {"lstm", {trait::kLayers, trait::kEmbedding, trait::kCells, trait::kProjection}, {trait::kForgetBias}, {}},
      {"mlstm", {trait::kLayers, trait::kEmbedding, trait::kCells}, {trait::kForgetBias}, {}},
      {"rhn",
       {trait::kLayers, trait::kEmbedding, trait::kCells, trait::kDepth},
       {trait::kTransformBias},
       {trait::kCoupled}}};
  return all;
}

// Returns the values that the module needs; traits keep their names.
Json module_config(const ExportSource& source, const ModelTraits& traits, const Architecture& architecture) {
  Json config{{"model", architecture.name},
              {"words", source.vocabulary.size()},
              {"unit", source.vocabulary.of_bytes() ? "byte" : "word or character"}};
  for (const char* name : architecture.integers) config[name] = traits.integer(name);
  for (const char* name : architecture.reals) config[name] = traits.real(name);
  for (const char* name : architecture.flags) config[name] = traits.flag(name);
  config["output_table"] = source.output_table();
  config["output_bias"] = source.has("softmax.bias");
  return config;
}

}  // namespace

void export_pytorch(const ExportSource& source, NewFolder& folder) {
  const ModelTraits traits(source);
  const auto architecture = std::find_if(architectures().begin(), architectures().end(),
                                         [&](const Architecture& a) { return a.name == traits.architecture(); });
  Misfits misfits;
  if (architecture == architectures().end()) {
    std::vector<std::string> names;
    for (const Architecture& a : architectures()) names.push_back(a.name);
    misfits.add("model.name",
                str(traits.description(), "; the PyTorch module has the recurrent models ", config::join(names),
                    traits.architecture() == "transformer" ? "; lmx writes a Transformer by --to huggingface" : ""));
  }
  misfits.check(source.directory, "the PyTorch module");
  save_safetensors(folder.path("model.safetensors"), plain_weights(source));
  folder.write("config.json", module_config(source, traits, *architecture));
  folder.write("lmx_model.py", kExportedModule);
  folder.copy(source.directory + "/vocabulary.tsv", "vocabulary.tsv");
  folder.write("README.txt", std::string_view(export_note(source, kExportedReadMe)));
}

}  // namespace lmx::app

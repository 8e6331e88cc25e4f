// Parameters of a model by name, and how they start.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/config.h"
#include "lmx/context.h"

namespace lmx {

// Named tensors of an optimizer's or other component's state, as a checkpoint keeps them.
using StateDict = std::map<std::string, Tensor>;

// How a parameter starts; drawn from key.fold(name) by element index, so independent of the order of declaration.
struct LMX_API Init {
  std::string kind =
      "uniform";  // zeros, ones, constant, uniform [-scale, scale], normal (std scale), xavier_uniform, xavier_normal
  double scale = 0.1;      // constant's value, half width, or standard deviation; the gain of the xavier kinds
  void fields(Fields& f);  // keys `kind` and `scale`
};

struct ParameterSpec {
  std::string name;  // "lstm.0.weight_hh"
  Shape shape;
  Init init;
  bool sparse = false;  // its gradient is row-sparse (an embedding, a sampled softmax's table)
  bool output = false;  // the output layer's, a row for each word: its own, or a table of the model that is tied to it
  bool frozen = false;  // it keeps its first value: no gradient is computed for it, so nothing updates or exchanges it
};

// Owns the leaf Vars (f32 master values). Order of declaration is kept; names are unique.
class LMX_API ParameterStore {
 public:
  // UserError: a name twice, an empty dimension.
  Var& add(Context& ctx, const ParameterSpec& spec, RandomKey key);
  Var& at(const std::string& name);  // InternalError listing the names when absent
  const Var& at(const std::string& name) const;
  bool contains(const std::string& name) const;
  const std::vector<std::string>& names() const { return order_; }
  const ParameterSpec& spec(const std::string& name) const;
  int64_t count() const;  // elements of all parameters
  void clear_gradients();
  // The same parameters for another rank of this process: values and what is cached of them are shared, gradients are
  // its own.
  ParameterStore replica() const;
  // The same parameters with values of their own, which may then differ from this store's (a stale replica).
  ParameterStore copy(Context& ctx) const;
  // Rows [first, last) = range(rows) of some parameters, those without any left out. The views share values; who changes
  // them tells the whole parameter by changed().
  ParameterStore views(const std::vector<std::string>& names,
                       const std::function<std::pair<int64_t, int64_t>(int64_t rows)>& range) const;

 private:
  struct Entry {
    ParameterSpec spec;
    Var var;
  };
  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;
};

// Fills `t` (f32 or f64) as `init` says.
LMX_API void initialise(Tensor& t, const Init& init, RandomKey key);

}  // namespace lmx

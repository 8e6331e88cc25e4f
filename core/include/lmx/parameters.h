// Parameters of a model by name, and their initial values.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/config.h"
#include "lmx/context.h"

namespace lmx {

// Named tensors of the state of an optimizer or other component, as stored in a checkpoint.
using StateDict = std::map<std::string, Tensor>;

// Initial values of a parameter. They depend on key.fold(name) and the element index, not on the order of declaration.
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
  bool output = false;  // the output layer's, with a row for each word: its own, or a table of the model tied to it
  bool frozen = false;  // keeps its initial value: no gradient is computed, so nothing updates or exchanges it
  // Number of rows of each matrix if the parameter consists of several that are stacked, such as {d, d, d} for queries,
  // keys and values. Empty: it is one matrix. For optimizers that update a matrix as a whole.
  std::vector<int64_t> parts = {};
};

// Owns the leaf Vars (master values, f32; f64 if ctx.compute is f64). Keeps the order of declaration; names are unique.
class LMX_API ParameterStore {
 public:
  // UserError: a duplicate name, an empty dimension, parts that do not add up to the rows.
  Var& add(Context& ctx, const ParameterSpec& spec, RandomKey key);
  Var& add(const ParameterSpec& spec, Tensor value);  // with this value, which is not copied, in place of spec.init
  Var& at(const std::string& name);                   // UserError if there is no such name
  const Var& at(const std::string& name) const;
  bool contains(const std::string& name) const;
  const std::vector<std::string>& names() const { return order_; }
  const ParameterSpec& spec(const std::string& name) const;
  int64_t count() const;  // elements of all parameters
  void clear_gradients();
  // The same parameters for another rank of this process: values and cached copies are shared, gradients are separate.
  ParameterStore replica() const;
  // The same parameters with separate values, which may differ from this store's later (a stale replica).
  ParameterStore copy(Context& ctx) const;
  // A replica() in which these parameters alone have separate values.
  ParameterStore copy(Context& ctx, const std::set<std::string>& names) const;
  // The parameters that are in `names`, or those that are not, with the same values and gradients.
  ParameterStore subset(const std::set<std::string>& names, bool in = true) const;
  // Elements [first, last) of the flat values of some parameters, by name, as vectors, or in the shape of the parameter
  // if they are all of it. Otherwise as views().
  ParameterStore parts(const std::map<std::string, std::pair<int64_t, int64_t>>& elements) const;
  // Rows [first, last) = range(rows) of some parameters; parameters without any such rows are left out. The views share
  // values with this store. Code that changes the values of a view must call changed() of the complete parameter.
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

// Fills `t` (f32 or f64) with the values that `init` describes.
LMX_API void initialise(Tensor& t, const Init& init, RandomKey key);

}  // namespace lmx

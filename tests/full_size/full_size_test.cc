// Every shipped recipe of a paper's own size, and every point of its sweep, makes two updates, in fp16 six: with its
// tokens a step, ranks, precision, wire codec and loss scale unchanged, and a model of 8 units. Numbers of a recipe
// that contradict each other (a loss scale that no gradient of so many tokens fits under) show here, on any machine.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "app/compose/compose.h"
#include "app/run/schema.h"
#include "app/sweep/grid.h"
#include "data/dataset.h"
#include "full_size/shipped.h"
#include "lmx/log.h"
#include "lmx/loss.h"
#include "lmx/model.h"
#include "lmx/ops.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"
#include "recipe/comm_config.h"
#include "train/fixture.h"
#include "train/loop/trainer.h"

namespace lmx::app {
namespace {

namespace fs = std::filesystem;

// A batch of the true size at the price of one of its sequences: where every sequence of a rank's share is a copy of
// the first one, model and loss read that one and the loss is multiplied by the number of copies. Losses and gradients
// are those of the whole share, so what the trainer scales, sums over ranks and sends is as large as it would be.

// Throws unless `all` (n) consists of copies of its first `one` ids.
void require_copies(const Tensor& all, int64_t one) {
  const auto ids = all.values<int32_t>();
  for (size_t i = static_cast<size_t>(one); i < ids.size(); ++i)
    LMX_CHECK(ids[i] == ids[i - static_cast<size_t>(one)], "id ", i, " is not that of a copy");
}

// The first of the sequences in `batch`.
Batch first_sequence(const Batch& batch) {
  Batch one;
  one.slots = {batch.slots.at(0)};
  one.fresh = {batch.fresh.at(0)};
  const int64_t rows = batch.lengths.empty() ? 1 : batch.lengths[0];
  one.inputs = batch.inputs.slice(0, rows);
  one.targets = batch.targets.slice(0, rows);
  require_copies(batch.inputs, one.tokens());
  require_copies(batch.targets, one.tokens());
  if (batch.lengths.empty()) return one;
  one.lengths = {batch.lengths[0]};
  one.source_lengths = {batch.source_lengths[0]};
  one.source = batch.source.slice(0, batch.source_lengths[0]);
  require_copies(batch.source, batch.source_lengths[0]);
  return one;
}

class CopiesModel final : public Model {
 public:
  explicit CopiesModel(std::unique_ptr<Model> inner) : inner_(std::move(inner)) {}
  Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state) const override {
    if (!ctx.training || batch.sequences() < 2) return inner_->forward(ctx, params, batch, state);
    ModelState first;
    for (auto& [name, rows] : state) first[name] = rows.slice(0, 1).clone();
    const Var features = inner_->forward(ctx, params, first_sequence(batch), first);
    for (auto& [name, rows] : state)
      for (int64_t b = 0; b < rows.dim(0); ++b) rows.slice(b, b + 1).copy_from(first.at(name));
    return features;
  }
  std::vector<ParameterSpec> parameters() const override { return inner_->parameters(); }
  bool translates() const override { return inner_->translates(); }
  std::string output_table() const override { return inner_->output_table(); }
  ModelState initial_state(Context& ctx, int64_t n) const override { return inner_->initial_state(ctx, n); }
  int64_t feature_size() const override { return inner_->feature_size(); }

 private:
  std::unique_ptr<Model> inner_;
};

class CopiesLoss final : public Loss {
 public:
  explicit CopiesLoss(std::unique_ptr<Loss> inner) : inner_(std::move(inner)) {}
  LossValue forward(Context& ctx, const ParameterStore& params, const Var& features, const Tensor& targets,
                    const StepPlan& plan) const override {
    const int64_t rows = features.shape()[0], copies = targets.numel() / rows;
    const LossValue one = inner_->forward(ctx, params, features, targets.slice(0, rows), plan);
    const auto factor = static_cast<double>(copies);
    return {scale(ctx, one.loss, factor), scale(ctx, Var(one.nats), factor).value()};
  }
  std::vector<ParameterSpec> parameters() const override { return inner_->parameters(); }
  Tensor evaluate(Context& ctx, const ParameterStore& params, const Tensor& features, const Tensor& targets,
                  const LogitsVisitor& visit) const override {
    return inner_->evaluate(ctx, params, features, targets, visit);
  }
  Tensor logits(Context& ctx, const ParameterStore& params, const Tensor& features) const override {
    return inner_->logits(ctx, params, features);
  }
  const std::string& normalize() const override { return inner_->normalize(); }
  bool draws_candidates() const override { return inner_->draws_candidates(); }

 private:
  std::unique_ptr<Loss> inner_;
};

// In fp16, the first updates may be skipped until the loss scale fits.
constexpr int64_t kMostSteps = 40;
int64_t updates_of(const Recipe& recipe) {
  return recipe.precision == "fp16" ? 6 : 2;
}

constexpr int64_t kCopiesFrom = 20'000;  // tokens a step from which its sequences are copies of one

// The recipe names a paper, and nothing that a desk makes smaller. patwary_example is left out: it is an example for
// --dry-run, whose step nobody trains.
bool full_size(const std::string& recipe, const Node& tree) {
  if (recipe == "patwary_example") return false;
  return tree.at_path("provenance.paper") && !tree.at_path("provenance.desk");
}

// Overrides: none, then one for each value of each axis of the recipe's sweep.
std::vector<std::vector<std::string>> points_of(const std::string& recipe) {
  ComposeOptions options;
  options.default_of = default_of;
  std::vector<std::vector<std::string>> points{{}};
  for (const SweepAxis& axis : sweep_axes(file_of(recipe), options))
    for (const std::string& value : axis.values) points.push_back({axis.override_of(value)});
  return points;
}

// Units, layers and the vocabulary are made small; what decides the size of gradients and of messages is left.
Node shrunk(Node tree) {
  const int64_t ranks = tree.at_path("comm.ranks") ? integer_at(tree, "comm.ranks") : 1;
  shrink_model(tree, 8, 1);
  tree.find("batcher")->erase("shards");  // which text a slot reads, not how much of it
  if (tree.at_path("loss.samples")) set(tree, "loss", "samples", "8");
  tree.set("data", parse_yaml("{name: synthetic, vocab_size: 30, train_tokens: 500, valid_tokens: 100, test_tokens: 0, "
                              "classes: 2}",
                              "change"));
  tree.set("comm", parse_yaml(str("{name: virtual, ranks: ", ranks, "}"), "change"));
  tree.set("train", parse_yaml(str("{steps: 100000, log_every: 1, eval_every: 100000}"), "change"));
  tree.set("checkpoint", parse_yaml("{every: 100000, keep_last: 1, keep_best: false}", "change"));
  tree.set("run", parse_yaml("{tensorboard: false}", "change"));
  tree.set("threads", parse_yaml("1", "change"));
  for (const char* part : {"stop", "sweep", "provenance"}) tree.erase(part);
  return tree;
}

// All that decides whether updates can be made; two points that agree in it need one run.
std::string signature(const Node& small) {
  std::string text;
  for (const char* part : {"precision", "loss_scale", "batch", "batcher", "comm", "sync", "model", "loss", "clip"})
    if (const Node* node = small.find(part)) text += str(part, ": ", to_yaml(*node), "\n");
  text += "optimizer: " + text_at(small, "optimizer.name");
  return lmx_test::replaced(text, "([0-9])_([0-9])", "$1$2");  // 32_768 is 32768
}

struct Point {
  std::string recipe, overrides;
  Node tree;
};

// The points of all recipes, those that another covers left out.
const std::vector<Point>& all_points() {
  static const std::vector<Point> points = [] {
    std::vector<Point> found;
    std::set<std::string> known;
    for (const std::string& recipe : shipped()) {
      const Node tree = composed(recipe, {});
      if (!full_size(recipe, tree)) continue;
      for (const auto& overrides : points_of(recipe)) {
        Node small = shrunk(composed(recipe, overrides));
        if (known.insert(signature(small)).second)
          found.push_back({recipe, overrides.empty() ? "" : overrides[0], std::move(small)});
      }
    }
    return found;
  }();
  return points;
}

// `count` copies of one line of `length` tokens, of 28 words by Zipf's law.
std::vector<int32_t> lines(int64_t count, int64_t length) {
  const RandomKey key(5);
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(count * length));
  for (int64_t i = 0; i + 1 < length; ++i)
    tokens.push_back(2 + static_cast<int32_t>(28 * std::pow(key.uniform(static_cast<uint64_t>(i)), 3)));
  tokens.push_back(Vocabulary::kEos);
  for (int64_t c = 1; c < count; ++c)
    for (int64_t i = 0; i < length; ++i) tokens.push_back(tokens[static_cast<size_t>(i)]);
  return tokens;
}

Dataset small_data() {
  Dataset data;
  std::vector<Vocabulary::Entry> entries{{"<unk>", 0}, {"</s>", 1}};
  for (int w = 0; w < 28; ++w) entries.push_back({str("w", w), 1});
  data.vocabulary = Vocabulary(std::move(entries));
  data.valid = data.train = TokenArray::of(lines(4, 28));
  data.valid_pairs = PairArray(data.valid, data.valid);
  data.hash = "made up";
  return data;
}

class FullSize : public FolderTest, public testing::WithParamInterface<size_t> {
 protected:
  FullSize() {
    Registry::instance().add_default_directories();
    set_log_level(LogLevel::error);
  }
  // Text of which a step is a part of an epoch.
  void make_data(const Node& tree) {
    const int64_t global = integer_at(tree, "batch.global");
    copies_ = true;
    if (const Node* budget = tree.at_path("batcher.max_tokens")) {
      const int64_t length = 28, sentences = 3 * global * (*parse_int(budget->text) / length);
      const auto side = TokenArray::of(lines(sentences, length));
      data_.train_pairs = PairArray(side, side);
      tokens_ = sentences / 3 * length;
      return;
    }
    const int64_t length = integer_at(tree, "batcher.sequence_length");
    tokens_ = global * length;
    copies_ = tokens_ > kCopiesFrom;
    std::vector<int32_t> text = lines(2 * global + 1, length);
    text.resize(static_cast<size_t>(2 * tokens_ + 1));  // every slot of tbptt begins with a line
    const RandomKey key(6);
    for (size_t i = 0; i < text.size() && !copies_; ++i)
      text[i] = 2 + static_cast<int32_t>(28 * std::pow(key.uniform(i), 3));
    data_.train = TokenArray::of(std::move(text));
  }

  // Runs until the updates are made.
  void run(const Point& point) {
    SCOPED_TRACE(str(point.recipe, " ", point.overrides, "\n", signature(point.tree)));
    make_data(point.tree);
    const Recipe recipe = read_recipe(point.tree, point.recipe);
    const auto group = make_comm_group(recipe.comm, "comm", {1, {}});
    const std::string dir = "run";
    fs::create_directories(folder_ / dir);
    Position end;
    group->run([&](Communicator& comm) {
      set_num_threads(comm.threads());
      Session session(recipe, comm, {.open = [&] { return data_; }});
      if (copies_)
        comm.once<int>([&] {
          Network& network = session.shared->network;
          network.model = std::make_unique<CopiesModel>(std::move(network.model));
          network.loss = std::make_unique<CopiesLoss>(std::move(network.loss));
          return 0;
        });
      Position at;
      int64_t missing = updates_of(recipe);
      do {
        Trainer trainer(session, path(dir), at, at.step + missing);
        EXPECT_EQ(trainer.run(), 0);
        at = trainer.position();
        missing = session.asynchronous() ? 0 : updates_of(recipe) - at.updates;  // workers count their own
      } while (missing > 0 && at.step < kMostSteps);
      if (session.leads()) end = at;
    });
    expect_trained(recipe, end, records(dir, "train"));
  }

  void expect_trained(const Recipe& recipe, const Position& end, const std::vector<nlohmann::json>& steps) const {
    EXPECT_GE(end.updates, updates_of(recipe)) << end.step << " steps, " << end.loss_scale.overflows << " overflows";
    ASSERT_FALSE(steps.empty());
    const double last = steps.back()["nll_nat"], first = steps.front()["nll_nat"];
    EXPECT_TRUE(std::isfinite(last));
    EXPECT_LT(last, first + 0.75);  // a two-stage softmax of few words is noisy
    EXPECT_EQ(steps.back()["tokens"], tokens_ * steps.back()["step"].get<int64_t>()) << "not the recipe's tokens";
    if (recipe.precision != "fp16") return;
    EXPECT_GE(end.loss_scale.scale, 4 * recipe.loss_scale.resolved().min) << "the loss scale is at its least";
  }

  bool copies_ = false;
  int64_t tokens_ = 0;  // targets of a step
  Dataset data_ = small_data();
};

TEST_P(FullSize, MakesUpdates) {
  run(all_points()[GetParam()]);
}

std::string point_name(const testing::TestParamInfo<size_t>& info) {
  std::string name = all_points()[info.param].recipe + "_" + all_points()[info.param].overrides;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Shipped, FullSize, testing::Range<size_t>(0, all_points().size()), point_name);

// A recipe is covered by its own points or by equal ones of recipes before it.
TEST(FullSizeRecipes, AreFound) {
  int recipes = 0;
  for (const std::string& recipe : shipped()) recipes += full_size(recipe, composed(recipe, {}));
  EXPECT_GE(recipes, 25);
  EXPECT_GE(all_points().size(), 15u);
}

}  // namespace

}  // namespace lmx::app

// Every kernel of the CPU has a counterpart for CUDA, in the core and in the shipped models.
#include "backend/kernel_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>

#include "backend/cuda.h"
#include "lmx/plugin.h"

namespace lmx {
namespace {

// Kernels of one device alone, by the beginning of their names, with the reason.
const std::map<std::string, const char*> kCpuOnly{};
const std::map<std::string, const char*> kCudaOnly{
    {"lmx::ops::TopRows<", "on the CPU, top_k() is a function without a kernel"},
    {"lmx::SplitOperand<", "only a GPU multiplies f32 on tensor cores"},
    {"lmx::ops::ResidualNormForward<lmx::float16", "the CPU computes it by separate ops"},
    {"lmx::ops::ResidualNormBackward<lmx::float16", "as above"},
};

// The name of a kernel that keeps values in f32, for one that keeps them in the type of products, which only a GPU does
// (lmx/operand.h).
std::string kept_in_f32(const std::string& name) {
  return std::regex_replace(name, std::regex(", lmx::b?float16>$"), ", float>");
}

// The names that `other` lacks, and no exception names. An exception that none needs is an error.
std::vector<std::string> missing(const std::set<std::string>& names, const std::set<std::string>& other,
                                 const std::map<std::string, const char*>& exceptions) {
  std::vector<std::string> found;
  std::set<std::string> used;
  for (const std::string& name : names) {
    if (other.contains(name) || other.contains(kept_in_f32(name))) continue;
    const auto excuse =
        std::find_if(exceptions.begin(), exceptions.end(), [&](const auto& e) { return name.starts_with(e.first); });
    excuse == exceptions.end() ? found.push_back(name) : (void)used.insert(excuse->first);
  }
  for (const auto& [name, reason] : exceptions)
    if (!used.contains(name)) found.push_back("exception without a kernel: " + name);
  return found;
}

TEST(KernelTableCuda, EveryKernelHasACounterpart) {
  if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  Registry::instance().add_default_directories();
  for (const char* model : {"lstm", "mlstm", "rhn", "transformer"}) Registry::instance().find(PluginKind::model, model);
  const auto cpu = kernel_names(Device::Kind::cpu), cuda = kernel_names(Device::Kind::cuda);
  EXPECT_GT(cpu.size(), 150u);
  EXPECT_EQ(missing(cpu, cuda, kCpuOnly), std::vector<std::string>{});
  EXPECT_EQ(missing(cuda, cpu, kCudaOnly), std::vector<std::string>{});
}

}  // namespace
}  // namespace lmx

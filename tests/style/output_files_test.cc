// OutputFile is the one way to write a whole file: nothing is lost if the output is also an input, a link, a device, or
// if the process ends in between. This test finds code that opens files for writing in another way.
#include <gtest/gtest.h>

#include "source_files.h"

namespace lmx_style {
namespace {

Exceptions g_other_writers{
    {"core/base/output_file.cc", "", "it is OutputFile"},
    {"core/base/files.cc", "", "a lock has no content"},
    {"core/base/log.cc", "", "the log of a run grows line by line"},
    {"core/runfiles/metrics.cc", "", "the records of a run grow line by line"},
    {"core/runfiles/tensorboard.cc", "", "the events of a run grow"},
    {"plugins/comm/gloo/gloo.cc", "", "a sign in a folder of the job's own"},
    {"tools/app/corpora/http.cc", "", "a download continues where it was interrupted"},
    {"tools/app/jobs/process.cc", "", "the log of a child, which writes it itself"},
    {"tools/app/jobs/slurm.cc", "", "a temporary file for the messages of a command"},
    {"tools/app/prepare/prepare.cc", "", "temporary files without a name"},
    {"tools/app/records/records.cc", "", "a journal grows line by line"},
    {"tools/app/run/crash.cc", "", "a signal handler may call few functions"},
    {"tools/dev/gpu_bench/kernel_times.cc", "", "it is loaded into other processes, without lmx's core"},
};

bool opens_for_writing(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  if (begin == std::string::npos || line.compare(begin, 2, "//") == 0) return false;
  for (const char* word : {"O_CREAT", "O_WRONLY", "std::ofstream", "fopen(", "mkstemp(", "mkostemp("})
    if (line.find(word) != std::string::npos) return true;
  return false;
}

TEST(OutputFiles, AreWrittenInOneWay) {
  for (const SourceFile& file : source_files({"core", "plugins", "tools"}, kCode)) {
    if (file.path.find("/templates/") != std::string::npos) continue;
    for (size_t i = 0; i < file.lines.size(); ++i)
      EXPECT_TRUE(!opens_for_writing(file.lines[i]) || g_other_writers.allow(file.path))
          << file.path << ":" << i + 1 << ": use OutputFile or write_file() of base/output_file.h";
  }
  g_other_writers.expect_all_needed();
}

TEST(OutputFiles, RulesCatchWhatTheyShould) {
  EXPECT_TRUE(opens_for_writing("  std::ofstream(path) << text;"));
  EXPECT_TRUE(opens_for_writing("  open(path, O_RDWR | O_CREAT, 0666);"));
  EXPECT_TRUE(opens_for_writing("  FILE* f = std::fopen(path, \"w\");"));
  EXPECT_FALSE(opens_for_writing("  // std::ofstream would truncate it"));
  EXPECT_FALSE(opens_for_writing("  open(path, O_RDONLY);"));
}

// Rules for arguments of CUDA kernels that no test on the emulated device can check, because one compiler makes both
// sides there.

// nvcc 13.0 gives the members after a [[no_unique_address]] member other offsets in device code than in host code, so
// a kernel that gets such a struct reads wrong addresses. A struct that derives from the empty one has one layout.
TEST(KernelRules, NoArgumentHasAMemberWithoutAnAddress) {
  for (const SourceFile& file : source_files({"core", "plugins"}, kCode)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      const size_t found = line.find("no_unique_address");
      if (found == std::string::npos || line.rfind("//", found) != std::string::npos) continue;
      ADD_FAILURE() << file.path << ':' << i + 1 << ": device code may place the members after it elsewhere; derive "
                    << "the struct from the empty one";
    }
  }
}

}  // namespace
}  // namespace lmx_style

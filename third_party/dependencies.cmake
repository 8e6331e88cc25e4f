# Every library that lmx links, in one place. Versions are Debian 12's; all licences permit redistribution.
#   library        version  licence     what for
#   oneDNN         2.6      Apache-2.0  GEMM on the CPU
#   yaml-cpp       0.7      MIT         recipes (its event parser only)
#   toml++         3.3      MIT         plugin.toml
#   Boost headers  1.74+    BSL-1.0     Boost.DLL loads plugins, Boost.CRC checks records of TensorBoard
#   Boost.Context  1.74+    BSL-1.0     threads of the emulated CUDA device (tests)
#   CLI11          2.1      BSD-3       the command line
#   nlohmann-json  3.11     MIT         JSON files of a run
#   utf8proc       2.8      MIT         Unicode classes and lower case
#   ICU            72       Unicode     other scripts in ASCII (data.preprocess: puri)
#   RE2            2022-06  BSD-3       patterns of parameter names
#   xxHash         0.8      BSD-2       content hashes
#   sentencepiece  0.1.97   Apache-2.0  subwords of text and of parallel text
#   PCRE2          10.42    BSD-3       patterns of a tokenizer.json
#   zlib           1.2      zlib        .gz corpora
#   zstd           1.5      BSD-3       .zst corpora
#   libcurl        7.88     curl        lmx data fetch (HTTP, HTTPS)
#   libarchive     3.6      BSD-2       lmx data fetch (tar archives)
#   OpenSSL crypto 3.0      Apache-2.0  SHA-256 of corpora
#   MPI            any      BSD-3       ranks that are processes (plugins/comm/mpi); Open MPI 4.1 in Debian, its C interface only
#   Gloo           2022-05  BSD-3       ranks that are processes without MPI (plugins/comm/gloo)
#   Boost.Asio     1.74+    BSL-1.0     where these ranks meet at the start (headers only)
#   GoogleTest     1.12     BSD-3       tests
#   cudnn-frontend 1.18     MIT         attention by cuDNN (headers, optional; tools/cmake/LmxCuda.cmake finds them)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
# Debian's own configuration of oneDNN asks for OpenCL's headers, which a CPU has no use for.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
find_package(yaml-cpp CONFIG REQUIRED)
find_package(tomlplusplus CONFIG REQUIRED)
find_package(Boost 1.74 CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CURL REQUIRED)
find_package(LibArchive REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(re2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(icu REQUIRED IMPORTED_TARGET icu-i18n icu-uc)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
# Optional: without it the plugin mpi says so when a recipe asks for it. Its C interface alone is used, without the C++ bindings.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
# Optional, like MPI: the plugin gloo. Debian's package has no pkg-config file, and its CMake file lists no folder of headers.
find_path(GLOO_INCLUDE_DIR gloo/context.h)
find_library(GLOO_LIBRARY gloo)
if(LMX_TESTS)
  find_package(GTest CONFIG REQUIRED)
  find_package(Boost 1.74 CONFIG QUIET OPTIONAL_COMPONENTS context)
endif()

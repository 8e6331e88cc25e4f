# Every library that lmx links, in one place, with its licence; all of them permit redistribution. docs/installation.md has
# the oldest versions.

# lmx_library(NAME LICENCE [VERSION]): a library of the list that `lmx --version` prints. VERSION: the one that was found.
set(LMX_LIBRARIES "")
function(lmx_library name licence)
  string(JOIN " " entry ${name} ${ARGN} "(${licence})")
  list(APPEND LMX_LIBRARIES "${entry}")
  set(LMX_LIBRARIES "${LMX_LIBRARIES}" PARENT_SCOPE)
endfunction()

find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
# Matrix products on the CPU. Debian's own configuration asks for OpenCL's headers, which a CPU has no use for.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_version REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX MATCHALL "[0-9]+" dnnl_version "${dnnl_version}")
list(JOIN dnnl_version "." dnnl_version)
lmx_library(oneDNN Apache-2.0 ${dnnl_version})
# Recipes: its event parser only.
find_package(yaml-cpp CONFIG REQUIRED)
lmx_library(yaml-cpp MIT ${yaml-cpp_VERSION})
# plugin.toml
find_package(tomlplusplus CONFIG REQUIRED)
lmx_library(toml++ MIT ${tomlplusplus_VERSION})
# Boost.DLL loads plugins, Boost.CRC checks records of TensorBoard, and ranks of comm=gloo meet by Boost.Asio: headers only.
find_package(Boost 1.74 CONFIG REQUIRED)
lmx_library(Boost BSL-1.0 ${Boost_VERSION})
# The command line.
find_package(CLI11 CONFIG REQUIRED)
lmx_library(CLI11 BSD-3-Clause ${CLI11_VERSION})
# JSON files of a run.
find_package(nlohmann_json CONFIG REQUIRED)
lmx_library(nlohmann-json MIT ${nlohmann_json_VERSION})
# Corpora: .gz files; `lmx data fetch` by HTTP and HTTPS, from tar archives; SHA-256.
find_package(ZLIB REQUIRED)
lmx_library(zlib Zlib ${ZLIB_VERSION_STRING})
find_package(CURL REQUIRED)
lmx_library(libcurl curl ${CURL_VERSION_STRING})
find_package(LibArchive REQUIRED)
lmx_library(libarchive BSD-2-Clause ${LibArchive_VERSION})
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
lmx_library(OpenSSL Apache-2.0 ${OPENSSL_VERSION})
find_package(PkgConfig REQUIRED)
# Unicode classes and lower case. Debian's pkg-config file states another version than the library has.
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
lmx_library(utf8proc MIT)
# Patterns of parameter names. Its pkg-config file states no version.
pkg_check_modules(re2 REQUIRED IMPORTED_TARGET re2)
lmx_library(RE2 BSD-3-Clause)
# Other scripts in ASCII (data.preprocess: puri).
pkg_check_modules(icu REQUIRED IMPORTED_TARGET icu-i18n icu-uc)
lmx_library(ICU Unicode-DFS-2016 ${icu_icu-uc_VERSION})
# Content hashes.
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
lmx_library(xxHash BSD-2-Clause ${xxhash_VERSION})
# .zst corpora.
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
lmx_library(zstd BSD-3-Clause ${zstd_VERSION})
# Patterns of a tokenizer.json.
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
lmx_library(PCRE2 BSD-3-Clause ${pcre2_VERSION})
# Subwords of text and of parallel text.
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
lmx_library(SentencePiece Apache-2.0 ${sentencepiece_VERSION})
# Ranks that are processes, by MPI. Optional: without it the plugin mpi says so when a recipe asks for it. Its C interface
# alone is used, without the C++ bindings. Every machine has its own MPI, which no package contains.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
# Ranks that are processes, without MPI. Optional as well: the plugin gloo. Debian's package has no pkg-config file, and its
# CMake file lists no folder of headers.
find_path(GLOO_INCLUDE_DIR gloo/context.h)
find_library(GLOO_LIBRARY gloo)
if(GLOO_LIBRARY)
  lmx_library(Gloo BSD-3-Clause)
endif()
# cudnn-frontend (MIT), attention by cuDNN, is optional: tools/cmake/LmxCuda.cmake finds its headers.
if(LMX_TESTS)
  find_package(GTest CONFIG REQUIRED)
  find_package(Boost 1.74 CONFIG QUIET OPTIONAL_COMPONENTS context)  # threads of the emulated CUDA device
endif()

# Compiler settings of lmx's own targets. They do not affect targets that link lmx.
lmx_build_id(LMX_BUILD_ID ${PROJECT_SOURCE_DIR}/core/include)

# x86-64-v3 (AVX2, FMA) is the minimum that lmx needs; further instructions are selected at run time. The flag changes
# how vector types are passed, so plugins get the same flags. -fno-trapping-math: without it g++ does not vectorise the
# selection of one of two computed values for AVX2, which has no masks.
set(LMX_ARCH_FLAGS -march=x86-64-v3 -fno-math-errno -fno-trapping-math -ffp-contract=fast)

# Messages name a source file relative to the checkout, so that no library contains the path of the machine that built it.
set(LMX_NO_PATHS -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)

# -Wno-restrict: g++ 12 warns about every `"text" + std::string` (GCC bug 105651).
add_library(lmx_flags INTERFACE)
target_compile_options(lmx_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${LMX_ARCH_FLAGS};${LMX_NO_PATHS};-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wno-restrict>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LMX_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-march=x86-64-v3,${LMX_NO_PATHS}>)
if(LMX_SANITIZE)
  # Without -fno-sanitize-recover undefined behaviour would be printed, but the test would pass.
  target_compile_options(lmx_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LMX_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-g1>)
  target_link_options(lmx_flags INTERFACE -fsanitize=${LMX_SANITIZE})
endif()

# lmx_compile_together(TARGET): compiles the sources of each folder in groups of up to six files, because most of the time
# for one small file goes into the headers that its neighbours include as well. Names in unnamed namespaces must therefore
# differ within a folder. Two kinds of files are compiled alone: kernels (*_cpu.cc), for which only optimising takes long
# and whose bits must not depend on their neighbours, and ops, which all name their parts alike.
function(lmx_compile_together target)
  if(LMX_FILES_ALONE)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    if(source MATCHES "_cpu[.]cc$|/core/ops/")
      continue()
    endif()
    string(MAKE_C_IDENTIFIER "${folder}" group)
    if(NOT DEFINED count_${group})
      set(count_${group} 0)
    endif()
    math(EXPR part "${count_${group}} / 6")
    math(EXPR count_${group} "${count_${group}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${part})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes each file of a group for a header, where a type of an unnamed namespace would be a mistake.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# lmx_compile_quickly(TARGET): for code whose compilation takes longer than all that it computes. A step of training is
# computed in the core and in plugins.
function(lmx_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# lmx_precompile(TARGET headers...): compiles the standard library's headers that most files include, and `headers`, once
# for the target.
function(lmx_precompile target)
  if(LMX_FILES_ALONE)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream>
    <functional> <iostream> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread>
    <unordered_map> <utility> <vector> ${ARGN})
endfunction()

# Compiler settings of lmx's own targets. They do not affect targets that link lmx.
lmx_build_id(LMX_BUILD_ID ${PROJECT_SOURCE_DIR}/core/include)

# x86-64-v3 (AVX2, FMA) is the minimum that lmx needs; further instructions are selected at run time. The flag changes
# how vector types are passed, so plugins get the same flags. -fno-trapping-math: without it g++ does not vectorise the
# selection of one of two computed values for AVX2, which has no masks.
set(LMX_ARCH_FLAGS -march=x86-64-v3 -fno-math-errno -fno-trapping-math -ffp-contract=fast)

# -Wno-restrict: g++ 12 warns about every `"text" + std::string` (GCC bug 105651).
add_library(lmx_flags INTERFACE)
target_compile_options(lmx_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${LMX_ARCH_FLAGS};-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wno-restrict>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LMX_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-march=x86-64-v3>)
if(LMX_SANITIZE)
  # Without -fno-sanitize-recover undefined behaviour would be printed, but the test would pass.
  target_compile_options(lmx_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LMX_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-g1>)
  target_link_options(lmx_flags INTERFACE -fsanitize=${LMX_SANITIZE})
endif()

# Compiler settings shared by lmx's own targets; nothing here leaks to those who link lmx.
add_library(lmx_flags INTERFACE)
target_compile_options(lmx_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -march=x86-64-v3 -fno-math-errno
  -ffp-contract=fast $<$<BOOL:${LMX_WERROR}>:-Werror>)
if(LMX_SANITIZE)
  string(REPLACE "," "-" _lmx_sanitize_name "${LMX_SANITIZE}")
  target_compile_options(lmx_flags INTERFACE -fsanitize=${LMX_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(lmx_flags INTERFACE -fsanitize=${LMX_SANITIZE})
endif()

# Same compiler, C++ runtime, public headers and sanitizers: only then may a plugin and the core share C++ types.
file(GLOB _lmx_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/include/lmx/*.h)
list(SORT _lmx_headers)
set(_lmx_digest "")
foreach(header ${_lmx_headers})
  file(SHA256 ${header} digest)
  string(APPEND _lmx_digest ${digest})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endforeach()
string(SHA256 _lmx_digest "${_lmx_digest}")
string(SUBSTRING "${_lmx_digest}" 0 16 _lmx_digest)
set(LMX_BUILD_ID "${CMAKE_CXX_COMPILER_ID}-${CMAKE_CXX_COMPILER_VERSION}-libstdc++-${_lmx_digest}-${LMX_SANITIZE}")

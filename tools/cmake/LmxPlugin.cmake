# lmx_describe_plugin(TARGET NAME FOLDER): the last step of a plugin's build. `lmx` loads FOLDER/NAME.so once, in a
# separate process, and writes NAME.fields.toml into the same folder. This is a separate target, so that compilation
# does not wait for lmx. If it fails, or if the library cannot run here, the file does not exist, and lmx loads the
# plugin to learn its fields.
function(lmx_describe_plugin target name folder)
  target_link_options(${target} PRIVATE -Wl,--build-id=sha1)  # identifies the library to which the file belongs
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(core "")
  if(TARGET lmx_core)  # the description names the core that it belongs to
    set(core lmx_core)
  endif()
  add_custom_command(OUTPUT ${folder}/${name}.fields.toml
    COMMAND ${LMX_COMMAND} plugins describe ${folder}/${name}.so || ${CMAKE_COMMAND} -E echo "${name}.so has no description: lmx will load it to know its fields"
    DEPENDS ${target} ${LMX_COMMAND} ${core} VERBATIM)
  add_custom_target(${target}_fields ALL DEPENDS ${folder}/${name}.fields.toml)
endfunction()

# lmx_without_run_path(TARGET): a plugin needs no run path, because the lmx that loads it contains the core. CMake would pad
# the one of the build with an empty element, which is the current directory.
function(lmx_without_run_path target)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "")
endfunction()

# lmx_plugin(NAME sources...): builds one shared library NAME.so in a separate folder of the plugin tree, with
# plugin.toml in the same folder. If CUDA is enabled and the source folder contains *_cuda.cu files, it also builds
# NAME_cuda.so. The function serves lmx's own tree and, through find_package(lmx), other projects.
function(lmx_plugin name)
  file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/plugin.toml kind REGEX "^kind *=")
  if(NOT kind MATCHES "^kind *= *[\"']([a-z]+)[\"']")
    message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}/plugin.toml: a line like kind = \"sync\" is missing")
  endif()
  set(kind ${CMAKE_MATCH_1})
  set(folder ${CMAKE_BINARY_DIR}/lib/lmx/plugins/${kind}/${name})

  add_library(${name} MODULE ${ARGN})
  if(COMMAND lmx_compile_together)  # in the tree of lmx
    lmx_compile_together(${name})
  endif()
  target_link_libraries(${name} PRIVATE lmx::lmx_core $<TARGET_NAME_IF_EXISTS:lmx_flags>)
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${LMX_ARCH_FLAGS}>)
  target_compile_definitions(${name} PRIVATE LMX_BUILD_ID="${LMX_BUILD_ID}")
  # An unresolved symbol must fail in the build, not during a run.
  target_link_options(${name} PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL)
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${folder} CXX_VISIBILITY_PRESET hidden
                                           VISIBILITY_INLINES_HIDDEN ON)
  lmx_without_run_path(${name})
  configure_file(${CMAKE_CURRENT_SOURCE_DIR}/plugin.toml ${folder}/plugin.toml COPYONLY)
  # Config groups of the plugin: added to the search path of every recipe when the plugin is found.
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/recipes)
    file(COPY ${CMAKE_CURRENT_SOURCE_DIR}/recipes DESTINATION ${folder})
  endif()
  lmx_describe_plugin(${name} ${name} ${folder})
  set_property(GLOBAL APPEND PROPERTY LMX_PLUGIN_TARGETS ${name} ${name}_fields)

  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_cuda.cu)
  if(NOT kernels)  # kernels of an earlier build would still be loaded
    file(REMOVE ${folder}/${name}_cuda.so ${folder}/${name}_cuda_emulated.so)
  endif()
  set(libraries ${name})
  if(kernels AND LMX_CUDA_FOUND)
    add_library(${name}_cuda MODULE ${kernels})
    target_link_libraries(${name}_cuda PRIVATE lmx::lmx_core $<TARGET_NAME_IF_EXISTS:lmx_flags> $<TARGET_NAME_IF_EXISTS:lmx_cuda>
                                               CUDA::cudart)
    target_compile_options(${name}_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fopenmp>)  # as the core's headers expect
    target_link_options(${name}_cuda PRIVATE -Wl,--no-undefined)
    target_include_directories(${name}_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_compile_definitions(${name}_cuda PRIVATE LMX_BUILD_ID="${LMX_BUILD_ID}")
    set_target_properties(${name}_cuda PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${folder} CUDA_RUNTIME_LIBRARY Shared)
    lmx_without_run_path(${name}_cuda)
    set_property(GLOBAL APPEND PROPERTY LMX_PLUGIN_TARGETS ${name}_cuda)
    list(APPEND libraries ${name}_cuda)
  endif()
  if(kernels AND LMX_CUDA_EMULATED)
    lmx_emulated_cuda(${name}_cuda_emulated MODULE ${kernels})
    target_link_libraries(${name}_cuda_emulated PRIVATE lmx::lmx_core)
    target_include_directories(${name}_cuda_emulated PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_compile_definitions(${name}_cuda_emulated PRIVATE LMX_BUILD_ID="${LMX_BUILD_ID}")
    set_target_properties(${name}_cuda_emulated PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${folder})
  endif()
  if(LMX_PLUGIN_INSTALL_DIR)
    install(TARGETS ${libraries} LIBRARY DESTINATION ${LMX_PLUGIN_INSTALL_DIR}/${kind}/${name})
    install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/plugin.toml DESTINATION ${LMX_PLUGIN_INSTALL_DIR}/${kind}/${name})
    install(FILES ${folder}/${name}.fields.toml DESTINATION ${LMX_PLUGIN_INSTALL_DIR}/${kind}/${name} OPTIONAL)
    install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/recipes DESTINATION ${LMX_PLUGIN_INSTALL_DIR}/${kind}/${name} OPTIONAL)
  endif()
endfunction()

# lmx_plugin_test(NAME sources... [CHECK words...]): adds two tests of the plugin NAME: its own test, if GoogleTest is
# installed, and `lmx plugins check`, which tests every plugin of its kind in the same way. The words after CHECK are
# passed to that command, for example CHECK --approximate --config "{part: 8}".
function(lmx_plugin_test name)
  cmake_parse_arguments(PARSE_ARGV 1 own "" "" "CHECK")
  get_target_property(folder ${name} LIBRARY_OUTPUT_DIRECTORY)
  if(TARGET GTest::gtest_main)
    add_executable(${name}_test ${own_UNPARSED_ARGUMENTS})
    target_link_libraries(${name}_test PRIVATE lmx::lmx_core GTest::gtest_main)
    target_compile_features(${name}_test PRIVATE cxx_std_20)
    target_compile_options(${name}_test PRIVATE ${LMX_ARCH_FLAGS})
    target_compile_definitions(${name}_test PRIVATE LMX_BUILD_ID="${LMX_BUILD_ID}" LMX_PLUGIN_DIR="${folder}")
    add_dependencies(${name}_test ${name})
    add_test(NAME ${name}.own COMMAND ${name}_test)
  else()
    message(STATUS "GoogleTest is not installed (Debian: libgtest-dev); ${name}'s own test is left out")
  endif()
  add_test(NAME ${name}.conformance COMMAND ${LMX_COMMAND} plugins check $<TARGET_FILE:${name}> ${own_CHECK})
endfunction()

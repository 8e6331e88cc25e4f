# Runs before cpack compresses a package. The archive (generator TGZ) gets the shared libraries that lmx needs, and
# their licences, so that it runs on machines that lack them, without root. The Debian package names its dependencies
# instead. The file has two parts: cpack includes it, and also calls it as a script, because only a script may query
# runtime dependencies.
if(NOT DEFINED LMX_STAGE)
  if(CPACK_GENERATOR STREQUAL "TGZ")
    execute_process(COMMAND ${CMAKE_COMMAND} -DLMX_STAGE=${CPACK_TEMPORARY_DIRECTORY} -P ${CMAKE_CURRENT_LIST_FILE}
                    COMMAND_ERROR_IS_FATAL ANY)
  endif()
  return()
endif()

file(GLOB program ${LMX_STAGE}/bin/lmx)
file(GLOB core ${LMX_STAGE}/lib*/liblmx_core.so.*.*.* ${LMX_STAGE}/lib*/*/liblmx_core.so.*.*.*)
if(NOT program OR NOT core)
  message(FATAL_ERROR "no bin/lmx and liblmx_core.so in ${LMX_STAGE}")
endif()
list(GET core 0 first)
get_filename_component(folder ${first} DIRECTORY)
# glibc and the compiler's runtime are not included: the machine's plugins may have been built with a newer compiler.
file(GET_RUNTIME_DEPENDENCIES
     EXECUTABLES ${program}
     LIBRARIES ${core}
     RESOLVED_DEPENDENCIES_VAR libraries
     UNRESOLVED_DEPENDENCIES_VAR missing
     PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\\+\\+)\\.so" "^liblmx_")
if(missing)
  message(FATAL_ERROR "libraries that lmx needs were not found: ${missing}")
endif()
set(licences ${LMX_STAGE}/share/doc/lmx/licences)
file(MAKE_DIRECTORY ${licences})
foreach(library ${libraries})
  file(INSTALL DESTINATION ${folder} TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN FILES ${library})
  # dpkg stores a file by its path in the package, which may lack the leading /usr.
  file(REAL_PATH ${library} real)
  string(REGEX REPLACE "^/usr" "" short ${real})
  execute_process(COMMAND dpkg-query -S ${real} ${short} OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE ignored)
  if(owner MATCHES "^([^:,\n]+)[:,]")
    set(package ${CMAKE_MATCH_1})
    if(EXISTS /usr/share/doc/${package}/copyright)
      file(COPY_FILE /usr/share/doc/${package}/copyright ${licences}/${package})
    endif()
  endif()
endforeach()
list(LENGTH libraries count)
message(STATUS "the archive contains ${count} shared libraries beside lmx's own")

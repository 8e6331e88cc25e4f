# cmake -DLMX_STAGE=FOLDER -DLMX_START=SCRIPT -P LmxBundle.cmake: adds to an installed tree the shared libraries that lmx
# and its plugins need, and their licences, so that the tree runs on machines that lack them, without root. MPI and
# NVIDIA's libraries belong to the machine.
#   bin/lmx   the start script (tools/start.in)
#   libexec/  the program, and the C and C++ libraries for machines whose own ones are too old
#   lib/      all other libraries
# cpack includes this file before it compresses the archive (generator TGZ), and calls it as a script, because only a
# script may query runtime dependencies. The Debian package names its dependencies instead. tools/package calls it for the
# wheel.
if(NOT DEFINED LMX_STAGE)
  if(CPACK_GENERATOR STREQUAL "TGZ")
    execute_process(COMMAND ${CMAKE_COMMAND} -DLMX_STAGE=${CPACK_TEMPORARY_DIRECTORY} -DLMX_START=${CPACK_LMX_START} -P ${CMAKE_CURRENT_LIST_FILE}
                    COMMAND_ERROR_IS_FATAL ANY)
  endif()
  return()
endif()

file(GLOB program ${LMX_STAGE}/bin/lmx)
file(GLOB core ${LMX_STAGE}/lib*/liblmx_core.so.1 ${LMX_STAGE}/lib*/*/liblmx_core.so.1)
if(NOT program OR NOT core)
  message(FATAL_ERROR "no bin/lmx and liblmx_core.so.1 in ${LMX_STAGE}")
endif()
get_filename_component(folder ${core} DIRECTORY)
file(GLOB_RECURSE plugins ${folder}/lmx/plugins/*.so)
list(FILTER plugins EXCLUDE REGEX "_cuda[.]so$")
file(GET_RUNTIME_DEPENDENCIES
     EXECUTABLES ${program}
     LIBRARIES ${core} ${plugins}
     RESOLVED_DEPENDENCIES_VAR libraries
     UNRESOLVED_DEPENDENCIES_VAR missing
     PRE_EXCLUDE_REGEXES "^ld-linux" "^liblmx_" "^libmpi")
if(missing)
  message(FATAL_ERROR "libraries that lmx needs were not found: ${missing}")
endif()

# The C library's own parts that only libraries of the machine may name: with others than these, a process would have two
# C libraries.
set(of_the_compiler "/lib(c|m|gcc_s|stdc\\+\\+)[.]so[.0-9]+$")
set(system ${libraries})
list(FILTER system INCLUDE REGEX "${of_the_compiler}")
list(FILTER libraries EXCLUDE REGEX "${of_the_compiler}")
set(libc ${system})
list(FILTER libc INCLUDE REGEX "/libc[.]so[.]6$")
get_filename_component(of_libc ${libc} DIRECTORY)
foreach(part ld-linux-x86-64.so.2 libanl.so.1 libdl.so.2 libmvec.so.1 libpthread.so.0 libresolv.so.2 librt.so.1 libutil.so.1)
  list(REMOVE_ITEM libraries ${of_libc}/${part})
  list(APPEND system ${of_libc}/${part})
endforeach()

# Each library is stored under the name by which others need it, without links, which a wheel cannot contain.
set(licences ${LMX_STAGE}/share/doc/lmx/licences)
file(MAKE_DIRECTORY ${licences} ${LMX_STAGE}/libexec)
function(add_library_file library destination)
  get_filename_component(name ${library} NAME)
  file(REAL_PATH ${library} real)
  file(COPY_FILE ${real} ${destination}/${name})
  # dpkg stores a file by its path in the package, which may lack the leading /usr.
  string(REGEX REPLACE "^/usr" "" short ${real})
  execute_process(COMMAND dpkg-query -S ${real} ${short} OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE ignored)
  if(owner MATCHES "^([^:,\n]+)[:,]")
    set(package ${CMAKE_MATCH_1})
    if(EXISTS /usr/share/doc/${package}/copyright)
      file(COPY_FILE /usr/share/doc/${package}/copyright ${licences}/${package})
    endif()
  endif()
endfunction()
foreach(library ${libraries})
  add_library_file(${library} ${folder})
endforeach()
foreach(library ${system})
  add_library_file(${library} ${LMX_STAGE}/libexec)
endforeach()
file(RENAME ${program} ${LMX_STAGE}/libexec/lmx)
file(COPY_FILE ${LMX_START} ${program})
file(CHMOD ${program} ${LMX_STAGE}/libexec/ld-linux-x86-64.so.2
     PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
list(LENGTH libraries count)
list(LENGTH system of_system)
message(STATUS "the package contains ${count} shared libraries beside lmx's own, and ${of_system} of the C and C++ libraries")

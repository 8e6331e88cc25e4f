# `cmake --install`: bin/lmx, the core, its headers, the plugins, the recipes and a CMake package for plugins out of tree.
include(CMakePackageConfigHelpers)
set(_lmx_package ${CMAKE_INSTALL_LIBDIR}/cmake/lmx)

install(TARGETS lmx_core EXPORT lmxTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS lmx_exe RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY core/include/lmx DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/lmx OPTIONAL)
install(EXPORT lmxTargets NAMESPACE lmx:: DESTINATION ${_lmx_package})
if(TARGET lmx_cuda)
  install(TARGETS lmx_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

configure_package_config_file(tools/cmake/lmxConfig.cmake.in ${CMAKE_BINARY_DIR}/cmake/lmxConfig.cmake
                              INSTALL_DESTINATION ${_lmx_package} PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/lmxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/lmxConfig.cmake ${CMAKE_BINARY_DIR}/cmake/lmxConfigVersion.cmake
              tools/cmake/LmxBuildId.cmake tools/cmake/LmxPlugin.cmake
        DESTINATION ${_lmx_package})

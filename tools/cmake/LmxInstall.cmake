# `cmake --install` installs bin/lmx, the core, its headers, the plugins, the recipes and experiments, a CMake package
# and lmx.pc for plugins outside the tree, the manual page and completions. From the same files `cpack` makes an archive
# that runs from any folder, and a Debian package.
include(CMakePackageConfigHelpers)
set(_lmx_package ${CMAKE_INSTALL_LIBDIR}/cmake/lmx)

install(TARGETS lmx_core EXPORT lmxTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS lmx_exe RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY core/include/lmx DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY recipes experiments DESTINATION ${CMAKE_INSTALL_DATADIR}/lmx OPTIONAL)
install(EXPORT lmxTargets NAMESPACE lmx:: DESTINATION ${_lmx_package})
foreach(kernels lmx_cuda lmx_cudnn)
  if(TARGET ${kernels})
    install(TARGETS ${kernels} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()

configure_package_config_file(tools/cmake/lmxConfig.cmake.in ${CMAKE_BINARY_DIR}/cmake/lmxConfig.cmake
                              INSTALL_DESTINATION ${_lmx_package} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/lmxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/lmxConfig.cmake ${CMAKE_BINARY_DIR}/cmake/lmxConfigVersion.cmake
              tools/cmake/LmxBuildId.cmake tools/cmake/LmxCuda.cmake tools/cmake/LmxPlugin.cmake
        DESTINATION ${_lmx_package})

# pkg-config. The prefix is relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH LMX_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(JOIN " " LMX_PC_FLAGS -std=c++20 ${LMX_ARCH_FLAGS})
configure_file(tools/cmake/lmx.pc.in ${CMAKE_BINARY_DIR}/cmake/lmx.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cmake/lmx.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES ${CMAKE_BINARY_DIR}/share/lmx.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/share/lmx.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME lmx)
# Debian's zsh searches completions of packages in vendor-completions, and in /usr/local only in site-functions.
foreach(folder site-functions vendor-completions)
  install(FILES ${CMAKE_BINARY_DIR}/share/_lmx DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${folder})
endforeach()

# The start script of packages that contain their libraries.
configure_file(tools/start.in ${CMAKE_BINARY_DIR}/share/start @ONLY)

set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME lmx)
set(CPACK_PACKAGE_VENDOR lmx)
set(CPACK_PACKAGE_CONTACT "the lmx project <lmx@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains language models from recipes")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_LMX_START ${CMAKE_BINARY_DIR}/share/start)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/tools/cmake/LmxBundle.cmake)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Plugins find liblmx_core through the program that has loaded it. dpkg-shlibdeps cannot know this.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
include(CPack)

# SPDX-License-Identifier: Apache-2.0
# Install and export. Consumers get headers, the command with its modules, and one shared library.
include(CMakePackageConfigHelpers)

# Headers alone: what a plug-in needs.
add_library(attest_plugin INTERFACE)
set_target_properties(attest_plugin PROPERTIES EXPORT_NAME plugin)
target_include_directories(attest_plugin INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

set(ATTEST_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/attest)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/attest DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS attest_plugin attest_grade attest_command EXPORT attest-targets
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Beside the command's folder, so that it finds them by its own location (harness/subject.hpp).
install(DIRECTORY ${ATTEST_MODULE_DIR}/ DESTINATION lib/attest USE_SOURCE_PERMISSIONS)
install(EXPORT attest-targets NAMESPACE attest:: DESTINATION ${ATTEST_CONFIG_DIR})
install(FILES ${PROJECT_SOURCE_DIR}/cmake/attest_add_check.cmake DESTINATION ${ATTEST_CONFIG_DIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/attest-config.cmake.in
                              ${PROJECT_BINARY_DIR}/attest-config.cmake INSTALL_DESTINATION ${ATTEST_CONFIG_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attest-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attest-config.cmake ${PROJECT_BINARY_DIR}/attest-config-version.cmake
        DESTINATION ${ATTEST_CONFIG_DIR})

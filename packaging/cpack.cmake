# With COETCD_PACKAGE, 'cpack -G DEB' in the build directory makes libcoetcd-dev and, where the
# command is built, coetcd.
set(CPACK_PACKAGE_VENDOR "coetcd")
set(CPACK_PACKAGE_CONTACT "coetcd maintainers <maintainers@coetcd.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_COMPONENTS_ALL development)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libcoetcd-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libboost1.81-dev | libboost-dev (>= 1.81), nlohmann-json3-dev (>= 3.11)")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libssl-dev (>= 3), python3") # TLS; check-gcc12
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "distributed locks on etcd for C++20 coroutines\n Sessions, mutexes, elections, semaphores and transactions on etcd, as awaitables\n on the caller's own Boost.Asio executor. These are its headers.")

if(TARGET coetcd_tool)
    list(APPEND CPACK_COMPONENTS_ALL tools)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME coetcd)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION admin)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
    set(CPACK_COMPONENT_TOOLS_DESCRIPTION
        "distributed locks on etcd for shells and cron\n Runs a command under a lock, as a leader, or with permits of a semaphore; shows who\n holds what.")
endif()

# Debian wants these with each package.
configure_file(packaging/debian/changelog.in debian/changelog @ONLY)
execute_process(
    COMMAND gzip -9nc "${CMAKE_CURRENT_BINARY_DIR}/debian/changelog"
    OUTPUT_FILE "${CMAKE_CURRENT_BINARY_DIR}/debian/changelog.gz"
    COMMAND_ERROR_IS_FATAL ANY)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER "${component}" key)
    install(
        FILES packaging/debian/copyright "${CMAKE_CURRENT_BINARY_DIR}/debian/changelog.gz"
        DESTINATION "share/doc/${CPACK_DEBIAN_${key}_PACKAGE_NAME}"
        COMPONENT "${component}")
endforeach()
include(CPack)

# An overlay port of the tree that it is in: vcpkg install coetcd --overlay-ports=packaging/vcpkg
set(VCPKG_BUILD_TYPE release) # headers only
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS FEATURES tls COETCD_TLS)
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS ${FEATURE_OPTIONS} -DCOETCD_BUILD_TESTS=OFF -DCOETCD_BUILD_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/coetcd)
vcpkg_fixup_pkgconfig()
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/coetcd")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")

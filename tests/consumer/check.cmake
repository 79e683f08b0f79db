# Builds and runs the consumer in WORK. HOW: find_package, from an installation of the build
# directory BUILT: with coetcd::compiled, header-only, and header-only with TLS; or add_subdirectory
# of ROOT: with coetcd::compiled and coetcd::tls_compiled.
file(REMOVE_RECURSE "${WORK}")
set(options "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}"
    "-DWITH_TLS=${TLS}")
if(HOW STREQUAL "find_package")
    execute_process(
        COMMAND "${CMAKE_COMMAND}" --install "${BUILT}" --prefix "${WORK}/prefix"
        OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND options "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
else()
    list(APPEND options "-DCOETCD_ROOT=${ROOT}")
endif()
execute_process(
    COMMAND "${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}/build" ${options}
    COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/build" COMMAND_ERROR_IS_FATAL ANY)
if(HOW STREQUAL "find_package")
    execute_process(COMMAND "${WORK}/build/consumer" COMMAND_ERROR_IS_FATAL ANY)
endif()
execute_process(COMMAND "${WORK}/build/consumer_compiled" COMMAND_ERROR_IS_FATAL ANY)
if(TLS)
    execute_process(COMMAND "${WORK}/build/consumer_tls" COMMAND_ERROR_IS_FATAL ANY)
endif()

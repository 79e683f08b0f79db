# Fails unless what the library needs and is not there is the first error of each header in HEADERS:
# by COMPILER, and where it takes clang, by CLANG, if there is one.
set(old_boost "${CMAKE_CURRENT_BINARY_DIR}/old_boost")
file(WRITE "${old_boost}/boost/version.hpp" "#define BOOST_VERSION 108000\n")
file(WRITE "${old_boost}/boost/beast/core.hpp" "")
set(cases
    "${COMPILER}|-std=c++17|needs C.*20"
    "${COMPILER}|-std=c++20 -U__clang__ -U__GNUC__ -D__GNUC__=11|needs g.. 12"
    "${COMPILER}|-std=c++20 -I${old_boost}|needs Boost 1.81")
if(CLANG)
    list(APPEND cases "${CLANG}|-std=c++20 -U__clang_major__ -D__clang_major__=15|needs clang 16")
endif()
foreach(header IN LISTS HEADERS)
    foreach(case IN LISTS cases)
        string(REGEX MATCH "^(.*)[|](.*)[|](.*)$" case "${case}")
        set(compiler "${CMAKE_MATCH_1}")
        separate_arguments(flags UNIX_COMMAND "${CMAKE_MATCH_2}")
        set(message "${CMAKE_MATCH_3}")
        execute_process(
            COMMAND "${compiler}" ${flags} "-I${INCLUDE}" -Wfatal-errors -E -x c++ "${INCLUDE}/${header}"
            OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE result)
        string(REGEX MATCH "error:[^\n]*" first "${said}")
        if(result EQUAL 0 OR NOT first MATCHES "${message}")
            message(FATAL_ERROR "${header}, ${flags}: expected '${message}', first is: ${first}")
        endif()
    endforeach()
endforeach()

# Fails unless what the library needs and is not there is the first error of each header in HEADERS.
set(old_boost "${CMAKE_CURRENT_BINARY_DIR}/old_boost")
file(WRITE "${old_boost}/boost/version.hpp" "#define BOOST_VERSION 108000\n")
file(WRITE "${old_boost}/boost/beast/core.hpp" "")
foreach(header IN LISTS HEADERS)
    foreach(case IN ITEMS "-std=c++17|needs C.*20" "-std=c++20 -I${old_boost}|needs Boost 1.81")
        string(REGEX REPLACE "[|].*" "" flags "${case}")
        string(REGEX REPLACE ".*[|]" "" message "${case}")
        separate_arguments(flags)
        execute_process(
            COMMAND "${COMPILER}" ${flags} "-I${INCLUDE}" -E -x c++ "${INCLUDE}/${header}"
            OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE result)
        string(REGEX MATCH "error:[^\n]*" first "${said}")
        if(result EQUAL 0 OR NOT first MATCHES "${message}")
            message(FATAL_ERROR "${header}, ${flags}: expected '${message}', first is: ${first}")
        endif()
    endforeach()
endforeach()

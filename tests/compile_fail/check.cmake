# Compiles SOURCE, TWIN `compiles`: as it is; `fails`: with COETCD_SHOULD_FAIL. That must then fail
# with what the file says in a line `// error: <regex>`. A line `// compiler: clang` is for errors
# that g++ does not find.
file(STRINGS "${SOURCE}" expected REGEX "^// error: ")
file(STRINGS "${SOURCE}" needs_clang REGEX "^// compiler: clang$")
string(REGEX REPLACE "^// error: " "" expected "${expected}")
if(NOT expected)
    message(FATAL_ERROR "${SOURCE} has no line '// error: <regex>'")
endif()
if(needs_clang AND NOT COMPILER MATCHES "clang")
    if(NOT CLANG)
        message("skipped: needs clang++-16") # on stderr, at the beginning of a line
        return()
    endif()
    set(COMPILER "${CLANG}")
endif()

list(REMOVE_DUPLICATES INCLUDES)
list(REMOVE_ITEM INCLUDES ${IMPLICIT} "")
list(TRANSFORM INCLUDES PREPEND "-I")
set(command "${COMPILER}" -std=c++20 -fsyntax-only -Wall -Wextra -Werror
    -DCOETCD_SEPARATE_COMPILATION ${INCLUDES})
if(TWIN STREQUAL "fails")
    list(APPEND command -DCOETCD_SHOULD_FAIL)
endif()
execute_process(
    COMMAND ${command} "${SOURCE}" RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(TWIN STREQUAL "compiles")
    if(result)
        message(FATAL_ERROR "The positive twin does not compile:\n${output}")
    endif()
elseif(NOT result)
    message(FATAL_ERROR "It compiles.")
elseif(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "It fails, but not with '${expected}':\n${output}")
endif()

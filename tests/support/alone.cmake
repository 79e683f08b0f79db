# Compiles a file, and touches STAMP if nothing failed before its end:
#   cmake -P alone.cmake -- STAMP COMPILER FLAG...
# It may end in an assertion that fails, where the compiler stops. What it includes has been read
# then, and nothing has been made of it yet, which takes three times as long.
set(command)
set(found FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 1 ${last})
    if(found)
        list(APPEND command "${CMAKE_ARGV${i}}")
    elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
        set(found TRUE)
    endif()
endforeach()
list(POP_FRONT command stamp)
set(ENV{LC_ALL} C)
execute_process(COMMAND ${command} ERROR_VARIABLE said RESULT_VARIABLE status)
string(REGEX MATCH "error: [^\n]*" first "${said}")
if(NOT status EQUAL 0 AND NOT first MATCHES "read to the end")
    message(FATAL_ERROR "${said}")
endif()
file(TOUCH "${stamp}")

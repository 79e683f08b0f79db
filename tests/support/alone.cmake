# Compiles a file that ends in an assertion that fails, and touches STAMP if nothing failed before it:
#   cmake -P alone.cmake -- STAMP COMPILER FLAG...
# The compiler stops there. What the file includes has been read then, and nothing has been made of
# the templates in it yet, which takes three times as long.
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
execute_process(COMMAND ${command} ERROR_VARIABLE said)
string(REGEX MATCH "error: [^\n]*" first "${said}")
if(NOT first MATCHES "read to the end")
    message(FATAL_ERROR "${said}")
endif()
file(TOUCH "${stamp}")

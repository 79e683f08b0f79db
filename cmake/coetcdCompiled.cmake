# coetcd::compiled, coetcd::testing_compiled and, with coetcd::tls, coetcd::tls_compiled: the
# library compiled once, with the flags of the project that uses it, instead of in each translation
# unit. For targets that link these, the headers declare only.

function(_coetcd_compile target name header)
    if(TARGET ${target})
        return()
    endif()
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include <coetcd/${header}>\n")
    add_library(${target} STATIC EXCLUDE_FROM_ALL "${source}")
    add_library(coetcd::${name} ALIAS ${target})
    target_link_libraries(${target} PUBLIC ${ARGN})
    # Without optimisation an object has more names than binutils can write in Windows' format.
    if(MINGW)
        target_compile_options(${target} PRIVATE $<$<OR:$<CONFIG:>,$<CONFIG:Debug>>:-O1>)
    endif()
endfunction()

_coetcd_compile(coetcd_compiled compiled src.hpp coetcd::coetcd)
target_compile_definitions(coetcd_compiled PUBLIC COETCD_SEPARATE_COMPILATION)
_coetcd_compile(coetcd_testing_compiled testing_compiled testing_src.hpp coetcd::compiled)
if(TARGET coetcd::tls)
    _coetcd_compile(coetcd_tls_compiled tls_compiled tls_src.hpp coetcd::compiled coetcd::tls)
endif()

# Fails if a file does not look as CLANG_FORMAT would write it.
file(GLOB_RECURSE files "${ROOT}/include/*.[ch]pp" "${ROOT}/tests/*.[ch]pp" "${ROOT}/examples/*.[ch]pp"
    "${ROOT}/docs/*.[ch]pp")
execute_process(COMMAND "${CLANG_FORMAT}" --dry-run -Werror ${files} RESULT_VARIABLE result)
if(result)
    message(FATAL_ERROR "Run: ${CLANG_FORMAT} -i <file>")
endif()

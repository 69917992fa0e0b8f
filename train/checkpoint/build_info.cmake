# cmake -D OUT=build_info.cpp -D SOURCE=FOLDER -D FLAGS=... -P build_info.cmake
# Writes the commit and the flags of a build for provenance.cpp, if they have changed.
set(commit unknown)
find_program(GIT git)
if(GIT)
  # Sources may be a folder of another project's repository.
  execute_process(COMMAND "${GIT}" -C "${SOURCE}" rev-parse --show-prefix
                  RESULT_VARIABLE failed OUTPUT_VARIABLE prefix ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND prefix STREQUAL "")
    execute_process(COMMAND "${GIT}" -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
                    RESULT_VARIABLE failed OUTPUT_VARIABLE described ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
      set(commit "${described}")
    endif()
  endif()
endif()
string(REPLACE "\\" "\\\\" FLAGS "${FLAGS}")
string(REPLACE "\"" "\\\"" FLAGS "${FLAGS}")
file(CONFIGURE OUTPUT "${OUT}" CONTENT [[namespace longhand::train {
extern const char* const build_commit;
extern const char* const build_flags;
const char* const build_commit = "@commit@";
const char* const build_flags = "@FLAGS@";
}
]] @ONLY)

# The course: a program for each chapter and each of its solutions, which check their own results, and a test
# that compares every page with what its programs print. A chapter is a folder NN_NAME with README.md, NAME.cpp
# and solution_1.cpp to solution_3.cpp; nothing has to be entered here.
set(course "${PROJECT_SOURCE_DIR}/examples/course")
set(course_programs "${PROJECT_BINARY_DIR}/course")
add_executable(course_figure "${course}/figure.cpp")
target_link_libraries(course_figure PRIVATE longhand::lab longhand_options)
set_target_properties(course_figure PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${course_programs}")
add_custom_target(course DEPENDS course_figure)

file(GLOB sources CONFIGURE_DEPENDS "${course}/[0-9][0-9]_*/*.cpp")
foreach(source IN LISTS sources)
  get_filename_component(name "${source}" NAME_WE)
  get_filename_component(folder "${source}" DIRECTORY)
  get_filename_component(chapter "${folder}" NAME)
  set(target "course_${chapter}_${name}")
  set(libraries longhand::longhand)
  file(STRINGS "${source}" uses_mpi REGEX "longhand/train/ranks/mpi.h")
  if(uses_mpi)
    if(NOT TARGET longhand::mpi)
      continue()
    endif()
    list(APPEND libraries longhand::mpi)
  endif()
  add_executable(${target} "${source}")
  target_link_libraries(${target} PRIVATE ${libraries} longhand_options)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME "${name}"
                        RUNTIME_OUTPUT_DIRECTORY "${course_programs}/${chapter}")
  longhand_optimise_less(${target})
  add_dependencies(course ${target})
  if(name MATCHES "^solution_")
    string(REPLACE "_" " " exercise "${name}")
    set(command ${target})
    if(uses_mpi)  # on 1, 2 and 4 ranks
      set(command "${PROJECT_SOURCE_DIR}/tests/distributed/same_hash.sh" $<TARGET_FILE:${target}>)
    endif()
    add_test(NAME "course: ${chapter}, ${exercise}" COMMAND ${command})
  elseif(NOT name MATCHES "^exercise_")  # a reader's own
    add_test(NAME "course: ${chapter}, page and program"
             COMMAND perl "${course}/course.pl" --check "${course_programs}" "${folder}")
  endif()
endforeach()

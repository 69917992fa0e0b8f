# docs: the documentation site, in docs/html of the build folder, with the reports of the examples. Installed if
# it has been built.
find_program(DOXYGEN doxygen)
find_path(MATHJAX_FOLDER MathJax.js PATHS /usr/share/javascript/mathjax NO_DEFAULT_PATH
          DOC "Folder of MathJax 2, which sets formulas in the browser")
set(docs "${PROJECT_BINARY_DIR}/docs")
if(DOXYGEN AND MATHJAX_FOLDER)
  file(GLOB course_folders CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/course/[0-9][0-9]_*")
  list(JOIN course_folders " " course_folders)
  configure_file(examples/site/Doxyfile.in "${docs}/Doxyfile" @ONLY)
  # A warning is an error, but not in packages, which other versions of Doxygen may build.
  set(all_if_packages)
  set(no_warnings test ! -s "${docs}/warnings.txt")
  if(LONGHAND_PACKAGES)
    set(all_if_packages ALL)
    set(no_warnings)
  endif()
  add_custom_target(docs ${all_if_packages}
    COMMAND "${CMAKE_COMMAND}" -D "LONGHAND=$<TARGET_FILE:longhand>" -D "SOURCE=${PROJECT_SOURCE_DIR}"
            -D "OUT=${docs}/pages" -P "${PROJECT_SOURCE_DIR}/examples/site/pages.cmake"
    COMMAND "${CMAKE_COMMAND}" -E rm -rf "${docs}/html"
    COMMAND "${DOXYGEN}" "${docs}/Doxyfile"
    COMMAND "${CMAKE_COMMAND}" -E cat "${docs}/warnings.txt"
    COMMAND ${no_warnings}
    COMMAND "${PROJECT_SOURCE_DIR}/examples/reports.sh" "$<TARGET_FILE:longhand>" "${docs}/html/reports"
    COMMENT "Documentation: ${docs}/html/index.html" VERBATIM)
  add_dependencies(docs longhand)
else()
  if(LONGHAND_PACKAGES)
    message(FATAL_ERROR "Packages need doxygen and libjs-mathjax: examples/install-packages.sh doxygen libjs-mathjax")
  endif()
  add_custom_target(docs COMMAND "${CMAKE_COMMAND}" -E echo
    "docs: install the packages doxygen and libjs-mathjax, and configure again"
    COMMAND "${CMAKE_COMMAND}" -E false VERBATIM)
endif()
install(DIRECTORY "${docs}/html" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT doc OPTIONAL)

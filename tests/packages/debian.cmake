# Debian packages, by CPack: cmake --workflow --preset package. tests/packages/run.sh tests them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "The Longhand developers")
set(CPACK_PACKAGE_CONTACT "The Longhand developers <longhand@example.org>" CACHE STRING
    "Maintainer of the packages; name yourself if you distribute them")
# The default: CPack would write any other before the summary that each package has.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_NAME} built using CMake")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_INSTALL_DIRECTORY longhand)
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev tools doc)
if(TARGET longhand-mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
if(TARGET longhand_python)
  list(APPEND CPACK_COMPONENTS_ALL python)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY >=)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME liblonghand${soversion})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
# Other flavours of OpenBLAS give wrong products when several threads call them.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS libopenblas0-pthread)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME liblonghand-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS longhand-doc)
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME longhand)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS longhand-doc)
set(CPACK_DEBIAN_MPI_PACKAGE_NAME longhand-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-longhand)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
math(EXPR next_python "${Python_VERSION_MINOR} + 1")
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
    "python3 (>= 3.${Python_VERSION_MINOR}), python3 (<< 3.${next_python}), python3-numpy")
set(CPACK_DEBIAN_DOC_PACKAGE_NAME longhand-doc)
set(CPACK_DEBIAN_DOC_PACKAGE_SECTION doc)
set(CPACK_DEBIAN_DOC_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DOC_PACKAGE_DEPENDS libjs-mathjax)
set(CPACK_DEBIAN_DOC_PACKAGE_SHLIBDEPS OFF)
set(about "Longhand is a complete training framework in C++20: tensors, automatic
differentiation, attention variants behind one interface, and runs
that resume bit for bit.
.
")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
"training framework for long-sequence Transformers on CPUs (libraries)
${about}This package contains the shared libraries.")
set(CPACK_COMPONENT_DEV_DESCRIPTION
"training framework for long-sequence Transformers on CPUs (headers)
${about}This package contains what is needed to compile programs and plugins, for
CMake and pkg-config, and examples.")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
"trains long-sequence Transformers on CPUs
${about}This package contains the program longhand and configurations for it.")
set(CPACK_COMPONENT_MPI_DESCRIPTION
"trains long-sequence Transformers on several machines
${about}This package contains the program longhand-mpi for mpirun and srun, and its
library for programs of your own.")
set(CPACK_COMPONENT_PYTHON_DESCRIPTION
"attention variants on NumPy arrays, and checks of attention functions
${about}This package contains the Python module longhand: variants with gradients,
their definitions, tasks, and the conformance checks for functions of
arrays, such as kernels of PyTorch or JAX.")
set(CPACK_COMPONENT_DOC_DESCRIPTION
"training framework for long-sequence Transformers on CPUs (documentation)
${about}This package contains the documentation as HTML, with the course, the pages of
the variants, all options and the C++ reference.")
# Shared libraries register themselves at installation.
file(CONFIGURE OUTPUT triggers CONTENT "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/triggers")
set(CPACK_DEBIAN_MPI_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/triggers")

# The files that Debian wants in every package.
if(LONGHAND_PACKAGES)
  file(READ LICENSE license)
  string(REGEX REPLACE "^MIT License\n\nCopyright[^\n]*\n\n" "" license "${license}")
  string(REGEX REPLACE "\n\n" "\n.\n" license "${license}")
  string(STRIP "${license}" license)
  string(REGEX REPLACE "\n" "\n " license " ${license}")
  file(CONFIGURE OUTPUT copyright @ONLY CONTENT
[[Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Longhand

Files: *
Copyright: 2026 The Longhand developers
License: Expat

License: Expat
@license@
]])
  file(STRINGS CHANGELOG.md released REGEX "^## ${PROJECT_VERSION} " LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+-[0-9]+-[0-9]+" released "${released}")
  execute_process(COMMAND date -u -R -d "${released}" OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  file(CONFIGURE OUTPUT changelog @ONLY CONTENT
[[longhand (@PROJECT_VERSION@-1) unstable; urgency=medium

  * Version @PROJECT_VERSION@; see /usr/share/doc/longhand/changelog.gz.

 -- @CPACK_PACKAGE_CONTACT@  @date@
]])
  file(CONFIGURE OUTPUT doc-base @ONLY CONTENT
[[Document: longhand
Title: Longhand
Author: The Longhand developers
Abstract: @PROJECT_DESCRIPTION@
Section: Science/Mathematics

Format: HTML
Index: /usr/share/doc/longhand/html/index.html
Files: /usr/share/doc/longhand/html/*
]])
  install(FILES "${PROJECT_BINARY_DIR}/doc-base" RENAME longhand-doc.longhand
          DESTINATION "${CMAKE_INSTALL_DATADIR}/doc-base" COMPONENT doc)
  configure_file(CHANGELOG.md upstream_changelog COPYONLY)
  execute_process(COMMAND gzip -9nf "${PROJECT_BINARY_DIR}/changelog" "${PROJECT_BINARY_DIR}/upstream_changelog"
                  COMMAND_ERROR_IS_FATAL ANY)
  install(FILES "${PROJECT_BINARY_DIR}/upstream_changelog.gz" RENAME changelog.gz
          DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT tools)
  foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER ${component} upper)
    set(folder "${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}")
    install(FILES "${PROJECT_BINARY_DIR}/copyright" DESTINATION "${folder}" COMPONENT ${component})
    install(FILES "${PROJECT_BINARY_DIR}/changelog.gz" RENAME changelog.Debian.gz
            DESTINATION "${folder}" COMPONENT ${component})
  endforeach()
endif()

include(CPack)
cpack_add_component(runtime)
cpack_add_component(dev DEPENDS runtime)
cpack_add_component(tools DEPENDS runtime)
if(TARGET longhand-mpi)
  cpack_add_component(mpi DEPENDS runtime)
endif()
if(TARGET longhand_python)
  cpack_add_component(python DEPENDS runtime)
endif()
cpack_add_component(doc)

# What libraries and programs export: what is in the namespace longhand, not what they instantiate from headers of
# others.
set(longhand_exported _ZN8longhand* _ZNK8longhand* _ZNR8longhand* _ZNKR8longhand* _ZNO8longhand* _ZZN8longhand*
    _ZZNK8longhand* _ZT?N8longhand* _ZTh*_N8longhand* _ZTv*_N8longhand* _ZGVN8longhand*
    _ZGVZN8longhand* _ZGVZNK8longhand*)

# longhand_add_plugin(NAME SOURCE...): a shared library NAME.so with attention variants and tasks of your
# own, for longhand --plugin NAME.so; see longhand/train/plugin/plugin.h. It compiles against Longhand's headers
# and uses the library of the program that loads it.
function(longhand_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX .so)
  target_compile_features(${name} PRIVATE cxx_std_20)
  get_target_property(type longhand::train TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    target_link_libraries(${name} PRIVATE longhand::train)
  else()
    # A static library would be a second one, with a registry of its own.
    target_include_directories(${name} PRIVATE
      $<TARGET_PROPERTY:longhand::train,INTERFACE_INCLUDE_DIRECTORIES>)
  endif()
endfunction()

# longhand_add_program(NAME SOURCE...): a program with a main() of your own, which calls longhand::cli::main(), and
# loads plugins as the program longhand does: they use the library in it, all of it and not only what the
# program uses itself.
function(longhand_add_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE longhand::cli)
  get_target_property(type longhand::train TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    return()
  endif()
  set(libraries)
  foreach(layer core autograd nn attention data train lab)
    get_target_property(built_here longhand::${layer} ALIASED_TARGET)
    if(built_here)
      list(APPEND libraries ${built_here})
    else()
      list(APPEND libraries longhand::${layer})
    endif()
  endforeach()
  list(JOIN libraries "," libraries)
  set_target_properties(${name} PROPERTIES LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${libraries}")
  set(symbols "${CMAKE_CURRENT_BINARY_DIR}/longhand_exports.list")
  list(JOIN longhand_exported "; " exported)
  file(CONFIGURE OUTPUT "${symbols}" CONTENT "{ @exported@; };\n" @ONLY)
  target_link_options(${name} PRIVATE "LINKER:--dynamic-list=${symbols}")
endfunction()

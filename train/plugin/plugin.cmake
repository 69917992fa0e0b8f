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

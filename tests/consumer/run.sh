#!/usr/bin/env bash
# consumer/run.sh SOURCE BUILD CXX [install|subdirectory]: installs BUILD below a new prefix, moves the prefix (no
# path may refer to the old place) and builds the consumer against it, then a program of the course by
# pkg-config, and the plugin and the program of the installed example; or builds the consumer with SOURCE as a
# subdirectory. If longhand::mpi is installed, a program that uses it is built and run, too.
set -euo pipefail
source=$1 build=$2
export CXX=$3
here=$source/tests/consumer
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
build_type=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=)  # debug information takes a third of the time

build_and_run() {  # NAME CMAKE-ARGUMENT...
  local name=$1
  shift
  cmake -S "$here" -B "$top/$name" -G Ninja "${build_type[@]}" "$@" >"$top/$name.log" 2>&1 &&
    cmake --build "$top/$name" --target consumer >>"$top/$name.log" 2>&1 || { cat "$top/$name.log"; return 1; }
  echo "$name: $("$top/$name/consumer" | tail -n 1)"
  [ ! -e "$top/$name/ranks" ] || "$here/../distributed/mpirun.sh" 2 "$top/$name/ranks"
}

by_pkg_config() {
  command -v pkg-config >/dev/null || { echo "pkg-config: skipped, it is not installed"; return; }
  local libraries=$(dirname "$(find "$top/elsewhere" -name longhand.pc)")
  export PKG_CONFIG_PATH=$libraries
  $CXX -std=c++20 "$source/examples/course/01_tensors/tensors.cpp" -o "$top/by_pkg_config" \
    $(pkg-config --cflags --libs longhand) -Wl,-rpath,"$libraries/.."
  echo "pkg-config: $("$top/by_pkg_config" | tail -n 1)"
}

# Copied from where it is installed, and used by the installed program and by that of its own.
example_of_a_plugin() {
  local example=$(dirname "$(find "$top/elsewhere" -path '*/plugin/plugin.cpp')")
  cp -r "$example" "$top/plugin"
  # A program that is linked without longhand_add_program() says what is wrong with it, not with the plugin.
  cat >>"$top/plugin/CMakeLists.txt" <<'END'
add_executable(closed_program $<TARGET_OBJECTS:own_program>)
target_link_libraries(closed_program PRIVATE longhand::cli)
END
  cmake -S "$top/plugin" -B "$top/plugin/build" -G Ninja "${build_type[@]}" \
    -DCMAKE_PREFIX_PATH="$top/elsewhere" >"$top/plugin.log" 2>&1 &&
    cmake --build "$top/plugin/build" >>"$top/plugin.log" 2>&1 || { cat "$top/plugin.log"; return 1; }
  "$top/plugin/build/own_program" --version
  local program
  for program in "$top/elsewhere/bin/longhand" "$top/plugin/build/own_program"; do
    "$program" train "$top/plugin/config.toml" --out "$top/plugin/run" --overwrite --set train.steps=2 \
      --quiet --plugin "$top/plugin/build/example_plugin.so"
  done
  "$top/plugin/build/own_program" data show largest --count 1 >"$top/plugin/shown"
  grep -q "^targets: .*-100 [0-9]$" "$top/plugin/shown"
  if [ -z "$(find "$top/elsewhere" -name 'liblonghand_core.so*')" ]; then
    "$top/plugin/build/closed_program" variants --plugin "$top/plugin/build/example_plugin.so" 2>"$top/plugin/error" && return 1
    grep -q "longhand_add_program()" "$top/plugin/error"
  fi
  echo "plugin: loaded by both programs"
}

case ${4:-install} in
  install)
    cmake --install "$build" --prefix "$top/prefix" >"$top/install.log"
    mv "$top/prefix" "$top/elsewhere"
    build_and_run installed -DCMAKE_PREFIX_PATH="$top/elsewhere"
    "$top/elsewhere/bin/longhand" --version
    by_pkg_config
    example_of_a_plugin
    ;;
  subdirectory)
    build_and_run subdirectory -DLONGHAND_SOURCE_DIR="$source"
    ;;
esac

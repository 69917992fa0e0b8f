#!/usr/bin/env bash
# consumer/run.sh SOURCE BUILD CXX [install|subdirectory]: installs BUILD below a new prefix and
# builds the consumer against it, then moves the prefix and builds again (no path may refer to the
# old place); or builds the consumer with SOURCE as a subdirectory.
set -euo pipefail
source=$1 build=$2
export CXX=$3
here=$source/tests/consumer
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT

build_and_run() {  # NAME CMAKE-ARGUMENT...
  local name=$1
  shift
  cmake -S "$here" -B "$top/$name" -G Ninja -DCMAKE_BUILD_TYPE=Debug "$@" >"$top/$name.log" 2>&1 &&
    cmake --build "$top/$name" --target consumer >>"$top/$name.log" 2>&1 || { cat "$top/$name.log"; return 1; }
  echo "$name: $("$top/$name/consumer" | tail -n 1)"
}

case ${4:-install} in
  install)
    cmake --install "$build" --prefix "$top/prefix" >"$top/install.log"
    build_and_run installed -DCMAKE_PREFIX_PATH="$top/prefix"
    mv "$top/prefix" "$top/elsewhere"
    build_and_run moved -DCMAKE_PREFIX_PATH="$top/elsewhere"
    "$top/elsewhere/bin/longhand" --version
    ;;
  subdirectory)
    build_and_run subdirectory -DLONGHAND_SOURCE_DIR="$source"
    ;;
esac

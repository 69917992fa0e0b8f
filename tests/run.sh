#!/usr/bin/env bash
# tests/run.sh: installs missing packages (Debian 12 or 13), builds Longhand and runs all tests.
#   tests/run.sh                    the release preset
#   tests/run.sh asan-ubsan         another preset of CMakePresets.json
#   tests/run.sh release -R golden  further arguments are passed to ctest
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
preset=${1:-release}
[ $# -gt 0 ] && shift
python=OFF  # an interpreter without sanitizers loads no module with them
if [ "$preset" = release ] || [ "$preset" = dev ]; then python=ON; fi
packages=()
[ "$python" = ON ] && packages=(pybind11-dev python3-dev python3-numpy)
examples/install-packages.sh "${packages[@]}"
echo "== configure ($preset)"
cmake --preset "$preset" -DLONGHAND_WERROR=ON "-DLONGHAND_PYTHON=$python" >build.log 2>&1 || { cat build.log; exit 1; }
rm -f build.log
echo "== build"
cmake --build --preset "$preset"
echo "== test"
status=0
ctest --preset "$preset" -j "$(nproc)" "$@" || status=$?
grep -hm 1 '^instruction sets: ' "build/$preset/Testing/Temporary/LastTest.log" || true
exit $status

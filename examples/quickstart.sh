#!/usr/bin/env bash
# examples/quickstart.sh: installs what is needed (Debian 12), builds, trains two attention variants
# on a built-in task until they have learned it, and compares them.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
examples/install-packages.sh
echo "== build (a few minutes)"
cmake --preset release -DLONGHAND_BUILD_TESTS=OFF -DLONGHAND_WERROR=OFF -B build/quickstart >build.log 2>&1 || { cat build.log; exit 1; }
rm -f build.log
cmake --build build/quickstart

#!/usr/bin/env bash
# consumer/readme.sh SOURCE: checks that the C++ program in README.md equals examples/00_first_model.cpp.
set -euo pipefail
awk '/^```/ { if (inside) exit; if ($0 == "```cpp") { inside = 1; next } } inside' "$1/README.md" |
  diff -u --label README.md - "$1/examples/00_first_model.cpp"

#!/usr/bin/env bash
# consumer/readme.sh SOURCE: the C++ program in README.md is examples/00_first_model.cpp, to the letter.
set -euo pipefail
awk '/^```/ { if (inside) exit; if ($0 == "```cpp") { inside = 1; next } } inside' "$1/README.md" |
  diff -u --label README.md - "$1/examples/00_first_model.cpp"

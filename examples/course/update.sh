#!/bin/sh
# Writes the outputs and figures of the course anew: examples/course/update.sh [CHAPTER...], after a build.
# LONGHAND_BUILD names another build folder than build/release.
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- examples/course/[0-9][0-9]_*
exec perl examples/course/course.pl "${LONGHAND_BUILD:-build/release}/course" "$@"

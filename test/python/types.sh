#!/bin/sh
# The hints of the Python package are right: mypy, or the program that PACELINE_MYPY names. Ends with
# 77 where there is none.
#
#   test/python/types.sh
set -eu
mypy=${PACELINE_MYPY:-mypy}
command -v "$mypy" >/dev/null || { echo "skipped: there is no mypy" && exit 77; }
cd "$(dirname "$0")/../.."
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
"$mypy" --cache-dir "$cache" python/paceline

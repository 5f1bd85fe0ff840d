#!/bin/sh
# Runs a test of the Python package, with the library of a build and a Python that has numpy, for
# torch_test also PyTorch: PACELINE_PYTHON, or python3, or the one of Debian's packages.
#
#   test/python/run.sh BUILD TEST
set -eu
needs=numpy
[ "$2" != torch_test ] || needs=numpy,torch
python=
for each in ${PACELINE_PYTHON:-python3 /usr/bin/python3}; do
    ! "$each" -c "import $needs" 2>/dev/null || { python=$each && break; }
done
if [ -z "$python" ]; then
    echo "[  SKIPPED ] test_python"
    exit 0
fi
PACELINE_LIBRARY=$(cd "$1" && pwd)/libpaceline.so.1 PYTHONDONTWRITEBYTECODE=1 \
    exec "$python" "$(dirname "$0")/$2.py"

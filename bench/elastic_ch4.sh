#!/usr/bin/env bash
# Chapter 4 of Elastic in simulation: prices fitted to its Tables 4.3 and 4.4, six all-reduces on 8,
# 16 and 32 nodes with the fitted z and with z = 0. Tables on stdout, the figure and a CSV as files;
# a quarter of a minute on one core.
#   bench/elastic_ch4.sh [BUILD] [FIGURE.svg] [TIMES.csv]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
figure=${2:-docs/figures/elastic_ch4.svg} times=${3:-$build/elastic_ch4.csv}

[ -f "$build/build.ninja" ] || cmake -G Ninja -S . -B "$build" >&2
ninja -C "$build" elastic_ch4 >&2
mkdir -p "$(dirname "$figure")"
"$build/elastic_ch4" "$figure" "$times"
echo
echo "figure: $figure   times: $times"

#!/usr/bin/env bash
# The examples that start Paceline by other engines are well formed: units of systemd, by
# systemd-analyze where there is one, scripts of Slurm by bash, and by shellcheck where there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
look() { # WHAT CMD…
    local what=$1 said
    shift
    said=$("$@" 2>&1) && [ -z "$said" ] && return
    echo "$what: $said" >&2
    failed=1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for unit in examples/systemd/*.service; do
    sed 's|/usr/bin/paceline|/bin/true|' "$unit" >"$work/${unit##*/}" # which need not be installed
    command -v systemd-analyze >/dev/null && look "$unit" systemd-analyze verify "$work/${unit##*/}"
done
for script in examples/slurm/*.sbatch; do
    look "$script" bash -n "$script"
    command -v shellcheck >/dev/null && look "$script" shellcheck "$script"
done
if [ "${1:-}" = --self-test ]; then
    echo 'Exec=nothing' >>"$work/paceline-worker.service"
    echo 'if true; then' >"$work/bad.sbatch"
    (look bad bash -n "$work/bad.sbatch" && exit $failed) 2>/dev/null && exit 1
    ! command -v systemd-analyze >/dev/null ||
        ! systemd-analyze verify "$work/paceline-worker.service" 2>&1 | grep -q . && exit 1
fi
exit $failed

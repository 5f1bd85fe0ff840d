#!/usr/bin/env bash
# A user's first minutes on a fresh Debian 12: a base system is made in a folder, without anything of
# this machine; there the packages are installed by apt, the demo trains, and in a fresh environment of
# Python the wheel is installed by pip and trains on arrays. Prints the seconds of each step; those
# without downloads may be 60 together.
#
#   test/fresh_debian.sh BUILD [MIRROR]
#
# MIRROR is by default that of this machine's apt. Needs root, and the network for Debian's archive and for
# NumPy, which this machine's pip downloads. debootstrap is unpacked from its package where it is not
# installed. About 700 MB in a temporary folder, which is removed; FRESH_BASE=FILE.tar keeps the base system
# for the next time.
set -euo pipefail
build=$(cd "$1" && pwd)
mirror=${2:-$(apt-get indextargets --format '$(SITE)' 'Codename: bookworm' | sed -n 1p)}
source=$(cd "$(dirname "$0")/.." && pwd)
limit=60

[ -n "$mirror" ] ||
    { echo "fresh_debian: this machine's apt has no source for bookworm: name a MIRROR" >&2 && exit 2; }
[ "$(id -u)" = 0 ] || { echo "fresh_debian: needs root" >&2 && exit 2; }
# Mounts are those of this process alone, and go with it.
[ "${FRESH_MOUNTS:-}" = own ] || FRESH_MOUNTS=own exec unshare --mount "$0" "$build" "$mirror"

work=$(mktemp -d)
root=$work/root
trap 'umount "$root/proc" "$root/dev/shm" 2>/dev/null; rm -rf "$work"' EXIT
counted=0

# step NAME COMMAND…: its output is shown if it fails.
step() {
    local name=$1 begin end rc
    shift
    begin=$(date +%s.%N)
    set +e
    (set -e && "$@") >"$work/log" 2>&1
    rc=$?
    set -e
    [ "$rc" = 0 ] || { echo "fresh_debian: $name failed" && tail -40 "$work/log" && exit 1; } >&2
    end=$(date +%s.%N)
    awk -v n="$name" -v s="$(echo "$end $begin" | awk '{ print $1 - $2 }')" 'BEGIN { printf "%-44s %6.1f s\n", n, s }'
    last=$(echo "$end $begin" | awk '{ print $1 - $2 }')
}

# The same for a step that downloads nothing.
count() {
    step "$@"
    counted=$(echo "$counted $last" | awk '{ print $1 + $2 }')
}

inside() {
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive \
        LC_ALL=C "$@"
}

bootstrap() {
    local tool=debootstrap
    if ! command -v debootstrap >/dev/null; then
        (cd "$work" && apt-get download debootstrap && dpkg-deb -x debootstrap_*.deb tool)
        export DEBOOTSTRAP_DIR=$work/tool/usr/share/debootstrap
        tool=$work/tool/usr/sbin/debootstrap
    fi
    "$tool" --variant=minbase --include=ca-certificates bookworm "$root" "$mirror"
}

base_system() {
    if [ -f "${FRESH_BASE:-}" ]; then
        mkdir "$root"
        tar -xpf "$FRESH_BASE" -C "$root" --numeric-owner
    else
        bootstrap
        [ -z "${FRESH_BASE:-}" ] || tar -cpf "$FRESH_BASE" -C "$root" --numeric-owner .
    fi
    mount -t proc proc "$root/proc"
    mkdir -p "$root/dev/shm"
    mount -t tmpfs tmpfs "$root/dev/shm"
    echo 'APT::Sandbox::User "root";' >"$root/etc/apt/apt.conf.d/99root" # of downloads
}

# The packages, the wheel and the demo's job.
make_packages() {
    (cd "$work" && cpack -G DEB -B "$work/debs" --config "$build/CPackConfig.cmake")
    mkdir "$root/given"
    cp "$work"/debs/paceline_*.deb "$work"/debs/libpaceline1_*.deb "$source/examples/fashion-lenet.job" "$root/given"
    (cd "$source/python" && python3 -c 'import sys, wheel_backend
print(wheel_backend.build_wheel(sys.argv[1], {"library": sys.argv[2]}))' "$root/given" "$build/libpaceline.so.1")
    awk '/^```python$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/python/README.md" |
        head -12 >"$root/given/example.py"
}

install_packages() {
    inside sh -c 'apt-get install -y --no-install-recommends "$@" /given/*.deb dataset-fashion-mnist python3-venv' sh "$@"
}

trains() {
    inside sh -c 'cd /root && paceline train /given/fashion-lenet.job --workers 2 --epochs 1 --out demo --json' |
        tee "$work/demo"
    grep -q '"test_error"' "$work/demo"
}

install_wheel() {
    inside sh -c 'python3 -m venv /root/venv && /root/venv/bin/pip install --no-index --find-links /given /given/*.whl'
}

trains_arrays() {
    inside /root/venv/bin/python /given/example.py | tee "$work/arrays"
    awk '{ exit !($1 < 0.2) }' "$work/arrays" # chance: 0.5
}

step 'base system of Debian 12 (downloads)' base_system
step 'packages and wheel of this build' make_packages
step 'package lists (downloads)' inside apt-get update
step 'packages that they need (downloads)' install_packages --download-only
count 'apt install of the packages' install_packages
count 'demo: LeNet, one epoch, two workers' trains
step 'NumPy (downloads)' python3 -m pip download -q -d "$root/given" --only-binary=:all: \
    --platform manylinux2014_x86_64 --python-version 3.11 numpy
count 'pip install of the wheel in a fresh venv' install_wheel
count 'README: training on arrays of NumPy' trains_arrays
lines=$(sed -n '/^$/,$p' "$root/given/example.py" | grep -c .)
[ "$lines" -le 10 ] || { echo "fresh_debian: the example has $lines lines" >&2 && exit 1; }
sed -n 's/.*"test_error":\([^,}]*\).*/test error of the demo \1/p' "$work/demo"
echo "$counted $limit" | awk '{ printf "%-44s %6.1f s of %d\n", "together, without downloads", $1, $2; exit $1 > $2 }'

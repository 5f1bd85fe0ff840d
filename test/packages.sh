#!/usr/bin/env bash
# Makes the packages for Debian and looks into them: names, dependencies, files; and that the command
# runs from the unpacked tree. Nothing is installed on this machine.
#
#   test/packages.sh BUILD
set -euo pipefail
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "packages: $*" >&2
    exit 1
}

makes() {
    (cd "$work" && cpack -G DEB -B "$work/debs" --config "$build/CPackConfig.cmake" \
        -D CPACK_DEBIAN_COMPRESSION_TYPE=none) >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
    version=$("$build/paceline" version)
    version=${version#paceline }-1
    local package
    for package in paceline libpaceline1 libpaceline-dev; do
        deb=$(echo "$work/debs/${package}_${version}_"*.deb)
        [ -f "$deb" ] || fail "there is no package $package of $version"
        dpkg-deb -x "$deb" "$work/root"
        dpkg-deb -e "$deb" "$work/$package"
        dpkg-deb -c "$deb" | awk '{ print $2 }' | sort -u | grep -vx root/root && fail "owners"
        dpkg-deb -c "$deb" >"$work/$package/files"
    done
}

field() { # PACKAGE FIELD
    sed -n "s/^$2: //p" "$work/$1/control"
}

# Of the package the field contains the text.
has() { # PACKAGE FIELD TEXT
    [[ "$(field "$1" "$2")" = *"$3"* ]] || fail "$1: $2 is '$(field "$1" "$2")', without $3"
}

depends() {
    has paceline Depends "libpaceline1 (= $version)"
    has libpaceline-dev Depends "libpaceline1 (= $version)"
    # Those that the library itself names, by the packages that have them here.
    local library package
    dpkg -S '*/lib*.so.*' | grep "$(dpkg --print-architecture): /" >"$work/owners"
    for library in $(readelf -d "$build/libpaceline.so.1" | sed -n 's/.*NEEDED.*\[\(.*\)\].*/\1/p'); do
        case $library in ld-linux*) continue ;; esac
        package=$(sed -n "s|:.*/$library\$||p" "$work/owners" | head -1)
        [ -n "$package" ] || fail "no package has $library"
        has libpaceline1 Depends "$package"
    done
    has libpaceline1 Architecture "$(dpkg --print-architecture)"
    grep -q '^libpaceline 1 libpaceline1' "$work/libpaceline1/shlibs" || fail "no shlibs"
    grep -q ldconfig "$work/libpaceline1/postinst" || fail "ldconfig is not run"
    for package in paceline libpaceline1 libpaceline-dev; do
        has "$package" Maintainer "@"
        has "$package" Description "neural networks"
        (cd "$work/root" && md5sum --quiet -c "$work/$package/md5sums") || fail "$package: md5sums"
    done
}

# Each file is in the package that it belongs to.
contains() { # PACKAGE PATTERN
    grep -q "$2" "$work/$1/files" || fail "$1 has no $2"
}

is_complete() {
    contains paceline 'usr/bin/paceline$'
    contains paceline 'man1/paceline-train.1.gz$'
    contains paceline 'bash-completion/completions/paceline$'
    contains libpaceline1 'libpaceline.so.1 -> '
    contains libpaceline-dev 'libpaceline.so -> libpaceline.so.1'
    contains libpaceline-dev 'include/paceline/net.h$'
    contains libpaceline-dev 'pkgconfig/paceline.pc$'
    for package in paceline libpaceline1 libpaceline-dev; do
        contains "$package" "usr/share/doc/$package/copyright\$"
    done
    ! cat "$work"/*/files | grep -v ' ./usr/\| ./$\| \./usr$' || fail "files outside of /usr"
    [ "$(cat "$work"/*/files | grep -v '/$' | awk '{ print $6 }' | sort | uniq -d)" = "" ] ||
        fail "two packages have one file"
}

# The command finds its library and trains: a net on random records.
runs() {
    local said
    said=$("$work/root/usr/bin/paceline" bench step --net lenet --input 1x28x28 --threads 1 \
        --steps 2 --kernels ref --json) || fail "the command does not run"
    [[ $said = *'"samples_per_s"'* ]] || fail "$said"
}

makes
depends
is_complete
runs

#!/bin/sh
# Pages of the manual and completions for the shells, from the help of the command.
#
#   scripts/manual.sh PACELINE DIR   writes DIR/man1, DIR/man7, DIR/bash/paceline, DIR/zsh/_paceline
set -eu
[ $# = 2 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
paceline=$1 dir=$2
rules=$(dirname "$0")/manual.awk
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$("$paceline" version)

# Each command's help, the parts of bench among them, in a file of its name.
commands=$("$paceline" help | awk '/^  [a-z]/ && $1 !~ /^(help|version)$/ { print $1 }')
parts=$("$paceline" bench --help | awk '/^  bench / { print $2 }')
for command in $commands; do
    "$paceline" "$command" --help >"$work/$command"
done
for part in $parts; do
    "$paceline" bench "$part" --help >"$work/bench-$part"
done
"$paceline" help >"$work/paceline"
"$paceline" help data-spec >"$work/data-spec"

# Write FILE by the rules for KIND, from the help of NAME.
write() { # FILE KIND NAME [HELP…]
    file=$1 kind=$2 name=$3
    shift 3
    mkdir -p "$(dirname "$file")"
    LC_ALL=C.UTF-8 awk -v kind="$kind" -v name="$name" -v version="$version" -f "$rules" "$@" >"$work/out"
    case $file in
    *.gz) gzip -9nc "$work/out" >"$file" ;;
    *) cp "$work/out" "$file" ;;
    esac
}

rm -rf "$dir/man1" "$dir/man7"
write "$dir/man1/paceline.1.gz" main paceline "$work/paceline"
write "$dir/man7/paceline-data-spec.7.gz" text paceline-data-spec "$work/data-spec"
pages=$(for command in $commands; do echo "$command"; done; for part in $parts; do echo "bench-$part"; done)
set --
for page in $pages; do
    write "$dir/man1/paceline-$page.1.gz" command "paceline-$page" "$work/$page"
    set -- "$@" "$work/$page"
done
write "$dir/bash/paceline" bash paceline "$work/paceline" "$@"
write "$dir/zsh/_paceline" zsh paceline "$work/paceline" "$@"

#!/usr/bin/env bash
# Our all-reduce and OpenMPI's: on four hosts of 1 GbE (bench/netns.sh), ours, MPI's default
# and MPI's ring in turn; with --shm on this host alone, where both have shared memory.
#   bench/vs_mpi.sh [--shm] [--floats 1000,100000,10000000] [--reps 2]
#
# A figure is the median over the turns of a median of 20 repetitions, each as long as its slowest
# rank. PACELINE names another binary than build/paceline.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
hosts=4
ring=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4)

usage() {
    [ $# -eq 0 ] || echo "bench/vs_mpi.sh: $*" >&2
    echo "usage: bench/vs_mpi.sh [--shm] [--floats A,B,…] [--reps TURNS]" >&2
    exit 2
}

need() { # COMMAND WHERE_IT_COMES_FROM…
    command -v "$1" >/dev/null && return
    echo "bench/vs_mpi.sh: $1 is missing: ${*:2}" >&2
    exit 2
}

# Four ranks on few cores: one that waits must not keep another from its core (a thousand floats
# take 30 ms otherwise). mpirun's warnings are shown when it fails.
mpi() { # OPTION…
    mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -n $hosts "$@" \
        "$work/mpi_allreduce" "${floats[@]}" 2>"$work/warnings" ||
        { cat "$work/warnings" >&2 && return 1; }
}

# A name and an object a line: the input of the table.
note() { sed -n "s/^{/$1 {/p" >>"$work/figures"; }

ours() {
    "$paceline" bench allreduce --ranks $hosts --floats "$list" --algorithm auto --json
}

mpi_on_hosts() { # OPTION…
    local at=${PACELINE_ADDRESS%.*} list=() rank
    for ((rank = 1; rank <= hosts; rank++)); do list+=("$at.$rank:1"); done
    mpi --host "$(IFS=, && echo "${list[*]}")" --mca btl tcp,self \
        --mca btl_tcp_if_include "$at.0/24" --mca oob_tcp_if_include "$at.0/24" \
        --mca plm_rsh_agent "$here/vs_mpi.sh --agent" "$@"
}

# The replacement of ssh for mpirun: a command for the host of that address.
agent() { # ADDRESS COMMAND…
    local host=$PACELINE_NETNS-$((${1##*.} - 1))
    shift
    exec ip netns exec "$host" unshare --uts sh -c "hostname $host && $*"
}

# Host 0 starts MPI on all four; the others wait for it at a pipe of their own, at no cost.
on_host() {
    local turn rank
    for ((turn = 0; turn < turns; turn++)); do
        if [ "$PACELINE_RANK" != 0 ]; then
            ours >/dev/null
            read -r _ <"$work/go$PACELINE_RANK"
            continue
        fi
        ours | note ours
        mpi_on_hosts | note default
        mpi_on_hosts "${ring[@]}" | note ring
        for ((rank = 1; rank < hosts; rank++)); do echo go >"$work/go$rank"; done
    done
}

on_hosts() {
    local rank
    for ((rank = 1; rank < hosts; rank++)); do mkfifo "$work/go$rank"; done
    export work list turns paceline
    exec "$here/netns.sh" $hosts "$here/vs_mpi.sh" --on-host
}

in_memory() {
    local turn
    for ((turn = 0; turn < turns; turn++)); do
        ours | note ours
        mpi --mca btl vader,self | note default
        mpi --mca btl vader,self "${ring[@]}" | note ring
    done
}

# Everything that was started, mpirun too, is in one process group.
leave() {
    local try
    trap '' INT TERM HUP
    if [ -n "$running" ] && kill -- -"$running"; then
        for ((try = 0; try < 100; try++)); do
            kill -0 -- -"$running" || break
            sleep 0.05
        done
    fi 2>/dev/null
    rm -rf "$work"
}

table() {
    awk -v order="$list" '
    function number(key) {
        return match($0, "\"" key "\": *[-+.0-9eE]+") ? \
            substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : 0
    }
    function median(key, n, i, j, t, a) {
        n = count[key]
        for (i = 1; i <= n; i++) {
            t = value[key, i]
            for (j = i; j > 1 && a[j - 1] > t; j--) a[j] = a[j - 1]
            a[j] = t
        }
        return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
    }
    function add(what, key) { key = $1 " " size " " what; value[key, ++count[key]] = number(what) }
    function figure(who, size, key) {
        key = who " " size " "
        if (!count[key "median_ms"]) { failed = 1; return "missing" }
        return sprintf("%.3f (%.3f)", median(key "median_ms"), median(key "p90_ms"))
    }
    function ratio(who, size, ours) {
        ours = median("ours " size " median_ms")
        return ours > 0 ? sprintf("%.2f", median(who " " size " median_ms") / ours) : "-"
    }
    {
        size = number("floats")
        add("median_ms"); add("p90_ms"); add("link_percent"); add("cpu_percent")
        if (match($0, /"algorithm": *"[^"]*"/)) {
            name = substr($0, RSTART, RLENGTH); gsub(/"algorithm": *|"/, "", name)
            algorithm[size] = name
        }
    }
    END {
        row = "%10s  %-8s %18s  %18s  %18s  %8s %8s  %6s %6s\n"
        printf row, "floats", "ours", "ms (p90)", "MPI ms (p90)", "MPI ring ms (p90)",
            "MPI/ours", "ring/ours", "link %", "cpu %"
        sizes = split(order, all, ",")
        for (i = 1; i <= sizes; i++) {
            s = all[i] + 0
            printf row, s, algorithm[s], figure("ours", s), figure("default", s), figure("ring", s),
                ratio("default", s), ratio("ring", s),
                sprintf("%.1f", median("ours " s " link_percent")),
                sprintf("%.1f", median("ours " s " cpu_percent"))
        }
        exit failed
    }' "$work/figures"
}

case ${1:-} in
--agent) shift && agent "$@" ;;
--on-host)
    IFS=, read -ra floats <<<"$list"
    on_host
    exit
    ;;
esac

shm='' list=1000,100000,10000000 turns=2
while [ $# -gt 0 ]; do
    case $1 in
    --shm)
        shm=yes
        shift
        continue
        ;;
    --floats) list=${2:-} ;;
    --reps) turns=${2:-} ;;
    *) usage "no option '$1'" ;;
    esac
    [ $# -ge 2 ] || usage "$1 needs a value"
    shift 2
done
[[ $list =~ ^[1-9][0-9]{0,8}(,[1-9][0-9]{0,8})*$ ]] || usage "not a list of sizes: '$list'"
[[ $turns =~ ^[1-9][0-9]?$ ]] || usage "not a number of turns: '$turns'"
IFS=, read -ra floats <<<"$list"
paceline=${PACELINE:-$here/../build/paceline}
need "$paceline" ./run check builds it
need mpirun apt-get install openmpi-bin
need mpicc apt-get install libopenmpi-dev
need gcc apt-get install gcc

work=$(mktemp -d) running=
export TMPDIR=$work # what mpirun leaves when it is killed goes as well
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) before; $turns turns"
mpicc -O2 -std=c17 -o "$work/mpi_allreduce" "$here/mpi_allreduce.c"
# In the background: bash hears no signal while it waits for a command of the foreground.
set -m
if [ -n "$shm" ]; then in_memory & else on_hosts & fi </dev/null
running=$!
set +m
wait "$running"
running=
table

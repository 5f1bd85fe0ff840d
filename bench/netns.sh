#!/usr/bin/env bash
# N hosts on one machine, each a network namespace, all on one switch; a command once in each.
#   bench/netns.sh [--rate 1gbit] [--unshaped] [--pin] N CMD…
#   bench/netns.sh --set-rate PREFIX RANK RATE    another rate for one host of a run that lives
#
# CMD finds PACELINE_RANK, PACELINE_RANKS, PACELINE_RENDEZVOUS (ADDR:PORT on host 0),
# PACELINE_KEY_FILE (with the key of this run), PACELINE_ADDRESS (of its own host), PACELINE_LINK_MBIT (unless unshaped) and PACELINE_NETNS (the
# PREFIX of --set-rate). Rank 0 alone prints; what another rank said is shown when it is the one that
# fails. The first rank to fail ends the others and gives the exit status. Nothing stays behind,
# whichever way the run ends.
set -euo pipefail

network=10.77.0 port=29500 rate=1gbit pin=''

say() { echo "bench/netns.sh: $*" >&2; }

usage() {
    [ $# -eq 0 ] || say "$*"
    cat >&2 <<'TEXT'
usage: bench/netns.sh [--rate RATE | --unshaped] [--pin] N CMD…     N hosts, 250 at most
       bench/netns.sh --set-rate PREFIX RANK RATE           PREFIX is PACELINE_NETNS of the run
RATE is written as for tc: 1gbit, 500mbit; --pin keeps each host on one core, in turn
TEXT
    exit 2
}

need_root() {
    [ "$(id -u)" = 0 ] || { say "network namespaces need root; run it with sudo" && exit 2; }
    for tool in ip tc unshare taskset; do
        command -v $tool >/dev/null && continue
        say "$tool is missing: apt-get install iproute2 util-linux"
        exit 2
    done
}

is_rate() { [[ $1 =~ ^[0-9]*[1-9][0-9]*[kmg]?bit$ ]]; }

# Both ends, so that a host neither sends nor is sent to faster than its link.
shape() { # PREFIX RANK RATE
    local tbf=(tbf rate "$3" burst 128kb latency 20ms)
    tc -n "$1-$2" qdisc replace dev eth0 root "${tbf[@]}"
    tc -n "$1-switch" qdisc replace dev "port$2" root "${tbf[@]}"
}

in_mbit() { # RATE
    local number=${1%%[kmg]*bit}
    number=${number%bit}
    case $1 in
    *gbit) echo $((number * 1000)) ;;
    *mbit) echo "$number" ;;
    *kbit) awk "BEGIN { print $number / 1e3 }" ;;
    *) awk "BEGIN { print $number / 1e6 }" ;;
    esac
}

set_rate() { # PREFIX RANK RATE
    is_rate "$3" || usage "not a rate: '$3'"
    need_root
    [[ $2 =~ ^[0-9]+$ && -e /run/netns/$1-$2 ]] || { say "no host $2 in '$1'" && exit 2; }
    shape "$@"
}

# The switch has a namespace of its own: deleting it removes the bridge and every veth pair, and
# no firewall of this machine comes between the hosts; nor do a bridge's own hooks for one, which
# took a tenth of a short message's way.
make_hosts() {
    local rank
    ip netns add "$prefix-switch"
    # shellcheck disable=SC2016  # for the inner shell
    ip netns exec "$prefix-switch" sh -c \
        'cd /proc/sys/net/bridge && for hook in *-nf-call-*; do echo 0 >"$hook"; done' 2>/dev/null ||
        true # no such hooks here
    ip -n "$prefix-switch" link add bridge type bridge
    ip -n "$prefix-switch" link set bridge up
    for ((rank = 0; rank < ranks; rank++)); do
        ip netns add "$prefix-$rank"
        ip link add eth0 netns "$prefix-$rank" type veth \
            peer name "port$rank" netns "$prefix-switch"
        ip -n "$prefix-switch" link set "port$rank" master bridge up
        ip -n "$prefix-$rank" address add "$network.$((rank + 1))/24" dev eth0
        ip -n "$prefix-$rank" link set lo up
        ip -n "$prefix-$rank" link set eth0 up
        [ "$rate" = none ] || shape "$prefix" "$rank" "$rate"
    done
}

namespaces() { # PREFIX
    local path
    for path in /run/netns/"$1"-*; do
        [ ! -e "$path" ] || echo "${path##*/}"
    done
}

# Ends every process in the namespaces of PREFIX: SIGTERM, and SIGKILL after two seconds.
end_processes() { # PREFIX
    local try name pids
    for ((try = 0; try < 60; try++)); do
        pids=$(for name in $(namespaces "$1"); do ip netns pids "$name"; done)
        [ -n "$pids" ] || return 0
        # shellcheck disable=SC2086  # a list of numbers
        if [ $try = 0 ]; then
            kill -TERM $pids
        elif [ $try -ge 40 ]; then
            kill -KILL $pids
        fi 2>/dev/null || true
        sleep 0.05
    done
}

remove_hosts() { # PREFIX
    local name
    end_processes "$1"
    for name in $(namespaces "$1"); do ip netns del "$name" || true; done
    rm -rf "/run/$1"
}

# Removes the remains of a run that was killed with no chance to clean up.
sweep() {
    local name pid
    for name in $(namespaces paceline); do
        pid=${name#paceline-} pid=${pid%%-*}
        [ -d "/proc/$pid" ] || remove_hosts "paceline-$pid"
    done
}

leave() {
    trap '' INT TERM HUP
    set +e
    [ -n "$made" ] || say "cannot make the hosts"
    # One that has not entered its namespace yet is in no list but this.
    # shellcheck disable=SC2046  # a list of numbers
    kill $(jobs -p) 2>/dev/null
    disown -a
    remove_hosts "$prefix"
}

# Its own host name as well, or programs take two hosts for one.
start() { # RANK CMD…
    local rank=$1
    shift
    [ "$rate" = none ] || export PACELINE_LINK_MBIT="$(in_mbit "$rate")"
    [ -z "$pin" ] || taskset -cp $((rank % $(nproc))) $BASHPID >/dev/null
    # shellcheck disable=SC2016  # for the inner shell
    PACELINE_RANK=$rank PACELINE_RANKS=$ranks PACELINE_NETNS=$prefix PACELINE_KEY_FILE=$logs/key \
        PACELINE_ADDRESS=$network.$((rank + 1)) PACELINE_RENDEZVOUS=$network.1:$port \
        exec ip netns exec "$prefix-$rank" unshare --uts \
        sh -c 'hostname "$0" && exec "$@"' "$prefix-$rank" "$@"
}

run() { # CMD…
    local rank pid status ended
    local -A rank_of=()
    for ((rank = 0; rank < ranks; rank++)); do
        if [ $rank = 0 ]; then start 0 "$@" & else start $rank "$@" >"$logs/$rank" 2>&1 & fi
        rank_of[$!]=$rank
    done
    for ((ended = 0; ended < ranks; ended++)); do
        status=0
        wait -n -p pid 2>/dev/null || status=$?
        [ $status -ne 0 ] || continue
        rank=${rank_of[$pid]}
        say "rank $rank failed with status $status"
        [ "$rank" = 0 ] || sed "s/^/rank $rank: /" "$logs/$rank" >&2
        return $status
    done
}

while [ $# -gt 0 ]; do
    case $1 in
    --rate)
        [ $# -ge 2 ] || usage "--rate needs a rate"
        is_rate "$2" || usage "not a rate: '$2'"
        rate=$2
        shift 2
        ;;
    --unshaped) rate=none && shift ;;
    --pin) pin=yes && shift ;;
    --set-rate)
        [ $# -eq 4 ] || usage "--set-rate needs PREFIX RANK RATE"
        shift
        set_rate "$@"
        exit
        ;;
    -*) usage "no option '$1'" ;;
    *) break ;;
    esac
done
[ $# -ge 2 ] || usage
[[ $1 =~ ^[1-9][0-9]{0,2}$ && $1 -le 250 ]] || usage "not a number of hosts: '$1'"
ranks=$1 prefix=paceline-$$ made=
shift
need_root
sweep
logs=/run/$prefix
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
mkdir "$logs"
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$logs/key")
make_hosts
made=yes
run "$@"

#!/usr/bin/env bash
# Terminals of 80 and 40 columns, all ten strategies, short real runs: one progress line, updated in
# place, and nothing wraps. Colours where they are wanted. Needs tmux, and python3 for a small set of pictures.
#
#   test/terminal.sh PACELINE
set -euo pipefail
for tool in tmux python3; do
    command -v "$tool" >/dev/null || { echo "skipped: there is no $tool here" && exit 77; }
done
paceline=$(realpath "${1:-build/paceline}")
folder=$(mktemp -d)
socket=paceline-terminal-$$
trap 'tmux -L "$socket" kill-server 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

python3 - <<'PICTURES'
import random, struct
random.seed(3)
for name, count in (("train", 600), ("test", 120)):
    with open(name + "-images", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, count, 12, 12))
        f.write(bytes(random.randrange(256) for _ in range(count * 144)))
    with open(name + "-labels", "wb") as f:
        f.write(struct.pack(">II", 0x801, count) + bytes(i % 3 for i in range(count)))
PICTURES

cat >tiny.job <<'JOB'
name: 'tiny'
net { define {
  layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
    inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
} }
train_data { idx { images: 'train-images' labels: 'train-labels' } scale: 0.00390625 }
batch: 16
threads: 1
pace: 0.02
solver { base_lr: 0.01 lr_policy: 'fixed' }
stop { epochs: 8 }
JOB

wrong=0
complain() {
    echo "$1"
    printf '%s\n' "$2" | sed 's/^/    | /'
    wrong=1
}

# The pane twice in mid-run, and its history at the end.
watch() { # STRATEGY COLUMNS
    local strategy=$1 columns=$2 name=$1-$2 workers=2 shot later lines history
    [ "$strategy" = single ] && workers=1
    tmux -L "$socket" -f /dev/null new-session -d -s "$name" -x "$columns" -y 24 \
        "PACELINE_TUNER=off OMP_WAIT_POLICY=passive '$paceline' train tiny.job --workers $workers \
         --strategy $strategy --out $name >$name.out; echo code \$? >$name.code; sleep 2"
    for _ in $(seq 100); do
        shot=$(tmux -L "$socket" capture-pane -p -t "$name" 2>/dev/null) || break
        grep -q 'loss [0-9]' <<<"$shot" && break
        sleep 0.05
    done
    sleep 1.3
    later=$(tmux -L "$socket" capture-pane -p -t "$name" 2>/dev/null) || later=
    lines=$(grep -c 'loss [0-9]' <<<"$later") || true
    [ "$lines" = 1 ] || complain "$name: $lines progress lines, expected 1:" "$later"
    [ "$later" != "$shot" ] || complain "$name: the progress line stands still:" "$later"
    [ "$(grep -c . <<<"$shot")" = "$(grep -c . <<<"$later")" ] ||
        complain "$name: the screen grew:" "$later"
    for _ in $(seq 400); do [ -s "$name.code" ] && break || sleep 0.05; done
    grep -qx 'code 0' "$name.code" || complain "$name: $(cat "$name.code")" "$later"
    # -J joins lines that the terminal wrapped: only a path may have been wrapped.
    history=$(tmux -L "$socket" capture-pane -p -J -S - -t "$name" 2>/dev/null | sed 's/ *$//' |
        awk -v most="$columns" 'length($0) >= most && (!/\// || /epoch.*loss/)') || true
    [ -z "$history" ] || complain "$name: wrapped:" "$history"
    [ "$wrong" = 0 ] || touch wrong
}

# A warning, a result and an error, as a terminal with these variables shows them: lines with orders.
paint() { # NAME VARIABLE=VALUE...
    local name=$1 esc=$'\033' shot
    shift
    tmux -L "$socket" -f /dev/null new-session -d -s "$name" -x 100 -y 50 \
        "export PACELINE_TUNER=off OMP_WAIT_POLICY=passive; unset NO_COLOR; export $*; \
         '$paceline' train painted.job --out $name; '$paceline' train none.job; \
         touch $name.code; sleep 20"
    for _ in $(seq 400); do [ -e "$name.code" ] && break || sleep 0.05; done
    sleep 0.2
    shot=$(tmux -L "$socket" capture-pane -p -e -t "$name")
    tmux -L "$socket" kill-session -t "$name"
    sed "s/$esc\[\([0-9;]*\)m/<\1>/g" <<<"$shot"
}
{ grep -v '^stop\|^batch\|^pace' tiny.job && cat <<'JOB'; } >painted.job
test_data { idx { images: 'test-images' labels: 'test-labels' } scale: 0.00390625 }
batch: 601
stop { epochs: 2 }
JOB
shot=$(paint colors TERM=screen)
for line in '<33>suspicious: ' '<1>test  *error ' '<31>paceline: .*none.job'; do
    grep -q "^\(<0*>\)*$line" <<<"$shot" || complain "no line is $line" "$shot"
done
for variable in NO_COLOR=1 TERM=dumb; do
    shot=$(paint "${variable%=*}" "$variable")
    grep -q '^suspicious: ' <<<"$shot" && grep -q '^paceline: ' <<<"$shot" ||
        complain "$variable: lines are missing" "$shot"
    ! grep -q '<[0-9;]*[1-9][0-9;]*>' <<<"$shot" || complain "$variable: there are colours" "$shot"
done
[ "$wrong" = 0 ] || touch wrong

for columns in 80 40; do
    for strategy in single sync allreduce async_allreduce diloco easgd mpca pace gossip ps downpour; do
        watch "$strategy" "$columns" &
        [ "$(jobs -rp | wc -l)" -lt 2 ] || wait -n
    done
done
wait
[ ! -e wrong ]

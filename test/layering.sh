#!/bin/sh
# The layers of src/ as a test: reads every #include and every call, and names each line that
# breaks a rule. docs/STYLE.md has the rules in words, layering.awk in tables.
#
#   test/layering.sh [ROOT]       judge ROOT/src and ROOT/include (default: this repository)
#   test/layering.sh --self-test  show, on a small bad tree, that each rule can fail
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rules=$here/layering.awk

judge() (
    cd "$1" || exit 1
    find src include -name '*.[ch]' 2>/dev/null | LC_ALL=C sort | xargs -r awk -f "$rules" || exit 1
)

# Puts CODE into FILE of an otherwise empty tree and expects the complaint TEXT about it, or none
# when TEXT is "clean".
expect() { # FILE TEXT CODE
    rm -rf "$tree/src" "$tree/include"
    mkdir -p "$tree/$(dirname "$1")"
    printf '%s\n' "$3" >"$tree/$1"
    said=$(judge "$tree") && verdict=passes || verdict=fails
    case "$2:$verdict:$said" in
    clean:passes:) ;;
    clean:*) echo "self-test: $1: '$(echo "$3" | head -1)' should pass, but: $said" && wrong=1 ;;
    *:fails:"$1:"[0-9]*": "*"$2"*) ;;
    *) echo "self-test: $1: '$(echo "$3" | head -1)' should fail with '$2', but: $verdict $said" && wrong=1 ;;
    esac
}

self_test() {
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    wrong=0
    expect src/base/a.c "base may not include job" '#include "job/job.h"'
    expect src/job/a.c "job may not include world" '#include "world/world.h"'
    expect src/tensor/a.c "tensor may not include wire" '#include "wire/frame.h"'
    expect src/nn/a.h "nn may not include data" '  #  include "data/source.h"'
    expect src/kv/a.c "kv may not include coll" '#include "coll/tree.h"'
    expect src/strategy/a.c "strategy may not include train" '#include "train/driver.h"'
    expect src/strategy/a.c "strategy may not include sim" '#include "sim/sim.h"'
    expect src/nn/a.c "nn may not include paceline" '#include <paceline/paceline.h>'
    expect src/real/a.c "real may not include tensor" '#include "tensor/vec.h"'
    expect src/real/a.c "real may not include sim" '#include "sim/sim.h"'
    expect src/sim/a.c "sim may not include wire" '#include "wire/frame.h"'
    expect src/sim/a.c "sim may not include real" '#include "real/real.h"'
    expect src/cli/a.c "cli may not include base" '#include "base/err.h"'
    expect src/jni/a.c "jni may not include api" '#include "api/api.h"'
    expect src/jni/a.c "only a world may touch" '    pthread_create(&t, NULL, f, NULL);'
    expect src/jni/a.c "does not end its process" '    abort();'
    expect src/nn/a_test.c "nn may not include train" '#include "train/driver.h"'
    expect include/paceline/a.h "may not include base" '#include "base/err.h"'
    expect src/base/a.c "say the folder" '#include "err.h"'
    expect src/misc/a.c "not one of the layers" 'int x;'
    for header in time.h sys/time.h pthread.h threads.h sys/socket.h sys/epoll.h netinet/in.h \
        fcntl.h unistd.h sys/stat.h poll.h signal.h; do
        expect src/coll/a.c "only a world may ask" "#include <$header>"
    done
    for call in 'clock_gettime(0, &t)' 'time(NULL)' 'rand()' 'random()' 'pthread_create(&t)' \
        'socket(1, 2, 3)' 'fopen(name, "r")' 'open (name, 0)'; do
        expect src/data/a.c "only a world may touch" "    x = $call;"
    done
    expect src/base/a.c "only a world may touch" '    int fd = open(name, O_RDONLY);'
    expect src/nn/a.c "OpenMP stays" '#include <omp.h>'
    expect src/nn/a.c "OpenMP stays" '#pragma omp parallel for'
    expect src/nn/a.c "oneDNN stays" '#include <oneapi/dnnl/dnnl.h>'
    expect src/real/a.c "starts processes" '    fork();'
    expect src/nn/a.c "does not end its process" '    exit(1);'
    expect src/real/a.c "does not end its process" '    abort();'
    expect src/nn/a.c "does not print" '    printf("x");'
    expect src/nn/a.c "does not print" '    fprintf(stderr, "x");'
    expect src/nn/a.c "mutable global" 'static int count;'
    expect src/nn/a.c "unfinished business" '/* TODO: later */'
    expect src/nn/a.c "unfinished business" '/* FIXME */'
    expect src/nn/a.c "more than 800 lines" "$(awk 'BEGIN { while (i++ < 801) print "int x;" }')"

    expect src/nn/a.c clean '#include "tensor/vec.h"'
    expect src/nn/a.c clean "$(awk 'BEGIN { while (i++ < 800) print "int x;" }')"
    expect src/learner/a.c clean '/* time() and exit() are words here */ f("open(", world->open(w));'
    expect src/learner/a.c clean "$(printf '/* #include "x"\n#include "train/x.h"\nexit(1); */')"
    expect src/coll/a.c clean '    world_abort(w); int n = wait_time(w); static const int k = 3;'
    expect src/world/a_test.c clean '#include "sim/sim.h"'
    expect src/train/a.c clean '#include "real/real.h"'
    expect src/api/a.c clean '#include "paceline/paceline.h"'
    expect src/real/a.c clean '#include <pthread.h>'
    expect src/base/file.c clean '    int fd = open(path, O_RDONLY);'
    expect src/base/fault.c clean '    abort();'
    expect src/tensor/a.c clean '#include <omp.h>'
    expect src/jni/a.c clean '#include "paceline/run.h"'
    expect src/jni/a.c clean "$(printf '#include <pthread.h>\nstatic int made;\npthread_mutex_lock(&l);')"
    expect src/cli/a.c clean '    exit(printf("x"));'
    expect src/nn/a_test.c clean '    FILE *f = fopen("x", "r"); exit(1);'
    [ "$wrong" = 0 ]
}

case ${1:-} in
--self-test) self_test ;;
-*) echo "usage: test/layering.sh [--self-test | ROOT]" >&2 && exit 2 ;;
*) judge "${1:-$here/..}" ;;
esac

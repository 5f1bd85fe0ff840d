# shellcheck shell=bash
# Parts of ./run: packages, steps with their seconds, counting, the summary of a run.

# shellcheck disable=SC2034 # read by ./run
installed=0 # packages that this call installed
passed=0
failed=0
skipped=0 # steps, and single tests inside of programs that passed
refuses_skips=0 # 1: a skip that test/skips.txt does not allow is a failure
broken='' # what failed, and the end of what it printed: said again at the end, where it is read
second='' # tests that passed at their second try
step_s=0 # seconds of the last step
durations= # a file: seconds and name of each step and of each test
result=  # the output of the training

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "./run: not root, and no sudo to install packages with" >&2
        return 1
    fi
}

install_missing() { # PACKAGE…
    local package missing=()
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
            missing+=("$package")
    done
    if [ ${#missing[@]} = 0 ]; then
        echo "nothing is missing"
        return 0
    fi
    echo "installing: ${missing[*]}"
    as_root apt-get -q update &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 \
            install --no-install-recommends "${missing[@]}" &&
        installed=${#missing[@]}
}

microseconds() { echo "${EPOCHREALTIME//[!0-9]/}"; }

# Runs COMMAND under a heading; its seconds are left in step_s. A failure is the caller's to judge.
step() { # NAME COMMAND…
    local name=$1 from status=0 tenths
    shift
    printf '\n== %s\n' "$name"
    from=$(microseconds)
    "$@" || status=$?
    tenths=$((($(microseconds) - from) / 100000))
    step_s=$((tenths / 10)).$((tenths % 10))
    [ -z "$durations" ] || printf 'step %s %s\n' "$step_s" "$name" >>"$durations"
    case $status in
    0) printf -- '-- %s: %s s\n' "$name" "$step_s" ;;
    77) printf -- '-- %s: skipped\n' "$name" ;;
    *) printf -- '-- %s: FAILED after %s s\n' "$name" "$step_s" ;;
    esac
    return "$status"
}

# A step that counts: one passed, one failed or, where it ends with 77, one skipped.
count() { # NAME COMMAND…
    local said status=0
    said=$(mktemp)
    step "$@" 2>&1 | tee "$said" || status=$?
    case $status in
    0) passed=$((passed + 1)) ;;
    77) count_skipped_step "$1" ;;
    *) failed=$((failed + 1)) broken+="failed: $1"$'\n'$(tail -n 40 "$said")$'\n' ;;
    esac
    rm -f "$said"
}

# In test/skips.txt steps are tests of the program `run`, with _ for each space.
count_skipped_step() { # NAME
    skipped=$((skipped + 1))
    [ "$refuses_skips" = 1 ] || return 0
    scripts/skips.sh --allowed run "${1// /_}" build && return 0
    failed=$((failed + 1))
    broken+="failed: skipped, which test/skips.txt does not allow here: $1"$'\n'
}

# A step that later ones need: counts only when it fails, and reports this.
need() { # NAME COMMAND…
    step "$@" && return 0
    failed=$((failed + 1)) broken+="failed: $1"$'\n'
    return 1
}

run_ctest() { # DIR CTEST_OPTION…
    local dir=$1
    shift
    env OMP_WAIT_POLICY=passive PACELINE_TUNER=off ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
        ctest --test-dir "$dir" --output-on-failure --no-tests=error "$@"
}

# Did it crash, or did a sanitizer find something? Memory that a test leaks because an assertion ended it is no finding.
broke() { # DIR TEST
    output_of "$@" | awk '
        /FAILED TEST\(S\)/ { asserted = 1 }
        asserted && /ERROR: LeakSanitizer/ { next }
        /ERROR: [A-Za-z]*Sanitizer|WARNING: ThreadSanitizer|runtime error:|does not hold/ { found = 1 }
        /SEGFAULT|Segmentation|aborted/ { found = 1 }
        END { exit !found }'
}

# Tests of real processes have limits of time, whatever else the machine does. Up to three of them that fail in a
# build run once more, alone, unless one of them broke. Those that pass then count as passed, and the result names them.
try_again() { # DIR
    local log=$1/Testing/Temporary names name
    mapfile -t names < <(sed 's/^[0-9]*://' "$log/LastTestsFailed.log" 2>/dev/null)
    [ ${#names[@]} -le 3 ] || return 0
    for name in ${names[@]+"${names[@]}"}; do ! broke "$1" "$name" || return 0; done
    for name in ${names[@]+"${names[@]}"}; do
        [[ $name =~ ^(process|real|page|package|spark)/ ]] || continue
        mkdir -p "$log/first" && mv "$log"/Last*.log "$log/first"
        if step "once more, alone: $name" run_ctest "$1" -R "^$name\$"; then
            second+="$name in $1"$'\n'
            sed -i "\\|^[0-9]*:$name\$|d" "$log/first/LastTestsFailed.log"
        fi
        mv "$log"/first/Last*.log "$log"
    done
}

# Every test of a build counts. ctest's JUnit report has "run" for a test that ran and passed.
tests() { # DIR [CTEST_OPTION…]
    local dir=$1 report=$PWD/$1/tests.xml all=0 good=0
    shift
    rm -f "$report"
    local tried=$second
    step "tests in $dir${PACELINE_ISA:+, $PACELINE_ISA}" run_ctest "$dir" -j 5 --output-junit "$report" "$@" ||
        try_again "$dir"
    if [ -f "$report" ]; then
        all=$(grep -c '<testcase ' "$report" || true)
        good=$(grep -c '<testcase .*status="run"' "$report" || true)
        good=$((good + $(printf '%s' "${second#"$tried"}" | wc -l)))
    fi
    [ -z "$durations" ] || test_durations "$report" "$dir" >>"$durations"
    [ "$all" -gt 0 ] || all=1 # no test is a failure, too
    passed=$((passed + good))
    failed=$((failed + all - good))
    [ "$all" = "$good" ] || broken+=$(failures "$dir")$'\n'
    count_skips "$dir"
}

test_durations() { # REPORT DIR
    sed -n "s|.*<testcase name=\"\([^\"]*\)\".* time=\"\([^\"]*\)\".*|test \2 $2 \1|p" "$1"
}

# Where the time went: the longest steps and the longest tests, in seconds.
longest() {
    printf '\n== the longest steps, seconds\n'
    grep '^step ' "$durations" | cut -d ' ' -f 2- | sort -rn | head -n 12 || true
    printf '\n== the longest tests, seconds\n'
    grep '^test ' "$durations" | cut -d ' ' -f 2- | sort -rn | head -n 20 || true
}

# Skipped tests are counted apart from those that passed.
count_skips() { # DIR
    local here unexpected
    here=$(scripts/skips.sh "$1" | wc -l)
    skipped=$((skipped + here))
    [ "$here" = 0 ] || echo "$here tests were skipped: scripts/skips.sh $1 names them"
    [ "$refuses_skips" = 1 ] || return 0
    unexpected=$(scripts/skips.sh --unexpected "$1")
    [ -z "$unexpected" ] && return 0
    failed=$((failed + 1))
    broken+="failed: skipped in $1, which test/skips.txt does not allow here:"$'\n'$unexpected$'\n'
}

# The output of a test in its last run.
output_of() { # DIR TEST
    awk -v name="Testing: $2" '
        index($0, name) && substr($0, index($0, name)) == name { on = 1 }
        on
        /^<end of output>/ { on = 0 }' "$1/Testing/Temporary/LastTest.log"
}

# Of every failed test of a build: its name, and the end of its output.
failures() { # DIR
    local log=$1/Testing/Temporary name
    sed 's/^[0-9]*://' "$log/LastTestsFailed.log" 2>/dev/null | while IFS= read -r name; do
        echo "failed: $name in $dir"
        output_of "$1" "$name" | tail -n 40
    done
    [ -s "$log/LastTestsFailed.log" ] || echo "failed: tests in $dir"
}

# The first of PREFIX-001, PREFIX-002, … that is free.
next_run() { # PREFIX
    local n=1
    while [ -e "$(printf '%s-%03d' "$1" "$n")" ]; do n=$((n + 1)); done
    printf '%s-%03d\n' "$1" "$n"
}

# A number of the JSON object in `result`; nothing when it is null or not there.
number() { # KEY
    printf '%s\n' "$result" |
        sed -n "s/.*\"$1\"[[:space:]]*:[[:space:]]*\([-+.0-9eE][-+.0-9eE]*\).*/\1/p" | tail -n 1
}

percent() { # FRACTION
    awk -v x="$1" 'BEGIN { if (x == "") print "-"; else printf "%.2f %%\n", 100 * x }'
}

rate() { # COUNT SECONDS
    awk -v n="$1" -v s="$2" 'BEGIN { if (s > 0) printf "%.0f\n", n / s; else print "-" }'
}

summary() { # INSTALL_S BUILD_S TRAINING_S RUN_DIRECTORY
    printf '\n== result\n'
    printf '%-18s %s\n' \
        "test error" "$(percent "$(number test_error)")" \
        "validation error" "$(percent "$(number validation_error)")" \
        "samples/s" "$(rate "$(number samples)" "$(number wall_s)")" \
        "seconds" "install $1, build $2, training $3" \
        "run directory" "$4"
}

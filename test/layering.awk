# The rules of test/layering.sh: which folder may include which, and the parts of libc that each may use.
# Reads the files named on the command line, as paths below the root.

function put(words, table, value,    list, n, i) {
    n = split(words, list, " ")
    for (i = 1; i <= n; i++) table[list[i]] = value
}

BEGIN {
    # base < job < world < {tensor, wire} < ...: a folder sees itself and lower numbers.
    put("base", rank, 1)
    put("job", rank, 2)
    put("world", rank, 3)
    put("tensor wire", rank, 4)
    put("nn data group", rank, 5)
    put("coll kv optim model", rank, 6)
    put("learner plan", rank, 7)
    put("strategy", rank, 8)
    put("train", rank, 9)
    put("api", rank, 10)
    # The two worlds, the command and the library for Java stand outside of that order.
    put("base job world wire", real_may, 1)
    put("base job world", sim_may, 1)
    put("real sim cli jni", aside, 1)
    put("cli jni", host, 1)
    put("train api", names_worlds, 1)

    # Calls that only a world may make.
    put("time.h sys/time.h pthread.h threads.h sys/socket.h sys/epoll.h sys/eventfd.h fcntl.h " \
        "unistd.h sys/stat.h sys/types.h sys/mman.h dirent.h poll.h signal.h netdb.h", header, 1)
    # Large pages are memory, which no world has; `mmap` stays a call of the worlds.
    put("src/base/arena.c:sys/mman.h", may_include, 1)
    put("clock_gettime clock_nanosleep gettimeofday clock time nanosleep sleep usleep", call, "clock")
    put("rand srand random srandom rand_r drand48 getrandom", call, "random numbers")
    put("thrd_create mtx_lock cnd_wait", call, "threads")
    put("socket connect accept accept4 listen epoll_wait poll select", call, "sockets")
    put("fopen freopen open openat creat opendir mkstemp rename unlink remove mkdir fsync mmap",
        call, "files")
    put("signal sigaction raise", call, "signals")
    put("fork vfork execv execve execvp execl execlp posix_spawn system popen", process, 1)
    put("exit _exit _Exit quick_exit abort", leave, 1)
    put("printf vprintf puts putchar perror", prints, 1)
}

function bad(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    failures++
}

# The line without comments and with empty strings; a comment may span lines.
function code_of(line,    out, at, c) {
    out = ""
    while (line != "") {
        if (in_comment) {
            at = index(line, "*/")
            if (!at) return out
            line = substr(line, at + 2)
            in_comment = 0
        } else if (match(line, /\/\*|\/\/|"|'/)) {
            out = out substr(line, 1, RSTART - 1)
            c = substr(line, RSTART, RLENGTH)
            line = substr(line, RSTART + RLENGTH)
            if (c == "//") return out
            if (c == "/*") in_comment = 1
            else line = after_quote(line, c)
        } else {
            return out line
        }
    }
    return out
}

function after_quote(line, quote,    i, c) {
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (c == "\\") i++
        else if (c == quote) return substr(line, i + 1)
    }
    return ""
}

FNR == 1 {
    split(FILENAME, part, "/")
    public = part[1] == "include"
    folder = public ? "include/paceline" : part[2]
    is_test = FILENAME ~ /_test\.c$/
    outside = folder == "real" || folder == "sim" || folder == "cli" ||
              FILENAME == "src/base/file.c"
    in_comment = 0
    if (!public && !(folder in rank) && !(folder in aside))
        bad("src/" folder " is not one of the layers")
}

FNR == 801 && !public { bad("more than 800 lines: look for the second idea") }
/TODO|FIXME/ { bad("unfinished business: do it, or say plainly in docs what is missing") }

/^[ \t]*#[ \t]*include[ \t]*"/ && !in_comment {
    split($0, quoted, "\"")
    judge_own(quoted[2])
    next
}
/^[ \t]*#[ \t]*include[ \t]*</ && !in_comment {
    split($0, quoted, /[<>]/)
    if (quoted[2] ~ /^paceline\//) judge_own(quoted[2])
    else judge_system(quoted[2])
    next
}
{ judge_code(code_of($0)) }

function judge_own(path,    to) {
    to = path
    if (!sub(/\/.*/, "", to)) {
        if (!is_test) bad("\"" path "\": say the folder too")
    } else if (!allowed(to)) {
        bad("\"" path "\": " folder " may not include " to)
    }
}

function allowed(to) {
    if (to == "paceline") return public || folder == "api" || (folder in host) || is_test
    if (public) return 0
    if (to == folder) return 1
    if (folder in host) return 0
    if (to == "real" || to == "sim") return (folder in names_worlds) || is_test
    if (!(to in rank)) return is_test && !(to in host)
    if (folder == "real" && !is_test) return to in real_may
    if (folder == "sim" && !is_test) return to in sim_may
    return (folder in aside) || rank[to] < rank[folder]
}

function judge_system(path) {
    if (is_test) return
    if (path == "omp.h" && folder != "tensor") bad("<omp.h>: OpenMP stays inside src/tensor")
    if (path ~ /dnnl/ && folder != "tensor") bad("<" path ">: oneDNN stays inside src/tensor")
    if (folder == "jni" && (path == "pthread.h" || path == "signal.h")) return
    if ((FILENAME ":" path) in may_include) return
    if (!outside && ((path in header) || path ~ /^(netinet|arpa|linux)\//))
        bad("<" path ">: only a world may ask the machine for that")
}

function judge_code(code,    name, before) {
    if (is_test) return
    if (code ~ /^[ \t]*#[ \t]*pragma[ \t]+omp/ && folder != "tensor")
        bad("OpenMP stays inside src/tensor")
    if (code ~ /^static / && code !~ /const |\(|inline |_Thread_local / && code ~ /[=;]/ &&
        !(folder in host))
        bad("a mutable global: let state hang off an object")
    if (code ~ /(^|[^A-Za-z0-9_])(stdout|stderr)([^A-Za-z0-9_]|$)/ && folder != "cli")
        bad("the library does not print: log, or return a message")
    while (match(code, /[A-Za-z_][A-Za-z_0-9]*[ \t]*\(/)) {
        before = RSTART > 1 ? substr(code, RSTART - 1, 1) : ""
        if (before == ">" && substr(code, RSTART - 2, 1) != "-") before = ""
        name = substr(code, RSTART, RLENGTH - 1)
        code = substr(code, RSTART + RLENGTH)
        sub(/[ \t]+$/, "", name)
        if (before != "." && before != ">") judge_call(name) # a slot of a table is no libc call
    }
}

function judge_call(name) {
    if (folder == "jni" && (name ~ /^pthread_mutex_/ || name == "pthread_sigmask")) return
    if (!outside && ((name in call) || name ~ /^pthread_/))
        bad(name "(): only a world may touch " ((name in call) ? call[name] : "threads"))
    if (name ~ /^omp_/ && folder != "tensor") bad(name "(): OpenMP stays inside src/tensor")
    if (folder == "cli") return
    if (name in process) bad(name "(): only the command starts processes")
    if ((name in leave) && FILENAME != "src/base/fault.c")
        bad(name "(): the library does not end its process")
    if (name in prints) bad(name "(): the library does not print: log, or return a message")
}

END { exit failures > 0 }

/* A real run of the tiny job as tests of whole runs watch it: the command, its workers, the events
 * in its directory. */
#ifndef PL_LIB_REAL_RUN_H
#define PL_LIB_REAL_RUN_H

#include "process.h"
#include "run_files.h"
#include "tiny_job.h"

/* For waits without a bound of their own; only a failure takes as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { REAL_LIMIT_S = 300 };
#else
enum { REAL_LIMIT_S = 120 };
#endif

/* Wait for something to become true. */
#define UNTIL(limit_s, condition)                                                   \
    for (double last_ = process_now(), until_ = last_ + (limit_s); !(condition);) { \
        until_ = process_not_stopped(&last_, until_);                               \
        if (last_ > until_)                                                         \
            fail_msg("not within %g s: %s", (limit_s) + 0., #condition);            \
        process_nap(0.005);                                                         \
    }

struct real_run {
    struct process p;
    char dir[128];
};

static inline struct real_run real_new(struct tiny *t)
{
    struct real_run r = {0};
    tiny_out(t, r.dir);
    return r;
}

/* `paceline train` of the tiny job into r->dir, with further arguments, ended by NULL. */
static inline void real_start(struct tiny *t, struct real_run *r, const char *const *more)
{
    const char *argv[PROCESS_ARGS_MAX] = {"train", t->job, "--out", r->dir, "--json"};
    for (size_t n = 5; *more; n++)
        argv[n] = *more++;
    process_start(&r->p, t->folder, argv);
}

#define START(t, r, ...) real_start(t, r, (const char *const[]){__VA_ARGS__, NULL})

/* A whole run of the job in this world, `train` or `sim`, with these fields set, ended by NULL. */
static inline void real_execute(struct tiny *t, const char *world, const char *job, char dir[128],
                                const char *const *set)
{
    const char *argv[PROCESS_ARGS_MAX] = {world, job, "--out", tiny_out(t, dir)};
    size_t n = 4;
    if (strcmp(world, "sim") == 0) {
        argv[n++] = "--cluster";
        argv[n++] = t->cluster;
    }
    for (; *set; set++) {
        argv[n++] = "--set";
        argv[n++] = *set;
    }
    struct process p;
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    if (p.code != 0)
        fail_msg("%s: code %d; it said:\n%s", world, p.code, p.err);
    process_release(&p);
}

#define EXECUTE(t, world, job, dir, ...) \
    real_execute(t, world, job, dir, (const char *const[]){__VA_ARGS__, NULL})

static inline int real_exchanges(const struct real_run *r)
{
    return run_count(r->dir, "exchange", NULL, NULL);
}

static inline int real_members(const struct real_run *r, const char *what)
{
    return run_count(r->dir, "member", "what", what);
}

/* The end, with that code: stdout holds one JSON object on one line, with the given reason; the
 * output has no terminal control characters. */
static inline void real_end(struct real_run *r, int code, const char *reason)
{
    process_wait(&r->p, REAL_LIMIT_S);
    if (r->p.code != code)
        fail_msg("code %d, expected %d; it said:\n%s", r->p.code, code, r->p.err);
    assert_null(strpbrk(r->p.out, "\r\033"));
    assert_null(strpbrk(r->p.err, "\r\033"));
    assert_ptr_equal(strchr(r->p.out, '\n'), r->p.out + strlen(r->p.out) - 1);
    cJSON *end = cJSON_Parse(r->p.out);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(end, "kind")), "end");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(end, "reason")), reason);
    cJSON_Delete(end);
}

static inline bool real_is_worker(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/cmdline", (long)pid);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0, name = sizeof "paceline";
    if (f)
        fclose(f);
    text[n] = '\0';
    return n > name && strcmp(text, "paceline") == 0 && strcmp(text + name, "worker") == 0;
}

/* Wait for n workers of the driver, each a child process of its own. */
static inline void real_workers(struct real_run *r, size_t n, pid_t child[PROCESS_CHILDREN_MAX])
{
    UNTIL(REAL_LIMIT_S, process_poll(&r->p) || process_children(r->p.pid, child) == n);
    if (r->p.ended)
        fail_msg("ended before it began; it said:\n%s", r->p.err);
    for (size_t i = 0; i < n; i++)
        UNTIL(10, real_is_worker(child[i])); /* once it is past its exec */
}

static inline bool real_has_ended(const pid_t *pid, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (process_is_alive(pid[i]))
            return false;
    return true;
}

#endif

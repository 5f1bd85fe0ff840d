/* The shape tuner finds the fastest of several kernels for one operation on this machine. Each is
 * run once in the life of a machine. A table of text lines keeps the fastest, which later processes
 * load instead of measuring.
 *
 *     paceline kernels 1
 *     KEY | NAME | TIME ns
 *
 * The key contains everything that a kernel's speed depends on; the name is that of one of the
 * present candidates. A table affects speed alone, never results: a name that is no candidate, and
 * a line that is no such line, count for nothing.
 *
 * A choice made amid others' work, or before a change of the machine, may be a bad one. So a
 * process may check a few of those that it finds in its table: the one kept against the others, and
 * then one that is faster by a tenth, each time that the two are compared, takes its place.
 *
 * The clock is the caller's. Not thread-safe: one tuner, one caller at a time. */
#ifndef PL_TENSOR_TUNER_H
#define PL_TENSOR_TUNER_H

#include "base/bytes.h"
#include "base/open_watch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TUNER_KEY_MAX = 255, TUNER_NAME_MAX = 63 }; /* bytes, of printable ASCII without '|' */

enum { TUNER_SECONDS = 20 }; /* of timing in a tuner's life; it ends with a key, not amid one */

struct tuner;

/* The choices since the last tuner_finish. */
struct tuner_news {
    size_t timed; /* choices; and the keys timed for them */
    double seconds;
    size_t mended;    /* choices of earlier processes that were slower than another */
    size_t left;      /* keys that TUNER_SECONDS left no time for */
    size_t disturbed; /* keys that could not be timed, since the machine was busy: none is kept */
};

struct tuner_host {
    int64_t (*now)(void *user); /* nanoseconds */
    /* There are new choices to keep, or keys that go without; NULL: nothing is kept. Called by
     * tuner_finish. */
    void (*keep)(void *user, struct tuner *tuner, const struct tuner_news *news);
    void *user;
    /* (optional) Nanoseconds that threads of this process were ready to run and had no processor,
     * until now. A run in which that grows is no measurement. */
    int64_t (*delay)(void *user);
};

/* NULL when memory runs out. */
struct tuner *tuner_create(const struct tuner_host *host);
void tuner_free(struct tuner *tuner); /* NULL is allowed */

/* Run candidate i: OK, or it cannot be run and is left out. The first run of each is not timed. */
typedef int (*tuner_run)(void *user, size_t i);

/* The name kept for the key, valid until the next call that is given the tuner; NULL: there is
 * none. */
const char *tuner_find(const struct tuner *tuner, const char *key);

/* The time of the choice under that key, in ns; 0: there is none. */
int64_t tuner_time(const struct tuner *tuner, const char *key);

/* From now on some of the kept choices are checked when they are requested. Of processes with
 * successive numbers one in eight, or in half of the table's keys if that is more, checks a key,
 * and begins with another rival than the previous one. The checks take about 50 ms of a tuner's
 * life, and end with the first run that other processes disturb: without a host's `delay` nothing
 * is checked. */
void tuner_check(struct tuner *tuner, uint64_t number);

/* Would tuner_choose check the key's choice? */
bool tuner_checks(const struct tuner *tuner, const char *key);

/* Which of the `n` names to take: the one that is kept for the key, if it is among them; else each
 * is timed, and the fastest kept. One that is listed first is preferred to those that are faster by
 * less than a fiftieth. n where none could be run, or others took the processors too often: then
 * nothing is kept, and a later process times the key. */
size_t tuner_choose(struct tuner *tuner, const char *key, const char *const *names, size_t n,
                    tuner_run run, void *user);

/* Is there time left to time this key's candidates? If not, it is counted, once. */
bool tuner_has_time(struct tuner *tuner, const char *key);

/* Time nothing more: training has begun, and does not wait for it. */
void tuner_stop(struct tuner *tuner);

/* Time nothing until tuner_continue: plans made meanwhile show whether all fits. tuner_continue
 * returns the number of keys that would have been timed. */
void tuner_hold(struct tuner *tuner);
size_t tuner_continue(struct tuner *tuner);

/* Call `watch` (borrowed; may be NULL) for each run from now on: "kernel timings", whose total is
 * unknown. After it cancels, nothing more is timed or kept until another watch is set. */
void tuner_set_watch(struct tuner *tuner, const struct open_watch *watch);

/* Seconds spent on timing candidates until now, by the host's clock; 0 for NULL. */
double tuner_seconds(const struct tuner *tuner);

/* Pass new choices since the last call, if there are any, to the host's `keep`. */
void tuner_finish(struct tuner *tuner);

/* Is it the text of a table, of this version or another, by its first line? */
bool tuner_is_table(const char *text, size_t len);

/* Take over the choices in `text` for keys that have none yet. Returns their number; foreign or
 * damaged lines are ignored. */
size_t tuner_load(struct tuner *tuner, const char *text, size_t len);

/* Append the whole table, by keys in order. ERR_NOMEM */
int tuner_text(struct tuner *tuner, struct buf *out);

#endif

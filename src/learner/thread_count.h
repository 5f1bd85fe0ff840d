/* How many threads compute, on a machine that other processes use, too. A pure function from
 * measurements to a number of threads.
 *
 * A step of T threads ends when the slowest of them ends. Where another process takes the processor
 * of one, the other T - 1 wait for it, and T - 1 threads may be faster than T. The scheduler tells
 * how long threads were ready to run and had no processor (`delay`). Delay alone decides nothing:
 * it starts a trial, in which windows of steps with the present number of threads and with another
 * one alternate. The other number is adopted if its median window is at least 5 % faster. Trials
 * that change nothing become rarer, from every second to every minute. */
#ifndef PL_LEARNER_THREAD_COUNT_H
#define PL_LEARNER_THREAD_COUNT_H

#include <stdbool.h>
#include <stdint.h>

enum { THREAD_COUNT_ROUNDS = 3 }; /* windows of each number in a trial */

#define THREAD_COUNT_WINDOW_NS (INT64_C(250) * 1000 * 1000) /* of computing, at least, */
enum { THREAD_COUNT_WINDOW_STEPS = 2 };                     /* and this many steps */

/* Some steps in a row with one number of threads. */
struct thread_window {
    int64_t now;      /* ns of a monotonic clock: the window's end */
    int64_t computed; /* ns that its steps computed, > 0 */
    int64_t delay;    /* ns, over all threads, that they were ready and had no processor */
    uint64_t records; /* that went through the net, > 0 */
};

struct thread_count {
    int most;    /* threads at the start; never more */
    int now;     /* that compute, outside a trial */
    int other;   /* the number on trial; 0: there is no trial */
    int windows; /* of the trial that have ended; the first is of `other` and only warms up */
    double present[THREAD_COUNT_ROUNDS], tried[THREAD_COUNT_ROUNDS]; /* ns a record */
    double delayed;       /* share of `now` threads' time, when the trial began */
    int64_t patience, at; /* ns: no trial starts before at + patience; at 0: not begun */
    bool is_stopped;
};

/* The result of an adopted trial. */
struct thread_change {
    int from, to;
    double delayed;   /* share of the `from` threads' time that was delay; 0 to 1 and a bit more */
    double ns_before; /* per record with `from` threads, the median */
    double ns_after;  /* and with `to` */
};

void thread_count_init(struct thread_count *c, int most);

/* Threads for the steps of the next window. true: the number outside trials has changed, and
 * `change` says how. */
bool thread_count_next(struct thread_count *c, const struct thread_window *w, int *threads,
                       struct thread_change *change);

/* The number on trial cannot be had (out of memory): there will be no trial any more. */
void thread_count_stop(struct thread_count *c);

#endif

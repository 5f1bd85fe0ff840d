/* Tasks are threads. A failed assertion ends a task without unwinding it: the world is poisoned,
 * every wait returns ERR_CANCELLED from then on, and the thread stands still until the world is
 * closed; only the main task's thread, which is the user's, returns to real_run. */
#ifndef PL_REAL_REAL_TASK_H
#define PL_REAL_REAL_TASK_H

#include "base/fault.h"
#include "world/world.h"

#include <pthread.h>
#include <setjmp.h>

struct node;

enum task_state { TASK_RUNS, TASK_ENDED, TASK_PARKED };

struct task {
    struct fault_sink sink; /* first: a sink is its task */
    struct node *node;
    const char *name;
    task_fn fn;
    void *arg;
    jmp_buf *unwind; /* of the main task */
    pthread_t thread;
    pthread_cond_t wake; /* something it waits for may hold */
    bool poked;          /* `wake` has been signalled, and the task has not looked since */
    enum task_state state;
    bool cancelled;
    int result;
    const struct wait_for *set; /* its events, while it waits */
    int n;
    int64_t spin;    /* in a hurry: for how long its waits look; -1: it is in none */
    bool helps;      /* it will process the requests that this call leaves */
    bool wants_role; /* waits for the role of the server */
    struct task *next;
};

struct tasks {
    struct task *first;
    pthread_cond_t ended; /* one ended or was parked, or the parked may go */
    bool poisoned, release;
    /* Where compute threads are nice: the thread that called real_run is not, and makes the threads
     * of others, since one made by a nice thread is as nice and cannot become less so. */
    bool nursing;
    struct task *unborn;    /* the one that it is to make a thread for; NULL: none */
    int *reported;          /* receives the result of its creation */
    pthread_cond_t nursery; /* one is to be made, or has been */
    struct err bug;         /* the failure that poisoned the world */
};

int tasks_init(struct tasks *tasks);
/* Cancel tasks that were not joined and wait for their ends; release the parked ones. */
void tasks_release(struct node *node);

/* Start a thread for `task`, whose fn and arg are set; the caller owns it. ERR_NOMEM. */
int task_start(struct node *node, struct task *task, const char *name);
/* Wait for its end, whatever that takes. */
void task_finish(struct node *node, struct task *task);

struct task *task_current(const struct node *node); /* the calling thread's, the lock held */

/* Run fn(arg) as a task: on the calling thread or, where compute threads are nice, on one of its
 * own while the calling thread waits. */
int task_run_main(struct node *node, task_fn fn, void *arg, struct err *err);

int task_init_cond(pthread_cond_t *cond); /* on the monotonic clock */
/* Wait on `cond`, the lock held. false: the deadline has passed. */
bool task_wait_until(struct node *node, pthread_cond_t *cond, int64_t deadline);

/* The seam's. */
int task_spawn(struct world *w, const char *name, task_fn fn, void *arg, struct task **out);
void task_cancel(struct world *w, struct task *task);
int task_join(struct world *w, struct task *task, int64_t deadline, int *result);
int task_wait(struct world *w, const struct wait_for *set, int n, int64_t deadline,
              struct wake *out);

/* Wake the tasks that wait for this, the lock held. `of` is a message for WAIT_MESSAGE, a receive
 * for WAIT_RECV (only its address matters), a signal's number, a peer, a task; NULL for
 * WAIT_PEER. */
void task_wake(struct node *node, enum wait_kind kind, const void *of);
/* A post that points here has ended; NULL allowed. */
void task_wake_ended(struct node *node, struct ended *ended);

#endif

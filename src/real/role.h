/* The role of the task that serves the connections. One thread at a time has the role of the
 * server: it alone touches links, waits for their events and does what others ask to be tended.
 * Mostly that is the I/O thread. A task in a hurry takes the role when it has something to send and
 * while it waits, and saves the way from one thread to another; the I/O thread keeps back as long
 * as such a task, or another, comes again within ROLE_LEAVE, and takes over when none does.
 *
 * The I/O thread gives the role up while it watches, that is, sleeps in epoll_wait: what it is told
 * there is served only if no task has had the role in the meantime, else it is old and told again
 * to the task. A task that sleeps in epoll_wait keeps the role, and is woken by the event. All
 * functions want the lock held, but for the seam's. */
#ifndef PL_REAL_ROLE_H
#define PL_REAL_ROLE_H

#include "world/world.h"

struct io;
struct node;
struct task;

#define ROLE_LEAVE    (WORLD_SECOND / 1000)     /* how long connections may be left alone, */
#define ROLE_BACK_MAX (4 * WORLD_SECOND / 1000) /* and after a task that has served for a while */

struct role {
    struct task *holder; /* NULL: no thread serves */
    bool asleep;         /* the holder, a task, is in epoll_wait for long */
    bool watching;       /* the I/O thread is, and has not the role */
    bool idle;           /* the I/O thread waits until it is summoned: the holder sleeps for long */
    bool asked;          /* the I/O thread is to take the role at once */
    bool lost;           /* its holder has failed: no thread serves any more */
    bool unseen;         /* events were pending when the last holder left */
    uint64_t turns;      /* how often tasks have had it */
    int64_t left_at;     /* when a task has last given it up */
    int64_t watch_until; /* time until which the I/O thread sleeps in epoll_wait */
    unsigned hurried;    /* tasks in a hurry */
    unsigned wanting;    /* those that wait for the role */
};

/* The I/O thread: wait until the role is to be taken, and take it. false: there is none any more.
 */
bool role_await(struct node *node);
/* Give the role up, after all requests were processed. */
void role_leave(struct node *node);

/* Summon another thread to process the requests. */
void role_summon(struct node *node);
/* One more thing may hold that this task waits for, or it is to end. */
void role_poke(struct node *node, struct task *task);

/* A task with busy polling that waits: take the role, if it is free, and serve pending events;
 * without any, poll until `spin_until`, then sleep until the deadline. Returns whenever something
 * may have changed. false: the deadline has passed. */
bool role_step(struct node *node, struct task *task, int64_t deadline, int64_t spin_until);

/* Around what a task does in a call that may leave something to be tended: a task in a hurry does
 * it itself, at the end. */
struct task *role_help_begin(struct node *node); /* NULL: the task is in no hurry */
void role_help_end(struct node *node, struct task *task);

/* A task ends, or has failed. */
void role_forget(struct node *node, struct task *task);
void role_fail(struct node *node, struct task *task);

/* The seam's. */
void role_busy_poll(struct world *w, int64_t spin);

#endif

#define _GNU_SOURCE
#include "real/role.h"

#include "real/connect.h"
#include "real/node.h"

#include <sched.h>
#include <sys/epoll.h>

bool role_await(struct node *node)
{
    struct role *role = &node->io.role;
    struct task *self = &node->io.task;
    uint64_t turns = 0;
    int64_t back = ROLE_LEAVE; /* until it looks again */
    while (!role->lost) {
        self->poked = false;
        int64_t now = real_now(), next = WORLD_FOREVER;
        bool due = role->asked || node->io.closing || now >= role->left_at + ROLE_LEAVE;
        if (!role->holder && due) {
            role->holder = self;
            role->asked = false;
            return true;
        }
        bool served = role->turns != turns;
        turns = role->turns;
        back = !served ? ROLE_LEAVE : back < ROLE_BACK_MAX ? 2 * back : back;
        role->idle = role->holder && role->asleep && !served;
        if (!role->idle)
            next = role->holder || served ? now + back : role->left_at + ROLE_LEAVE;
        task_wait_until(node, &self->wake, next);
        role->idle = false;
    }
    return false;
}

/* One of those that wait for the role may have it. */
static void offer_role(struct node *node)
{
    struct role *role = &node->io.role;
    if (!role->wanting || role->holder)
        return;
    for (struct task *task = node->tasks.first; task; task = task->next)
        if (task->wants_role) {
            pthread_cond_signal(&task->wake);
            return;
        }
}

void role_leave(struct node *node)
{
    struct role *role = &node->io.role;
    io_tend_all(node);
    bool was_task = role->holder != &node->io.task;
    bool watched = role->watching || !was_task; /* else the I/O thread looks before it sleeps */
    role->unseen = watched && io_arm(&node->io);
    role->holder = NULL;
    if (was_task) {
        role->left_at = real_now();
        if (role->idle)
            pthread_cond_signal(&node->io.task.wake);
        if (role->watching && (role->unseen || connect_deadline(&node->io) < role->watch_until))
            io_kick(&node->io);
    }
    offer_role(node);
}

static void take_role(struct role *role, struct task *task)
{
    PL_ASSERT(!role->holder);
    role->holder = task;
    role->turns++;
}

void role_summon(struct node *node)
{
    struct role *role = &node->io.role;
    if (role->holder) {
        if (role->asleep)
            io_kick(&node->io);
        return; /* else it looks before it sleeps or leaves */
    }
    struct task *self = role->hurried ? task_current(node) : NULL;
    if (self && self->helps)
        return;
    if (role->watching) {
        io_kick(&node->io);
    } else {
        role->asked = true;
        pthread_cond_signal(&node->io.task.wake);
    }
}

void role_poke(struct node *node, struct task *task)
{
    if (node->io.role.holder == task && node->io.role.asleep) {
        io_kick(&node->io);
    } else if (!task->poked) {
        task->poked = true;
        pthread_cond_signal(&task->wake);
    }
}

/* ---- tasks in a hurry ---- */

static bool await_role(struct node *node, struct task *task, int64_t deadline)
{
    task->wants_role = true;
    node->io.role.wanting++;
    bool in_time = task_wait_until(node, &task->wake, deadline);
    node->io.role.wanting--;
    task->wants_role = false;
    return in_time;
}

bool role_step(struct node *node, struct task *task, int64_t deadline, int64_t spin_until)
{
    struct io *io = &node->io;
    struct role *role = &io->role;
    if (role->lost || (role->holder && role->holder != task))
        return await_role(node, task, deadline);
    if (!role->holder)
        take_role(role, task);
    if (io->to_tend) {
        io_tend_all(node);
        return true;
    }
    int64_t now = real_now();
    bool spin = now < spin_until;
    struct epoll_event events[IO_EVENTS_MAX];
    role->asleep = !spin && now < deadline;
    node_unlock(node);
    if (spin) /* a process on the same core may have work, now that this one has sent */
        sched_yield();
    int n = io_poll(io, events, role->asleep ? deadline : 0);
    if (role->asleep) {
        node_lock(node);
        role->asleep = false;
        node_unlock(node);
    }
    io_serve(node, events, n);
    connect_sweep(node);
    node_lock(node);
    return now < deadline;
}

struct task *role_help_begin(struct node *node)
{
    struct task *task = node->io.role.hurried ? task_current(node) : NULL;
    if (!task || task->spin < 0)
        return NULL;
    task->helps = true;
    return task;
}

void role_help_end(struct node *node, struct task *task)
{
    struct role *role = &node->io.role;
    if (!task)
        return;
    task->helps = false;
    if (!role->holder && !role->lost && node->io.to_tend)
        take_role(role, task);
    if (role->holder == task)
        role_leave(node);
    else
        offer_role(node); /* it may have been offered to this one */
}

void role_forget(struct node *node, struct task *task)
{
    struct role *role = &node->io.role;
    if (task->spin < 0)
        return;
    task->spin = -1;
    role->hurried--; /* the next call may be microseconds away: wake no thread */
}

void role_fail(struct node *node, struct task *task)
{
    struct role *role = &node->io.role;
    role_forget(node, task);
    task->helps = false;
    if (role->holder != task)
        return;
    role->lost = true; /* a link may be in an unknown state */
    pthread_cond_signal(&node->io.task.wake);
    io_kick(&node->io);
}

void role_busy_poll(struct world *w, int64_t spin)
{
    struct node *node = node_of(w);
    node_lock(node);
    struct role *role = &node->io.role;
    struct task *task = task_current(node);
    if (task && spin < 0) {
        role_forget(node, task);
        role->asked = role->hurried == 0;
        pthread_cond_signal(&node->io.task.wake);
    } else if (task) {
        if (task->spin < 0) {
            role->hurried++;
            role->left_at = real_now();
        }
        task->spin = spin;
    }
    node_unlock(node);
    PL_ASSERT(task);
}

/* The one place where a task waits: it looks whether something holds, and else sleeps on a
 * condition of its own until an event that may matter to it; or serves, if it is in a hurry. */
#include "real/node.h"

#include <stdatomic.h>

struct task *task_current(const struct node *node)
{
    pthread_t self = pthread_self();
    struct task *task = node->tasks.first;
    while (task && !pthread_equal(task->thread, self))
        task = task->next;
    return task;
}

static bool wait_holds(struct node *node, const struct wait_for *want, struct wake *out)
{
    switch (want->kind) {
    case WAIT_MESSAGE: out->msg = mailbox_take(node, want); return out->msg != NULL;
    case WAIT_SIGNAL: return node->signals[want->signal] > want->seen;
    case WAIT_RECV: return want->recv->status != POST_PENDING;
    case WAIT_ENDED: return atomic_load(&want->ended->times) > want->seen;
    case WAIT_CREDIT: return peer_has_credit(node, want->peer);
    case WAIT_PEER: return peer_change(node, &out->peer, &out->up);
    case WAIT_TASK: return want->task->state != TASK_RUNS;
    }
    return false;
}

static bool any_holds(struct node *node, const struct wait_for *set, int n, struct wake *out)
{
    for (int i = 0; i < n; i++) {
        struct wake wake = {.which = i};
        if (wait_holds(node, &set[i], &wake)) {
            *out = wake;
            return true;
        }
    }
    return false;
}

static int wait_locked(struct node *node, struct task *task, int64_t deadline, struct wake *out)
{
    int64_t spin_until = task->spin > 0 ? real_now() + task->spin : 0;
    for (bool in_time = true;;) {
        task->poked = false;
        if (task->cancelled || node->tasks.poisoned)
            return ERR_CANCELLED;
        if (any_holds(node, task->set, task->n, out))
            return OK;
        if (!in_time)
            return ERR_TIMEOUT;
        in_time = task->spin >= 0 ? role_step(node, task, deadline, spin_until)
                                  : task_wait_until(node, &task->wake, deadline);
    }
}

int task_wait(struct world *w, const struct wait_for *set, int n, int64_t deadline,
              struct wake *out)
{
    PL_ASSERT(n >= 0 && n <= WORLD_WAITS_MAX);
    for (int i = 0; i < n; i++)
        PL_ASSERT(set[i].kind != WAIT_SIGNAL || set[i].signal < WORLD_SIGNALS);
    struct node *node = node_of(w);
    int rc = ERR_BUG;
    node_lock(node);
    struct task *task = task_current(node);
    if (task) {
        struct task *hurried = role_help_begin(node);
        task->set = set;
        task->n = n;
        rc = wait_locked(node, task, deadline, out);
        task->set = NULL;
        task->n = 0;
        role_help_end(node, hurried);
    }
    node_unlock(node);
    PL_ASSERT(task);
    return rc;
}

static bool waits_for(const struct wait_for *want, enum wait_kind kind, const void *of)
{
    if (want->kind != kind)
        return false;
    switch (kind) {
    case WAIT_MESSAGE: return mailbox_matches(want, of);
    case WAIT_SIGNAL: return want->signal == *(const uint32_t *)of;
    case WAIT_RECV: return want->recv == of;
    case WAIT_ENDED: return want->ended == of;
    case WAIT_CREDIT: return want->peer == ((const struct peer *)of)->number;
    case WAIT_PEER: return true;
    case WAIT_TASK: return want->task == of;
    }
    return false;
}

void task_wake(struct node *node, enum wait_kind kind, const void *of)
{
    for (struct task *task = node->tasks.first; task; task = task->next)
        for (int i = 0; i < task->n; i++)
            if (waits_for(&task->set[i], kind, of)) {
                role_poke(node, task);
                break;
            }
}

void task_wake_ended(struct node *node, struct ended *ended)
{
    if (!ended)
        return;
    atomic_fetch_add(&ended->times, 1);
    task_wake(node, WAIT_ENDED, ended);
}

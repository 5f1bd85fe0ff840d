/* Tasks, and the one function in which they wait. A change wakes the tasks that wait for it. A
 * woken task checks all its events again, so that none is lost and the lowest index comes first. */
#include "base/fault.h"
#include "base/rng.h"
#include "sim/state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static struct node *node_of(struct world *w)
{
    return (struct node *)w;
}

static void task_enter(void *arg)
{
    struct task *task = arg;
    task->result = task->fn(task->arg);
    task->ended = true;
}

int task_new(struct node *node, const char *name, task_fn fn, void *arg, struct task **out)
{
    struct sim *sim = node->sim;
    struct task *task = calloc(1, sizeof *task);
    if (!task)
        return ERR_NOMEM;
    *task = (struct task){.node = node, .name = name, .fn = fn, .arg = arg};
    task->resume.fire = task_fire;
    struct fault_sink *sink = sim->outer ? &sim->sink : NULL;
    int rc = sim->carry->create(sim->host, task_enter, task, sink, &task->co);
    if (rc != OK) {
        free(task);
        return rc;
    }
    task->number = node->spawned++;
    task->next = node->tasks;
    if (node->tasks)
        node->tasks->prev = task;
    node->tasks = task;
    heap_push(&sim->heap, &task->resume, sim->now);
    *out = task;
    return OK;
}

void task_free(struct task *task)
{
    struct node *node = task->node;
    heap_remove(&node->sim->heap, &task->resume);
    if (task->co)
        node->sim->carry->free(node->sim->host, task->co);
    *(task->prev ? &task->prev->next : &node->tasks) = task->next;
    if (task->next)
        task->next->prev = task->prev;
    free(task);
}

bool task_cancelled(const struct task *task)
{
    return task->cancelled || task->node->state == NODE_ENDED;
}

struct task *task_running(const struct node *node)
{
    struct task *task = node->sim->running;
    PL_ASSERT(task && task->node == node);
    return task;
}

static void wait_leave(struct task *task)
{
    struct node *node = task->node;
    if (!task->waiting)
        return;
    task->waiting = false;
    *(task->wait_prev ? &task->wait_prev->wait_next : &node->waits) = task->wait_next;
    *(task->wait_next ? &task->wait_next->wait_prev : &node->waits_last) = task->wait_prev;
}

/* In virtual time: a time of the node's clock. */
static int64_t time_of(const struct node *node, int64_t clock)
{
    return clock == WORLD_FOREVER ? WORLD_FOREVER : clock - node->clock_ahead;
}

void clock_leap(struct node *node, int64_t ns)
{
    struct sim *sim = node->sim;
    node->clock_ahead += ns;
    for (struct task *task = node->waits; task; task = task->wait_next) {
        int64_t until = time_of(node, task->deadline);
        heap_push(&sim->heap, &task->resume, until > sim->now ? until : sim->now);
    }
}

static void wait_enter(struct task *task, const struct wait_for *set, int n, int64_t deadline)
{
    struct node *node = task->node;
    task->set = set;
    task->n = n;
    task->kinds = 0;
    for (int i = 0; i < n; i++)
        task->kinds |= 1u << set[i].kind;
    task->deadline = deadline;
    task->waiting = true;
    task->wait_next = NULL;
    task->wait_prev = node->waits_last;
    *(node->waits_last ? &node->waits_last->wait_next : &node->waits) = task;
    node->waits_last = task;
    heap_push(&node->sim->heap, &task->resume, time_of(node, deadline));
}

void task_yield(struct task *task)
{
    task->node->sim->carry->yield(task->co);
}

void task_ready(struct task *task)
{
    if (task->ended || task->parked)
        return;
    wait_leave(task);
    heap_push(&task->node->sim->heap, &task->resume, task->node->sim->now);
}

void task_fire(struct event *resume)
{
    struct task *task = event_owner(resume, struct task, resume);
    struct node *node = task->node;
    struct sim *sim = node->sim;
    if (hold_stands(node)) { /* all that it was to do it does then, in the same order */
        heap_push(&sim->heap, resume, node->stands_until);
        return;
    }
    wait_leave(task); /* its deadline has passed */
    sim_record(sim, TRACE_RESUME, node, task->number, 0);
    sim->running = task;
    sim->acted = node;
    sim->carry->resume(task->co);
    sim->running = NULL;
    if (task->parked)
        fault_raise(sim->fault.file, sim->fault.line, sim->fault.what);
    if (!task->ended)
        return;
    sim->carry->free(sim->host, task->co);
    task->co = NULL;
    node_wake(node, WAIT_TASK, task);
    if (task == node->main)
        node_end(node, false);
}

static bool wait_concerns(const struct wait_for *want, enum wait_kind kind, const void *what)
{
    if (want->kind != kind)
        return false;
    switch (kind) {
    case WAIT_MESSAGE: return mail_matches(want, what);
    case WAIT_SIGNAL: return want->signal == *(const uint32_t *)what;
    case WAIT_RECV: return want->recv == what;
    case WAIT_ENDED: return want->ended == what;
    case WAIT_CREDIT: return want->peer == *(const uint32_t *)what;
    case WAIT_TASK: return want->task == what;
    default: return true;
    }
}

void node_wake(struct node *node, enum wait_kind kind, const void *what)
{
    struct task *next;
    for (struct task *task = node->waits; task; task = next) {
        next = task->wait_next;
        if (!(task->kinds >> kind & 1))
            continue;
        for (int i = 0; i < task->n; i++)
            if (wait_concerns(&task->set[i], kind, what)) {
                task_ready(task);
                break;
            }
    }
}

/* Has one of the events occurred? OK; ERR_TIMEOUT: not yet; ERR_NOMEM */
static int wait_holds(struct node *node, const struct wait_for *want, struct wake *out)
{
    bool yes;
    switch (want->kind) {
    case WAIT_MESSAGE: {
        int rc = mail_take(node, want, &out->msg);
        if (rc != OK)
            return rc;
        yes = out->msg != NULL;
        break;
    }
    case WAIT_SIGNAL: yes = node->raised[want->signal] > want->seen; break;
    case WAIT_RECV: yes = want->recv->status != POST_PENDING; break;
    case WAIT_ENDED: yes = atomic_load(&want->ended->times) > want->seen; break;
    case WAIT_CREDIT: yes = mail_credit(node, want->peer); break;
    case WAIT_TASK: yes = want->task->ended; break;
    default:
        yes = node->changes_out < node->changes_in;
        if (yes) {
            out->peer = node->sim->nodes[node->changes[node->changes_out].slot].world.self;
            out->up = node->changes[node->changes_out++].up;
        }
    }
    return yes ? OK : ERR_TIMEOUT;
}

static int task_wait(struct world *w, const struct wait_for *set, int n, int64_t deadline,
                     struct wake *out)
{
    struct node *node = node_of(w);
    struct task *task = task_running(node);
    PL_ASSERT(n >= 0 && n <= WORLD_WAITS_MAX);
    for (;;) {
        if (task_cancelled(task))
            return ERR_CANCELLED;
        for (int i = 0; i < n; i++) {
            struct wake wake = {.which = i};
            int rc = wait_holds(node, &set[i], &wake);
            if (rc == OK)
                *out = wake;
            if (rc != ERR_TIMEOUT)
                return rc;
        }
        if (node->sim->now >= time_of(node, deadline))
            return ERR_TIMEOUT;
        wait_enter(task, set, n, deadline);
        task_yield(task);
    }
}

static int task_spawn(struct world *w, const char *name, task_fn fn, void *arg, struct task **out)
{
    struct node *node = node_of(w);
    return node->state == NODE_ENDED ? ERR_CANCELLED : task_new(node, name, fn, arg, out);
}

static void task_cancel(struct world *w, struct task *task)
{
    (void)w;
    task->cancelled = true;
    work_drop(task);
    if (task->waiting)
        task_ready(task);
}

/* It waits on in a cancelled task and in a node that has ended, since the other task may use this
 * one's memory. */
static int task_join(struct world *w, struct task *task, int64_t deadline, int *result)
{
    struct node *node = node_of(w);
    struct task *self = task_running(node);
    PL_ASSERT(task->node == node && task != self);
    struct wait_for end = {.kind = WAIT_TASK, .task = task};
    while (!task->ended) {
        int64_t until = node->state == NODE_ENDED ? WORLD_FOREVER : deadline;
        if (node->sim->now >= time_of(node, until))
            return ERR_TIMEOUT;
        wait_enter(self, &end, 1, until);
        task_yield(self);
    }
    if (result)
        *result = task->result;
    task_free(task);
    return OK;
}

static int64_t world_clock(struct world *w)
{
    return node_of(w)->sim->now + node_of(w)->clock_ahead;
}

static uint64_t draw_random(struct world *w, uint64_t stream, uint64_t counter)
{
    const struct node *node = node_of(w);
    return rng_u64(rng_u64(node->sim->options.seed, RNG_NODE, node->world.self), stream, counter);
}

static void signal_raise(struct world *w, uint32_t number)
{
    PL_ASSERT(number < WORLD_SIGNALS);
    node_of(w)->raised[number]++;
    node_wake(node_of(w), WAIT_SIGNAL, &number);
}

static uint64_t signal_raised(struct world *w, uint32_t number)
{
    PL_ASSERT(number < WORLD_SIGNALS);
    return node_of(w)->raised[number];
}

static void ignore_busy_poll(struct world *w, int64_t spin)
{
    (void)w, (void)spin;
}

__attribute__((format(printf, 3, 4))) static void append_text(char **out, size_t *size,
                                                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(*out, *size, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < *size ? (size_t)n : *size - 1;
    *out += used;
    *size -= used;
}

static void append_wait(char **out, size_t *size, const struct wait_for *want)
{
    char name[SIM_NAME_MAX];
    switch (want->kind) {
    case WAIT_MESSAGE:
        append_text(out, size, "message %#" PRIx64 " in view %" PRIu32 " from %s", want->tag,
                    want->view, sim_node_name(want->from, name));
        break;
    case WAIT_SIGNAL: append_text(out, size, "signal %" PRIu32, want->signal); break;
    case WAIT_RECV:
        append_text(out, size, "receive %#" PRIx64 " in view %" PRIu32 " from %s", want->recv->tag,
                    want->recv->view, sim_node_name(want->recv->from, name));
        break;
    case WAIT_ENDED: append_text(out, size, "the end of a post"); break;
    case WAIT_CREDIT:
        append_text(out, size, "credit at %s", sim_node_name(want->peer, name));
        break;
    case WAIT_PEER: append_text(out, size, "a peer"); break;
    case WAIT_TASK: append_text(out, size, "task %s", want->task->name); break;
    }
}

void task_describe(const struct task *task, char *out, size_t size)
{
    if (task->working) {
        append_text(&out, &size, "works");
        return;
    }
    if (!task->waiting) {
        append_text(&out, &size, "is about to run");
        return;
    }
    append_text(&out, &size, "waits for ");
    for (int i = 0; i < task->n; i++) {
        append_text(&out, &size, i ? " or " : "");
        append_wait(&out, &size, &task->set[i]);
    }
    if (task->deadline == WORLD_FOREVER)
        append_text(&out, &size, ", for ever");
    else
        append_text(&out, &size, ", until %.9f s", world_seconds(task->deadline));
}

const struct world_ops sim_world_ops = {
    .now = world_clock,
    .random = draw_random,
    .spawn = task_spawn,
    .cancel = task_cancel,
    .join = task_join,
    .wait = task_wait,
    .raise = signal_raise,
    .raised = signal_raised,
    .send = mail_send,
    .post_recv = mail_post,
    .unpost = mail_unpost,
    .post_send = send_post,
    .unsend = send_unpost,
    .abort = mail_abort,
    .peer_add = node_peer_add,
    .peer_drop = node_peer_drop,
    .address = node_address,
    .want_nodes = node_want,
    .busy_poll = ignore_busy_poll,
    .work = work_do,
};

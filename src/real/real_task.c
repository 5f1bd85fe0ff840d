#define _GNU_SOURCE
#include "real/real_task.h"

#include "real/node.h"
#include "real/thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { READER_NICE = 5 }; /* with a third of the weight of a thread that computes */

int task_init_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0)
        return ERR_NOMEM;
    int rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0)
        rc = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return rc == 0 ? OK : ERR_NOMEM;
}

bool task_wait_until(struct node *node, pthread_cond_t *cond, int64_t deadline)
{
    if (deadline == WORLD_FOREVER) {
        pthread_cond_wait(cond, &node->lock);
        return true;
    }
    deadline = deadline > 0 ? deadline : 0;
    struct timespec t = {.tv_sec = (time_t)(deadline / WORLD_SECOND),
                         .tv_nsec = (long)(deadline % WORLD_SECOND)};
    return pthread_cond_timedwait(cond, &node->lock, &t) == 0;
}

int tasks_init(struct tasks *tasks)
{
    int rc = task_init_cond(&tasks->nursery);
    if (rc == OK && (rc = task_init_cond(&tasks->ended)) != OK)
        pthread_cond_destroy(&tasks->nursery);
    return rc;
}

static void task_unlist(struct node *node, struct task *task)
{
    struct task **at = &node->tasks.first;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
}

/* An assertion failed on this task's thread. */
static void task_fail(struct fault_sink *sink, const char *file, int line, const char *what)
{
    struct task *task = (struct task *)sink;
    struct node *node = task->node;
    struct tasks *tasks = &node->tasks;
    fault_bind(NULL);
    log_error(&node->log, "%s:%d: %s does not hold (task %s)", file, line, what, task->name);
    node_lock(node);
    if (!tasks->poisoned)
        err_set(&tasks->bug, ERR_BUG, "%s:%d: %s does not hold (task %s)", file, line, what,
                task->name);
    tasks->poisoned = true;
    role_fail(node, task);
    for (struct task *t = tasks->first; t; t = t->next)
        role_poke(node, t);
    mailbox_poison(node);
    outbox_poison(node);
    if (task->unwind) {
        /* The other tasks share memory on the main task's stack: they end first. */
        for (struct task *t = tasks->first; t;) {
            bool runs = t != task && t != &node->io.task && t->state == TASK_RUNS;
            if (runs)
                pthread_cond_wait(&tasks->ended, &node->lock);
            t = runs ? tasks->first : t->next;
        }
        node_unlock(node);
        longjmp(*task->unwind, 1);
    }
    task->state = TASK_PARKED;
    task->result = ERR_BUG;
    pthread_cond_broadcast(&tasks->ended);
    while (!tasks->release)
        pthread_cond_wait(&tasks->ended, &node->lock);
    node_unlock(node);
    pthread_exit(NULL);
}

/* Tasks that read data ahead have a lower priority than those that compute: a parallel loop ends
 * with its last thread. Both yield to the machine's owner; tasks that send heartbeats do not. */
static int task_niceness(const struct node *node, const char *name)
{
    static const char *const urgent[] = {"io", "listener", "heart"};
    for (size_t i = 0; i < sizeof urgent / sizeof *urgent; i++)
        if (strcmp(name, urgent[i]) == 0)
            return 0;
    return strcmp(name, "loader") == 0 ? node->nice + READER_NICE : node->nice;
}

static void be_nice(int nice)
{
    id_t self = (id_t)gettid();
    if (nice > getpriority(PRIO_PROCESS, self))
        (void)setpriority(PRIO_PROCESS, self, nice); /* a lower priority is always allowed */
}

static void *task_thread(void *arg)
{
    struct task *task = arg;
    struct node *node = task->node;
    if (task_niceness(node, task->name) > 0)
        be_nice(task_niceness(node, task->name));
    fault_bind(&task->sink);
    int result = task->fn(task->arg);
    fault_bind(NULL);
    node_lock(node);
    role_forget(node, task);
    task->result = result;
    task->state = TASK_ENDED;
    pthread_cond_broadcast(&node->tasks.ended);
    task_wake(node, WAIT_TASK, task);
    node_unlock(node);
    return NULL;
}

/* Create a thread and its entry in the list, with the lock held so that the thread finds the
 * entry. */
static int create_thread(struct node *node, struct task *task)
{
    int rc = thread_create(&task->thread, task_thread, task);
    if (rc == 0) {
        task->next = node->tasks.first;
        node->tasks.first = task;
    }
    return rc;
}

/* The same by the thread that makes others', where there is one. */
static int have_created(struct node *node, struct task *task)
{
    struct tasks *tasks = &node->tasks;
    if (!tasks->nursing)
        return create_thread(node, task);
    while (tasks->unborn)
        pthread_cond_wait(&tasks->nursery, &node->lock);
    int rc = -1; /* until it is set */
    tasks->unborn = task;
    tasks->reported = &rc;
    pthread_cond_broadcast(&tasks->nursery);
    while (rc < 0)
        pthread_cond_wait(&tasks->nursery, &node->lock);
    return rc;
}

int task_start(struct node *node, struct task *task, const char *name)
{
    task->sink.fail = task_fail;
    task->node = node;
    task->name = name;
    task->state = TASK_RUNS;
    task->spin = -1;
    if (task_init_cond(&task->wake) != OK)
        return ERR_NOMEM;
    node_lock(node);
    int rc = have_created(node, task);
    node_unlock(node);
    if (rc != 0)
        pthread_cond_destroy(&task->wake);
    return rc == 0 ? OK : ERR_NOMEM;
}

void task_finish(struct node *node, struct task *task)
{
    pthread_join(task->thread, NULL);
    node_lock(node);
    task_unlist(node, task);
    node_unlock(node);
    pthread_cond_destroy(&task->wake);
}

void tasks_release(struct node *node)
{
    node_lock(node);
    node->tasks.release = true;
    pthread_cond_broadcast(&node->tasks.ended);
    while (node->tasks.first) {
        struct task *task = node->tasks.first;
        task->cancelled = true;
        role_poke(node, task);
        node_unlock(node);
        task_finish(node, task);
        if (task != &node->io.task)
            free(task);
        node_lock(node);
    }
    node_unlock(node);
    pthread_cond_destroy(&node->tasks.ended);
    pthread_cond_destroy(&node->tasks.nursery);
}

int task_spawn(struct world *w, const char *name, task_fn fn, void *arg, struct task **out)
{
    struct task *task = calloc(1, sizeof *task);
    if (!task)
        return ERR_NOMEM;
    task->fn = fn;
    task->arg = arg;
    *out = task; /* before the thread runs, since it may use it */
    int rc = task_start(node_of(w), task, name);
    if (rc != OK) {
        *out = NULL;
        free(task);
    }
    return rc;
}

void task_cancel(struct world *w, struct task *task)
{
    struct node *node = node_of(w);
    node_lock(node);
    task->cancelled = true;
    role_poke(node, task);
    node_unlock(node);
}

/* The caller's own cancellation does not end the wait, since cleaning up needs joins. */
int task_join(struct world *w, struct task *task, int64_t deadline, int *result)
{
    struct node *node = node_of(w);
    node_lock(node);
    bool in_time = true;
    while (task->state == TASK_RUNS && in_time)
        in_time = task_wait_until(node, &node->tasks.ended, deadline);
    enum task_state state = task->state;
    int returned = task->result;
    node_unlock(node);
    if (state == TASK_RUNS)
        return ERR_TIMEOUT;
    if (result)
        *result = returned;
    if (state == TASK_ENDED) { /* a parked one is forgotten when the world closes */
        task_finish(node, task);
        free(task);
    }
    return OK;
}

static int run_or_unwind(struct task *task, task_fn fn, void *arg)
{
    jmp_buf unwind;
    task->unwind = &unwind;
    if (setjmp(unwind) != 0)
        return ERR_BUG;
    return fn(arg);
}

/* The calling thread is a task for as long as the call lasts: so is the task itself. */
static int run_main(struct node *node, task_fn fn, void *arg, struct err *err)
{
    struct task task = {
        .sink = {.fail = task_fail},
        .node = node,
        .name = "main",
        .spin = -1,
        .thread = pthread_self(),
    };
    if (task_init_cond(&task.wake) != OK)
        return err_set(err, ERR_NOMEM, "out of memory for the main task");
    node_lock(node);
    task.next = node->tasks.first;
    node->tasks.first = &task;
    node_unlock(node);
    struct fault_sink *outer = fault_bind(&task.sink);
    int rc = run_or_unwind(&task, fn, arg);
    fault_bind(outer);
    node_lock(node);
    role_forget(node, &task);
    task_unlist(node, &task);
    if (node->tasks.poisoned)
        rc = err_set(err, ERR_BUG, "%s", node->tasks.bug.text);
    node_unlock(node);
    pthread_cond_destroy(&task.wake);
    return rc;
}

/* A main task on a thread of its own. */
struct detached_task {
    struct node *node;
    task_fn fn;
    void *arg;
    struct err *err;
    int rc;
};

static void *detached_thread(void *arg)
{
    struct detached_task *a = arg;
    be_nice(a->node->nice);
    a->rc = run_main(a->node, a->fn, a->arg, a->err);
    node_lock(a->node);
    a->node->tasks.nursing = false;
    pthread_cond_broadcast(&a->node->tasks.nursery);
    node_unlock(a->node);
    return NULL;
}

/* Make threads until the main task has ended, the lock held. */
static void supervise_threads(struct node *node)
{
    struct tasks *tasks = &node->tasks;
    while (tasks->nursing) {
        struct task *task = tasks->unborn;
        if (task) {
            *tasks->reported = create_thread(node, task);
            tasks->unborn = NULL;
            pthread_cond_broadcast(&tasks->nursery);
        } else {
            pthread_cond_wait(&tasks->nursery, &node->lock);
        }
    }
}

int task_run_main(struct node *node, task_fn fn, void *arg, struct err *err)
{
    struct detached_task detached = {node, fn, arg, err, OK};
    pthread_t thread;
    if (node->nice == 0)
        return run_main(node, fn, arg, err);
    node_lock(node);
    node->tasks.nursing = true;
    int rc = thread_create(&thread, detached_thread, &detached);
    if (rc == 0)
        supervise_threads(node);
    node->tasks.nursing = false;
    node_unlock(node);
    if (rc != 0)
        return err_set(err, ERR_NOMEM, "out of memory for the main task's thread");
    pthread_join(thread, NULL);
    return detached.rc;
}

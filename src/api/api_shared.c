#include "paceline/shared.h"

#include "api/option_size.h"
#include "api/team.h"
#include "real/real.h"

#include <stdlib.h>
#include <string.h>

struct pl_shared {
    struct team_handle handle;
    struct shared_var *var;
};

_Static_assert(PL_SHARED_TASKS_MAX == TASKS_MAX && PL_SHARED_KEY_MAX == TASKS_KEY_MAX - 1 &&
                   PL_SHARED_VARS_MAX == TASKS_VARS_MAX && PL_SHARED_AHEAD == SHARED_AHEAD &&
                   PL_SHARED_KEPT == SHARED_KEPT - 1,
               "what is promised is what is done");

/* A call on its way: it runs as a task of the team's world, on the caller's thread. */
struct calling {
    pl_team *team;
    struct shared_var *var;
    struct tasks_spec spec;
    struct reduction reduction;
    uint64_t round;
    uint32_t task;
    const float *x;
    float *out;
    double timeout_s;
    struct err err;
};

/* Reports to the caller how the call ended. */
static int run_task(struct calling *c, task_fn fn)
{
    int rc = real_run(c->team->world, fn, c, &c->err);
    if (rc == ERR_CANCELLED)
        return err_set(&c->err, ERR_PEER, "the team is over");
    if (rc == ERR_DRIVER)
        return ERR_PEER;
    return rc;
}

/* ---- init ---- */

static int read_spec(struct calling *c, const char *key, size_t n, uint32_t num_tasks,
                     const pl_shared_reduction *given)
{
    pl_shared_reduction own, *r = &own;
    static const enum tasks_op ops[] = {[PL_SUM] = TASKS_SUM,
                                        [PL_MEAN] = TASKS_MEAN,
                                        [PL_MAX] = TASKS_LARGEST,
                                        [PL_MIN] = TASKS_SMALLEST,
                                        [PL_USER_OP] = TASKS_USER};
    size_t len = key ? strlen(key) : 0;
    if (len == 0 || len > PL_SHARED_KEY_MAX)
        return err_set(&c->err, ERR_USAGE, "key: must have 1 to %d characters, has %zu",
                       PL_SHARED_KEY_MAX, len);
    memcpy(c->spec.key, key, len);
    c->spec.n = n;
    c->spec.tasks = num_tasks;
    c->spec.op = TASKS_SUM;
    if (!given)
        return OK;
    int rc = OPTIONS_TAKE(pl_shared_reduction, &own, given, &c->err);
    if (rc != OK)
        return rc;
    if ((unsigned)r->op > PL_USER_OP)
        return err_set(&c->err, ERR_USAGE, "shared variable '%s': no such reduction", key);
    c->spec.op = ops[r->op];
    if (r->op == PL_USER_OP) {
        c->spec.identity = r->identity;
        c->reduction = (struct reduction){REDUCE_USER, r->fn, r->user};
    }
    return OK;
}

static int init_main(void *arg)
{
    struct calling *c = arg;
    return shared_init(&c->team->team.shared, &c->spec, &c->reduction, &c->var, &c->err);
}

int pl_shared_init(pl_team *team, const char *key, size_t n, uint32_t num_tasks,
                   const pl_shared_reduction *reduction, pl_shared **out)
{
    struct calling c = {.team = team};
    pl_shared *shared = calloc(1, sizeof *shared);
    int rc = shared ? read_spec(&c, key, n, num_tasks, reduction)
                    : err_set(&c.err, ERR_NOMEM, "out of memory for a shared variable");
    if (rc == OK)
        rc = run_task(&c, init_main);
    if (rc != OK) {
        free(shared);
        team->engine->error = c.err;
        return rc;
    }
    shared->var = c.var;
    team_add_handle(team, &shared->handle);
    *out = shared;
    return OK;
}

/* ---- calls on a handle ---- */

static int call_service(pl_shared *shared, struct calling *c, task_fn fn)
{
    c->team = shared->handle.team;
    c->var = shared->var;
    int rc = run_task(c, fn);
    if (rc < 0)
        team_handle_report(&shared->handle, &c->err);
    return rc;
}

void pl_shared_error(pl_shared *shared, char *text, size_t size)
{
    team_handle_error(&shared->handle, text, size);
}

static int submit_main(void *arg)
{
    struct calling *c = arg;
    return shared_submit(c->var, c->round, c->task, c->x, &c->err);
}

int pl_shared_submit(pl_shared *shared, uint64_t round, uint32_t task, const float *x)
{
    struct calling c = {.round = round, .task = task, .x = x};
    return call_service(shared, &c, submit_main);
}

uint64_t pl_shared_round(const pl_shared *shared)
{
    return shared_round(shared->var);
}

static int poll_main(void *arg)
{
    struct calling *c = arg;
    return shared_poll(c->var, c->round, &c->err);
}

int pl_shared_poll(pl_shared *shared, uint64_t round)
{
    struct calling c = {.round = round};
    return call_service(shared, &c, poll_main);
}

static int get_main(void *arg)
{
    struct calling *c = arg;
    return shared_get(c->var, c->round, c->out, team_deadline(c->team, c->timeout_s), &c->err);
}

int pl_shared_get(pl_shared *shared, uint64_t round, float *out, double timeout_s)
{
    struct calling c = {.round = round, .out = out, .timeout_s = timeout_s};
    return call_service(shared, &c, get_main);
}

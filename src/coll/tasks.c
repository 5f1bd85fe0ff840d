#include "coll/tasks.h"

#include "base/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a variable is ---- */

int tasks_spec_check(const struct tasks_spec *spec, int status, struct err *err)
{
    if (spec->key[0] == '\0')
        return err_set(err, status, "key: a shared variable needs a name");
    if (spec->n == 0 || spec->n > TASKS_FLOATS_MAX)
        return err_set(err, status, "shared variable '%s': n must be 1 to %llu, is %llu", spec->key,
                       (unsigned long long)TASKS_FLOATS_MAX, (unsigned long long)spec->n);
    if (spec->tasks == 0 || spec->tasks > TASKS_MAX)
        return err_set(err, status, "shared variable '%s': num_tasks must be 1 to %d, is %u",
                       spec->key, TASKS_MAX, spec->tasks);
    if (spec->op >= TASKS_OPS)
        return err_set(err, status, "shared variable '%s': no such reduction", spec->key);
    return OK;
}

void tasks_spec_encode(const struct tasks_spec *spec, struct buf *out)
{
    buf_put_text(out, spec->key);
    buf_put_u64(out, spec->n);
    buf_put_u32(out, spec->tasks);
    buf_put_u32(out, spec->op);
    buf_put_f64(out, (double)spec->identity);
}

void tasks_spec_decode(struct byte_reader *in, struct tasks_spec *out)
{
    memset(out, 0, sizeof *out);
    read_text(in, out->key, sizeof out->key);
    out->n = read_u64(in);
    out->tasks = read_u32(in);
    out->op = read_u32(in);
    out->identity = (float)read_f64(in);
}

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Two members declare the same variable with different properties. */
static int compare_specs(const struct tasks_spec *had, const struct tasks_spec *now,
                         struct err *err)
{
    if (had->n != now->n)
        return err_set(err, ERR_USAGE, "shared variable '%s': n is %llu elsewhere, and %llu here",
                       had->key, (unsigned long long)had->n, (unsigned long long)now->n);
    if (had->tasks != now->tasks)
        return err_set(err, ERR_USAGE, "shared variable '%s': num_tasks is %u elsewhere, %u here",
                       had->key, had->tasks, now->tasks);
    if (had->op != now->op)
        return err_set(err, ERR_USAGE,
                       "shared variable '%s': another reduction elsewhere than here", had->key);
    if (had->op == TASKS_USER && !same_float(had->identity, now->identity))
        return err_set(err, ERR_USAGE, "shared variable '%s': identity is %g elsewhere, %g here",
                       had->key, (double)had->identity, (double)now->identity);
    return OK;
}

/* ---- the book ---- */

void task_table_init(struct task_table *table)
{
    memset(table, 0, sizeof *table);
    table->joiner = TASKS_NO_NODE;
}

static void clear_round(struct tasks_round *r)
{
    free(r->node);
    free(r->have);
    *r = (struct tasks_round){0};
}

void task_table_release(struct task_table *table)
{
    for (uint32_t v = 0; v < table->count; v++) {
        for (size_t i = 0; i < TASKS_ROUNDS; i++)
            clear_round(&table->var[v]->round[i]);
        free(table->var[v]);
    }
    task_table_init(table);
}

static struct tasks_order *add_order(struct tasks_orders *out, enum tasks_order_kind kind,
                                     uint32_t node)
{
    PL_ASSERT(out->count < TASKS_ORDERS_MAX);
    struct tasks_order *o = &out->at[out->count++];
    *o = (struct tasks_order){.kind = kind, .node = node};
    return o;
}

/* It can have tasks: it is in, and means to stay. */
static bool may_run_tasks(const struct task_table *table, uint32_t node)
{
    return members_has(&table->in, node) && !members_has(&table->leaving, node);
}

/* A function of the user's is needed wherever the vector passes through. */
static bool all_can_reduce(const struct task_table *table, const struct tasks_var *var)
{
    return var->spec.op != TASKS_USER || members_within(&table->in, &var->known);
}

/* Rounds wait for a member that comes or goes. */
static bool members_change(const struct task_table *table)
{
    return table->joiner != TASKS_NO_NODE || !members_empty(&table->leaving);
}

static void try_start(struct task_table *table, uint32_t v, struct tasks_orders *out)
{
    struct tasks_var *var = table->var[v];
    struct tasks_round *r = tasks_round_of(var, var->done);
    if (members_change(table) || r->running || r->taken < var->spec.tasks ||
        !all_can_reduce(table, var))
        return;
    r->running = true;
    r->voided = false;
    r->number = ++table->number[var->lane];
    r->outstanding = table->in;
    struct tasks_order *o = add_order(out, TASKS_START, 0);
    o->var = v;
    o->round = var->done;
}

static uint32_t find_spare(const struct task_table *table, const struct members *have)
{
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        if (members_has(have, node) && may_run_tasks(table, node))
            return node;
    return TASKS_NO_NODE;
}

/* Tasks of lost members move to others or become unassigned. */
static void forget_lost(const struct task_table *table, const struct tasks_var *var,
                        struct tasks_round *r)
{
    for (uint32_t t = 0; r->node && t < var->spec.tasks; t++) {
        if (r->node[t] == TASKS_NO_NODE || may_run_tasks(table, r->node[t]))
            continue;
        r->node[t] = find_spare(table, &r->have[t]);
        r->taken -= r->node[t] == TASKS_NO_NODE;
    }
}

/* All remaining members have reported how the round ended. */
static void end_round(struct task_table *table, uint32_t v, struct tasks_orders *out)
{
    struct tasks_var *var = table->var[v];
    struct tasks_round *r = tasks_round_of(var, var->done);
    if (r->voided) {
        r->running = false;
        forget_lost(table, var, r);
    } else {
        clear_round(r);
        var->done++;
    }
    try_start(table, v, out);
}

/* ---- events ---- */

static struct tasks_var *running_var(struct task_table *table, uint32_t v)
{
    return tasks_round_of(table->var[v], table->var[v]->done)->running ? table->var[v] : NULL;
}

static bool is_running(struct task_table *table)
{
    for (uint32_t v = 0; v < table->count; v++)
        if (running_var(table, v))
            return true;
    return false;
}

static void take_members(struct task_table *table, const struct members *in,
                         struct tasks_orders *out)
{
    /* G1: a joiner has no part in a round that began without it. */
    PL_ASSERT(members_within(in, &table->in) || !is_running(table));
    table->in = *in;
    table->waiting = members_intersection(&table->waiting, in);
    table->leaving = members_intersection(&table->leaving, in);
    if (members_has(in, table->joiner))
        table->joiner = TASKS_NO_NODE;
    for (uint32_t v = 0; v < table->count; v++) {
        struct tasks_var *var = table->var[v];
        for (size_t i = 0; i < TASKS_ROUNDS; i++) {
            var->round[i].outstanding = members_intersection(&var->round[i].outstanding, in);
            if (!var->round[i].running)
                forget_lost(table, var, &var->round[i]);
        }
        if (!running_var(table, v))
            try_start(table, v, out);
        else if (members_empty(&tasks_round_of(var, var->done)->outstanding))
            end_round(table, v, out);
    }
}

static uint32_t find_var(const struct task_table *table, const char *key)
{
    uint32_t v = 0;
    while (v < table->count && strcmp(table->var[v]->spec.key, key) != 0)
        v++;
    return v;
}

static int add_var(struct task_table *table, const struct tasks_spec *spec)
{
    struct tasks_var *var = calloc(1, sizeof *var);
    if (!var)
        return ERR_NOMEM;
    var->spec = *spec;
    var->lane = table->count % TASKS_LANES;
    table->var[table->count++] = var;
    return OK;
}

static int on_init(struct task_table *table, const struct tasks_event *e, struct tasks_orders *out)
{
    struct err *why = &out->refusal;
    int rc = tasks_spec_check(e->spec, ERR_USAGE, why);
    uint32_t v = find_var(table, e->spec->key);
    if (rc == OK && v < table->count)
        rc = compare_specs(&table->var[v]->spec, e->spec, why);
    else if (rc == OK && table->count == TASKS_VARS_MAX)
        rc = err_set(why, ERR_USAGE, "shared variable '%s': there are %d already, and no more fit",
                     e->spec->key, TASKS_VARS_MAX);
    if (rc != OK) {
        add_order(out, TASKS_REFUSE, e->node)->request = e->request;
        return OK;
    }
    if (v == table->count)
        rc = add_var(table, e->spec);
    if (rc != OK)
        return rc;
    members_add(&table->var[v]->known, e->node);
    struct tasks_order *o = add_order(out, TASKS_REPLY, e->node);
    o->request = e->request;
    o->var = v;
    try_start(table, v, out);
    return OK;
}

static int open_round(struct tasks_round *r, uint32_t tasks)
{
    if (r->node)
        return OK;
    r->node = malloc(tasks * sizeof *r->node);
    r->have = calloc(tasks, sizeof *r->have);
    if (!r->node || !r->have) {
        clear_round(r);
        return ERR_NOMEM;
    }
    for (uint32_t t = 0; t < tasks; t++)
        r->node[t] = TASKS_NO_NODE;
    return OK;
}

static int on_commit(struct task_table *table, const struct tasks_event *e,
                     struct tasks_orders *out)
{
    if (e->var >= table->count || !may_run_tasks(table, e->node))
        return OK;
    struct tasks_var *var = table->var[e->var];
    if (e->task >= var->spec.tasks || e->round < var->done || e->round - var->done >= TASKS_ROUNDS)
        return OK;
    struct tasks_round *r = tasks_round_of(var, e->round);
    int rc = open_round(r, var->spec.tasks);
    if (rc != OK)
        return rc;
    members_add(&r->have[e->task], e->node);
    if (r->node[e->task] == TASKS_NO_NODE) {
        r->node[e->task] = e->node;
        r->taken++;
    }
    try_start(table, e->var, out);
    return OK;
}

static void on_ended(struct task_table *table, const struct tasks_event *e,
                     struct tasks_orders *out)
{
    struct tasks_var *var = e->var < table->count ? running_var(table, e->var) : NULL;
    if (!var || e->round != var->done)
        return;
    struct tasks_round *r = tasks_round_of(var, e->round);
    if (e->number != r->number || !members_has(&r->outstanding, e->node))
        return;
    members_remove(&r->outstanding, e->node);
    /* A lost member may have been the only one with a whole result, so its report does not make the
     * round valid. A member that reports a void round is right for all that live. */
    r->voided |= !e->whole;
    if (members_empty(&r->outstanding))
        end_round(table, e->var, out);
}

/* The member gets no more tasks. It must stay until the running rounds have ended, because it may
 * have tasks in them. */
static void on_leave(struct task_table *table, uint32_t node)
{
    members_add(&table->leaving, node);
    members_add(&table->waiting, node);
    for (uint32_t v = 0; v < table->count; v++) {
        struct tasks_var *var = table->var[v];
        for (size_t i = 0; i < TASKS_ROUNDS; i++)
            if (!var->round[i].running)
                forget_lost(table, var, &var->round[i]);
    }
}

static void on_join(struct task_table *table, uint32_t node)
{
    if (members_has(&table->in, node))
        return;
    table->joiner = node;
    table->admitted = false;
}

static void on_no_join(struct task_table *table, uint32_t node, struct tasks_orders *out)
{
    if (table->joiner != node)
        return; /* another one waits by now */
    table->joiner = TASKS_NO_NODE;
    for (uint32_t v = 0; v < table->count; v++)
        try_start(table, v, out);
}

/* No round runs: the members may change. */
static void change_members(struct task_table *table, struct tasks_orders *out)
{
    MEMBERS_EACH (node, &table->waiting)
        add_order(out, TASKS_MAY_LEAVE, node);
    table->waiting = (struct members){{0}};
    if (table->joiner == TASKS_NO_NODE || table->admitted)
        return;
    table->admitted = true;
    add_order(out, TASKS_ADMIT, table->joiner);
}

int task_table_step(struct task_table *table, const struct tasks_event *event,
                    struct tasks_orders *out)
{
    int rc = OK;
    out->count = 0;
    if (event->kind < TASKS_JOIN && event->kind != TASKS_MEMBERS &&
        !members_has(&table->in, event->node))
        return OK;
    switch (event->kind) {
    case TASKS_MEMBERS: take_members(table, event->members, out); break;
    case TASKS_INIT: rc = on_init(table, event, out); break;
    case TASKS_COMMIT: rc = on_commit(table, event, out); break;
    case TASKS_ENDED: on_ended(table, event, out); break;
    case TASKS_LEAVE: on_leave(table, event->node); break;
    case TASKS_JOIN: on_join(table, event->node); break;
    case TASKS_NO_JOIN: on_no_join(table, event->node, out); break;
    }
    if (members_change(table) && !is_running(table))
        change_members(table, out);
    return rc;
}

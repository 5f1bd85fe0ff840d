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

void tasks_spec_decode(struct cut *in, struct tasks_spec *out)
{
    memset(out, 0, sizeof *out);
    cut_text(in, out->key, sizeof out->key);
    out->n = cut_u64(in);
    out->tasks = cut_u32(in);
    out->op = cut_u32(in);
    out->identity = (float)cut_f64(in);
}

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Two members mean the same variable and say different things of it. */
static int compare(const struct tasks_spec *had, const struct tasks_spec *now, struct err *err)
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

/* ---- sets ---- */

static void members_drop(struct members *set, uint32_t node)
{
    set->word[node / 64 % MEMBER_WORDS] &= ~(UINT64_C(1) << node % 64);
}

static void members_keep(struct members *set, const struct members *among)
{
    for (int i = 0; i < MEMBER_WORDS; i++)
        set->word[i] &= among->word[i];
}

static bool members_within(const struct members *set, const struct members *of)
{
    for (int i = 0; i < MEMBER_WORDS; i++)
        if (set->word[i] & ~of->word[i])
            return false;
    return true;
}

static bool members_none(const struct members *set)
{
    static const struct members none;
    return members_within(set, &none);
}

/* ---- the book ---- */

void tasks_book_init(struct tasks_book *book)
{
    memset(book, 0, sizeof *book);
}

static void clear_round(struct tasks_round *r)
{
    free(r->node);
    free(r->have);
    *r = (struct tasks_round){0};
}

void tasks_book_release(struct tasks_book *book)
{
    for (uint32_t v = 0; v < book->count; v++) {
        for (size_t i = 0; i < TASKS_ROUNDS; i++)
            clear_round(&book->var[v]->round[i]);
        free(book->var[v]);
    }
    tasks_book_init(book);
}

static struct tasks_order *order(struct tasks_orders *out, enum tasks_order_kind kind,
                                 uint32_t node)
{
    PL_ASSERT(out->count < TASKS_ORDERS_MAX);
    struct tasks_order *o = &out->at[out->count++];
    *o = (struct tasks_order){.kind = kind, .node = node};
    return o;
}

/* It can have tasks: it is in, and means to stay. */
static bool stays(const struct tasks_book *book, uint32_t node)
{
    return members_has(&book->in, node) && !members_has(&book->parting, node);
}

/* A function of the user's is needed wherever the vector passes through. */
static bool all_can_reduce(const struct tasks_book *book, const struct tasks_var *var)
{
    return var->spec.op != TASKS_USER || members_within(&book->in, &var->known);
}

static void try_start(struct tasks_book *book, uint32_t v, struct tasks_orders *out)
{
    struct tasks_var *var = book->var[v];
    struct tasks_round *r = tasks_round_of(var, var->done);
    if (r->running || r->taken < var->spec.tasks || !all_can_reduce(book, var))
        return;
    r->running = true;
    r->voided = false;
    r->number = ++book->number[var->lane];
    r->outstanding = book->in;
    struct tasks_order *o = order(out, TASKS_START, 0);
    o->var = v;
    o->round = var->done;
}

static uint32_t spare(const struct tasks_book *book, const struct members *have)
{
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        if (members_has(have, node) && stays(book, node))
            return node;
    return TASKS_NOBODY;
}

/* What was theirs who are gone is somebody else's, or nobody's. */
static void forget_lost(const struct tasks_book *book, const struct tasks_var *var,
                        struct tasks_round *r)
{
    for (uint32_t t = 0; r->node && t < var->spec.tasks; t++) {
        if (r->node[t] == TASKS_NOBODY || stays(book, r->node[t]))
            continue;
        r->node[t] = spare(book, &r->have[t]);
        r->taken -= r->node[t] == TASKS_NOBODY;
    }
}

/* All who are left have said how it ended. */
static void end_round(struct tasks_book *book, uint32_t v, struct tasks_orders *out)
{
    struct tasks_var *var = book->var[v];
    struct tasks_round *r = tasks_round_of(var, var->done);
    if (r->voided) {
        r->running = false;
        r->witness = (struct members){{0}};
        forget_lost(book, var, r);
    } else {
        clear_round(r);
        var->done++;
    }
    try_start(book, v, out);
}

/* ---- events ---- */

static struct tasks_var *running_var(struct tasks_book *book, uint32_t v)
{
    return tasks_round_of(book->var[v], book->var[v]->done)->running ? book->var[v] : NULL;
}

static void take_members(struct tasks_book *book, const struct members *in,
                         struct tasks_orders *out)
{
    book->in = *in;
    members_keep(&book->waiting, in);
    for (uint32_t v = 0; v < book->count; v++) {
        struct tasks_var *var = book->var[v];
        for (size_t i = 0; i < TASKS_ROUNDS; i++) {
            members_keep(&var->round[i].outstanding, in);
            if (!var->round[i].running)
                forget_lost(book, var, &var->round[i]);
        }
        if (!running_var(book, v))
            try_start(book, v, out);
        else if (members_none(&tasks_round_of(var, var->done)->outstanding))
            end_round(book, v, out);
    }
}

static uint32_t find(const struct tasks_book *book, const char *key)
{
    uint32_t v = 0;
    while (v < book->count && strcmp(book->var[v]->spec.key, key) != 0)
        v++;
    return v;
}

static int add(struct tasks_book *book, const struct tasks_spec *spec)
{
    struct tasks_var *var = calloc(1, sizeof *var);
    if (!var)
        return ERR_NOMEM;
    var->spec = *spec;
    var->lane = book->count % TASKS_LANES;
    book->var[book->count++] = var;
    return OK;
}

static int init(struct tasks_book *book, const struct tasks_event *e, struct tasks_orders *out)
{
    struct err *why = &out->refusal;
    int rc = tasks_spec_check(e->spec, ERR_USAGE, why);
    uint32_t v = find(book, e->spec->key);
    if (rc == OK && v < book->count)
        rc = compare(&book->var[v]->spec, e->spec, why);
    else if (rc == OK && book->count == TASKS_VARS_MAX)
        rc = err_set(why, ERR_USAGE, "shared variable '%s': there are %d already, and no more fit",
                     e->spec->key, TASKS_VARS_MAX);
    if (rc != OK) {
        order(out, TASKS_REFUSE, e->node)->request = e->request;
        return OK;
    }
    if (v == book->count)
        rc = add(book, e->spec);
    if (rc != OK)
        return rc;
    members_add(&book->var[v]->known, e->node);
    struct tasks_order *o = order(out, TASKS_ANSWER, e->node);
    o->request = e->request;
    o->var = v;
    try_start(book, v, out);
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
        r->node[t] = TASKS_NOBODY;
    return OK;
}

static int commit(struct tasks_book *book, const struct tasks_event *e, struct tasks_orders *out)
{
    if (e->var >= book->count || !stays(book, e->node))
        return OK;
    struct tasks_var *var = book->var[e->var];
    if (e->task >= var->spec.tasks || e->round < var->done || e->round - var->done >= TASKS_ROUNDS)
        return OK;
    struct tasks_round *r = tasks_round_of(var, e->round);
    int rc = open_round(r, var->spec.tasks);
    if (rc != OK)
        return rc;
    members_add(&r->have[e->task], e->node);
    if (r->node[e->task] == TASKS_NOBODY) {
        r->node[e->task] = e->node;
        r->taken++;
    }
    try_start(book, e->var, out);
    return OK;
}

static void ended(struct tasks_book *book, const struct tasks_event *e, struct tasks_orders *out)
{
    struct tasks_var *var = e->var < book->count ? running_var(book, e->var) : NULL;
    if (!var || e->round != var->done)
        return;
    struct tasks_round *r = tasks_round_of(var, e->round);
    if (e->number != r->number || !members_has(&r->outstanding, e->node))
        return;
    members_drop(&r->outstanding, e->node);
    /* Who had a whole result and was lost may have been the only one; not so the other way round:
     * what is void for one who lived to say so is void for all who live. */
    r->voided |= !e->whole;
    if (members_none(&r->outstanding))
        end_round(book, e->var, out);
}

/* It gets no more tasks; what it gave to rounds that run now it must stay for. */
static void part(struct tasks_book *book, uint32_t node, struct tasks_orders *out)
{
    members_add(&book->parting, node);
    members_add(&book->waiting, node);
    for (uint32_t v = 0; v < book->count; v++) {
        struct tasks_var *var = book->var[v];
        for (size_t i = 0; i < TASKS_ROUNDS; i++) {
            if (var->round[i].running)
                members_add(&var->round[i].witness, node);
            else
                forget_lost(book, var, &var->round[i]);
        }
        try_start(book, v, out);
    }
}

static bool is_witness(struct tasks_book *book, uint32_t node)
{
    for (uint32_t v = 0; v < book->count; v++) {
        const struct tasks_var *var = running_var(book, v);
        if (var && members_has(&var->round[var->done % TASKS_ROUNDS].witness, node))
            return true;
    }
    return false;
}

static void let_go(struct tasks_book *book, struct tasks_orders *out)
{
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX && !members_none(&book->waiting); node++)
        if (members_has(&book->waiting, node) && !is_witness(book, node)) {
            members_drop(&book->waiting, node);
            order(out, TASKS_PARTED, node);
        }
}

int tasks_book_step(struct tasks_book *book, const struct tasks_event *event,
                    struct tasks_orders *out)
{
    int rc = OK;
    out->count = 0;
    if (event->kind != TASKS_MEMBERS && !members_has(&book->in, event->node))
        return OK;
    switch (event->kind) {
    case TASKS_MEMBERS: take_members(book, event->members, out); break;
    case TASKS_INIT: rc = init(book, event, out); break;
    case TASKS_COMMIT: rc = commit(book, event, out); break;
    case TASKS_ENDED: ended(book, event, out); break;
    case TASKS_PART: part(book, event->node, out); break;
    }
    let_go(book, out);
    return rc;
}

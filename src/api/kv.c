#include "paceline/kv.h"

#include "api/option_size.h"
#include "api/team.h"
#include "real/real.h"

#include <stdlib.h>
#include <string.h>

struct pl_kv {
    struct team_handle handle;
};

struct pl_kv_fetch {
    pl_kv *kv;
    struct kv_call *call;
};

_Static_assert(PL_KV_KEY_MAX == KV_KEY_MAX && PL_KV_MAX == KV_ENTRIES_MAX &&
                   PL_KV_NEWEST == KV_NEWEST,
               "what is promised is what is done");

/* A call on its way: it runs as a task of the team's world, on the caller's thread. */
struct calling {
    pl_team *team;
    const char *key;
    uint64_t state;
    const void *data;
    size_t size;
    double timeout_s;
    struct kv_want want;
    struct kv_call *call;
    struct kv_value *value;
    struct err err;
};

/* Reports to the caller how the call ended: the message stays, the status is one of the public. */
static int call_store(pl_kv *kv, struct calling *c, task_fn fn)
{
    c->team = kv->handle.team;
    int rc = real_run(c->team->world, fn, c, &c->err);
    if (rc == ERR_CANCELLED)
        err_set(&c->err, rc, "the team is over");
    else if (rc == ERR_NOMEM && !c->err.text[0])
        err_set(&c->err, rc, "out of memory");
    if (rc != OK)
        team_handle_report(&kv->handle, &c->err);
    bool lost = rc == ERR_CANCELLED || rc == ERR_DRIVER || rc == ERR_PROTOCOL || rc == ERR_VIEW;
    return lost ? ERR_PEER : rc;
}

/* ---- handles ---- */

static int open_main(void *arg)
{
    pl_team *team = arg;
    const struct kv_options options = {.bytes_max = team->kv_bytes};
    return team->kv.group ? OK : kv_start(&team->kv, &team->team.group, &options);
}

/* A member that opens no handle has no thread for it. */
static int open_store(pl_team *team)
{
    struct err err = {0};
    while (atomic_flag_test_and_set(&team->kv_opening))
        real_sleep(WORLD_SECOND / 1000);
    int rc = real_run(team->world, open_main, team, &err);
    atomic_flag_clear(&team->kv_opening);
    if (rc == ERR_NOMEM)
        err_set(&err, rc, "out of memory for a key-value store");
    if (rc != OK)
        team->engine->error = err;
    return rc;
}

int pl_kv_open(pl_team *team, pl_kv **out)
{
    int rc = open_store(team);
    if (rc != OK)
        return rc;
    pl_kv *kv = calloc(1, sizeof *kv);
    if (!kv)
        return err_set(&team->engine->error, ERR_NOMEM, "out of memory for a key-value store");
    team_add_handle(team, &kv->handle);
    *out = kv;
    return OK;
}

void pl_kv_error(pl_kv *kv, char *text, size_t size)
{
    team_handle_error(&kv->handle, text, size);
}

/* ---- update and withdraw ---- */

static int update_main(void *arg)
{
    struct calling *c = arg;
    return kv_update(&c->team->kv, c->key, c->state, c->data, c->size,
                     team_deadline(c->team, c->timeout_s), &c->err);
}

int pl_kv_update(pl_kv *kv, const char *key, uint64_t state, const void *value, size_t size,
                 double timeout_s)
{
    struct calling c = {
        .key = key, .state = state, .data = value, .size = size, .timeout_s = timeout_s};
    return call_store(kv, &c, update_main);
}

static int withdraw_main(void *arg)
{
    struct calling *c = arg;
    return kv_withdraw(&c->team->kv, c->key, &c->err);
}

int pl_kv_withdraw(pl_kv *kv, const char *key)
{
    struct calling c = {.key = key};
    return call_store(kv, &c, withdraw_main);
}

/* ---- get ---- */

/* Its message is the handle's when there is no such request. */
static int read_request(pl_kv *kv, const pl_kv_want *given, struct calling *c)
{
    pl_kv_want want;
    *c = (struct calling){0};
    int rc = OPTIONS_TAKE(pl_kv_want, &want, given, &c->err);
    if (rc != OK) {
        team_handle_report(&kv->handle, &c->err);
        return rc;
    }
    c->timeout_s = want.timeout_s;
    c->want = (struct kv_want){.key = want.key, .version = want.version, .patient = want.wait != 0};
    return OK;
}

static int get_main(void *arg)
{
    struct calling *c = arg;
    c->want.deadline = team_deadline(c->team, c->timeout_s);
    return kv_get(&c->team->kv, &c->want, &c->value, &c->err);
}

int pl_kv_get(pl_kv *kv, const pl_kv_want *want, pl_kv_value **out)
{
    struct calling c;
    int rc = read_request(kv, want, &c);
    if (rc == OK)
        rc = call_store(kv, &c, get_main);
    if (rc == OK)
        *out = (pl_kv_value *)c.value;
    return rc;
}

static int begin_main(void *arg)
{
    struct calling *c = arg;
    c->want.deadline = team_deadline(c->team, c->timeout_s);
    return kv_begin(&c->team->kv, &c->want, &c->call, &c->err);
}

int pl_kv_begin(pl_kv *kv, const pl_kv_want *want, pl_kv_fetch **out)
{
    struct calling c;
    int rc = read_request(kv, want, &c);
    if (rc != OK)
        return rc;
    pl_kv_fetch *fetch = malloc(sizeof *fetch);
    if (!fetch) {
        err_set(&c.err, ERR_NOMEM, "key '%s': out of memory", c.want.key ? c.want.key : "");
        team_handle_report(&kv->handle, &c.err);
        return ERR_NOMEM;
    }
    rc = call_store(kv, &c, begin_main);
    if (rc != OK) {
        free(fetch);
        return rc;
    }
    *fetch = (pl_kv_fetch){kv, c.call};
    *out = fetch;
    return OK;
}

void pl_kv_progress(const pl_kv_fetch *fetch, uint64_t *have, uint64_t *size)
{
    kv_progress(fetch->call, have, size);
}

static int finish_main(void *arg)
{
    struct calling *c = arg;
    return kv_finish(c->call, team_deadline(c->team, c->timeout_s), &c->value, &c->err);
}

int pl_kv_finish(pl_kv_fetch *fetch, double timeout_s, pl_kv_value **out)
{
    struct calling c = {.call = fetch->call, .timeout_s = timeout_s};
    int rc = call_store(fetch->kv, &c, finish_main);
    if (rc == OK)
        *out = (pl_kv_value *)c.value;
    return rc;
}

static int end_main(void *arg)
{
    struct calling *c = arg;
    kv_end(c->call);
    return OK;
}

void pl_kv_end(pl_kv_fetch *fetch)
{
    if (!fetch)
        return;
    struct calling c = {.call = fetch->call};
    call_store(fetch->kv, &c, end_main);
    free(fetch);
}

/* ---- values: the store's own, seen from outside ---- */

static const struct kv_value *value_of(const pl_kv_value *value)
{
    return (const struct kv_value *)value;
}

const void *pl_kv_data(const pl_kv_value *value)
{
    return value_of(value)->data;
}

size_t pl_kv_size(const pl_kv_value *value)
{
    return (size_t)value_of(value)->meta.size;
}

uint64_t pl_kv_version(const pl_kv_value *value)
{
    return value_of(value)->meta.version;
}

void pl_kv_free(pl_kv_value *value)
{
    kv_value_unref((struct kv_value *)value);
}

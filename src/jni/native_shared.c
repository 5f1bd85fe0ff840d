/* Teams, and the vectors that tasks reduce in them. Java's collector moves arrays, and the library
 * borrows a vector until its round is done. The library therefore gets a copy, which is freed when
 * the round is done, or with the team. A member has one copy of a task and round, and the rounds of
 * a variable that are open at once are PL_SHARED_AHEAD. */
#include "jni/native.h"
#include "paceline/shared.h"

#include <stdlib.h>
#include <string.h>

SAME(ERR_TIMEOUT);
SAME(SUM);
SAME(MEAN);
SAME(MAX);
SAME(MIN);

struct variable {
    pl_shared *shared;
    char key[PL_SHARED_KEY_MAX + 1];
    size_t n;
    uint32_t tasks;
    uint64_t first; /* there are no copies of earlier rounds */
    float **copy;   /* by round, modulo PL_SHARED_AHEAD, and task; NULL: none */
};

struct team {
    struct object object;
    pl_team *team;
    pthread_mutex_t lock; /* of the number of variables, and of their copies */
    uint32_t count;
    struct variable variable[PL_SHARED_VARS_MAX];
};

static const struct option team_options[] = {
    {"members", OPTION_INT, offsetof(pl_team_options, members)},
    {"members_max", OPTION_INT, offsetof(pl_team_options, members_max)},
    {"listen", OPTION_TEXT, offsetof(pl_team_options, listen)},
    {"insecure", OPTION_INT, offsetof(pl_team_options, insecure)},
    {"key", OPTION_TEXT, offsetof(pl_team_options, key)},
    {"timeout", OPTION_DOUBLE, offsetof(pl_team_options, timeout_s)},
    {0},
};

/* ---- teams ---- */

static void end_team(struct object *object)
{
    struct team *team = (struct team *)object;
    pl_team_close(team->team); /* no round borrows a copy any more */
    for (uint32_t i = 0; i < team->count; i++) {
        struct variable *v = &team->variable[i];
        for (size_t at = 0; at < (size_t)v->tasks * PL_SHARED_AHEAD; at++)
            free(v->copy[at]);
        free(v->copy);
    }
    pthread_mutex_destroy(&team->lock);
}

static int take_team_option(void *user, char *text)
{
    return option_store(team_options, text, user);
}

static int open_team(JNIEnv *env, const struct engine *engine, jstring rendezvous,
                     jobjectArray settings, pl_team **out)
{
    struct texts texts = {0};
    pl_team_options options = {.size = sizeof options};
    int rc = texts_take(&texts, env, rendezvous, &options.rendezvous);
    if (rc == PL_OK)
        rc = texts_take_all(&texts, env, settings, take_team_option, &options);
    if (rc == PL_OK)
        rc = fail_by_engine(engine, pl_team_open(engine->engine, &options, out));
    texts_release(&texts);
    return rc;
}

jlong NATIVE(teamOpen)(JNIEnv *env, jclass class, jlong handle, jstring rendezvous,
                       jobjectArray options)
{
    (void)class;
    struct engine *engine = object_use(handle, OBJECT_ENGINE, USE_ALONE);
    if (!engine)
        return PL_ERR_USAGE;
    struct team *team = calloc(1, sizeof *team);
    jlong opened = team ? PL_OK : fail(PL_ERR_NOMEM, "out of memory for a team");
    if (team) {
        pthread_mutex_init(&team->lock, NULL);
        opened = open_team(env, engine, rendezvous, options, &team->team);
    }
    if (opened == PL_OK)
        opened = object_add(&team->object, OBJECT_TEAM, &engine->object, end_team);
    if (opened < 0 && team)
        end_team(&team->object);
    if (opened < 0)
        free(team);
    object_release(engine, USE_ALONE, false);
    return opened;
}

/* ---- variables ---- */

/* The number of the variable, which has one for all its handles. */
static int add_variable(struct team *team, const struct variable *new)
{
    uint32_t at = 0;
    while (at < team->count && strcmp(team->variable[at].key, new->key) != 0)
        at++;
    if (at < team->count)
        return (int)at;
    float **copy = calloc((size_t) new->tasks *PL_SHARED_AHEAD, sizeof *copy);
    if (!copy)
        return fail(PL_ERR_NOMEM, "shared variable '%s': out of memory", new->key);
    pthread_mutex_lock(&team->lock);
    team->variable[at] = *new;
    team->variable[at].first = pl_shared_round(new->shared);
    team->variable[at].copy = copy;
    team->count++;
    pthread_mutex_unlock(&team->lock);
    return (int)at;
}

static int open_variable(struct team *team, const char *key, jlong n, jint tasks, jint op)
{
    const pl_shared_reduction reduction = {.size = sizeof reduction, .op = (pl_reduce_op)op};
    struct variable new = {.n = (size_t)n, .tasks = (uint32_t)tasks};
    if (n < 0 || tasks < 0 || op < paceline_spark_Native_SUM || op > paceline_spark_Native_MIN)
        return fail(PL_ERR_USAGE, "shared variable: %lld floats, %d tasks, reduction %d",
                    (long long)n, (int)tasks, (int)op);
    int rc = pl_shared_init(team->team, key, new.n, new.tasks, &reduction, &new.shared);
    if (rc != PL_OK)
        return fail_by_engine((const struct engine *)team->object.parent, rc);
    memcpy(new.key, key, strlen(key));
    return add_variable(team, &new);
}

jint NATIVE(sharedOpen)(JNIEnv *env, jclass class, jlong handle, jstring key, jlong n, jint tasks,
                        jint reduction)
{
    (void)class;
    struct texts texts = {0};
    const char *name = NULL;
    struct team *team = object_use(handle, OBJECT_TEAM, USE_ALONE);
    if (!team)
        return PL_ERR_USAGE;
    int rc = texts_take(&texts, env, key, &name);
    if (rc == PL_OK)
        rc = open_variable(team, name, n, tasks, reduction);
    texts_release(&texts);
    object_release(team, USE_ALONE, false);
    return rc;
}

/* The variable, in a use of its team; NULL after a message. */
static struct variable *use_variable(jlong handle, jint number, struct team **used)
{
    struct team *team = object_use(handle, OBJECT_TEAM, USE_SHARED);
    if (!team)
        return NULL;
    pthread_mutex_lock(&team->lock);
    bool known = number >= 0 && (uint32_t)number < team->count;
    pthread_mutex_unlock(&team->lock);
    *used = team;
    if (known)
        return &team->variable[number];
    fail(PL_ERR_USAGE, "team: it has no shared variable %d", (int)number);
    object_release(team, USE_SHARED, false);
    return NULL;
}

/* The library has one message for all threads that use a variable, so these are composed here. */
static int fail_by_variable(const struct variable *v, jlong round, int rc)
{
    const char *why = rc == PL_ERR_TIMEOUT     ? "it has no result yet"
                      : rc == PL_ERR_NOT_FOUND ? "its result is no longer kept here, or was there "
                                                 "before this process joined"
                      : rc == PL_ERR_PEER      ? "the team is over, or has lost this process"
                      : rc == PL_ERR_NOMEM     ? "out of memory"
                                               : "the library failed";
    return rc == PL_OK
               ? rc
               : fail(rc, "shared variable '%s', round %lld: %s", v->key, (long long)round, why);
}

/* With the team's lock. */
static void free_done(struct variable *v)
{
    uint64_t done = pl_shared_round(v->shared), end = v->first + PL_SHARED_AHEAD;
    for (uint64_t round = v->first; round < done && round < end; round++) {
        float **row = &v->copy[round % PL_SHARED_AHEAD * v->tasks];
        for (uint32_t task = 0; task < v->tasks; task++) {
            free(row[task]);
            row[task] = NULL;
        }
    }
    v->first = done;
}

/* ---- calls ---- */

static int check_length(const struct variable *v, jlong n)
{
    return n == (jlong)v->n
               ? PL_OK
               : fail(PL_ERR_USAGE, "shared variable '%s': the vector has %lld floats of %zu",
                      v->key, (long long)n, v->n);
}

static int copy_vector(JNIEnv *env, const struct variable *v, jfloatArray array, jobject direct,
                       float **out)
{
    const float *from = direct ? (*env)->GetDirectBufferAddress(env, direct) : NULL;
    if (!array && !from)
        return fail(PL_ERR_USAGE, "shared variable '%s': no array, and no direct buffer", v->key);
    int rc = check_length(v, array ? (*env)->GetArrayLength(env, array)
                                   : (*env)->GetDirectBufferCapacity(env, direct));
    if (rc != PL_OK)
        return rc;
    float *x = malloc(v->n * sizeof *x);
    if (!x)
        return fail(PL_ERR_NOMEM, "shared variable '%s': out of memory", v->key);
    if (array)
        (*env)->GetFloatArrayRegion(env, array, 0, (jsize)v->n, x);
    else
        memcpy(x, from, v->n * sizeof *x);
    *out = x;
    return PL_OK;
}

/* The first vector of a task counts, so a second one needs no memory. */
static int submit_copy(struct variable *v, jlong round, jint task, float *x)
{
    uint64_t r = (uint64_t)round;
    free_done(v);
    int rc = PL_OK;
    float **at = NULL;
    if (task < 0 || (uint32_t)task >= v->tasks)
        rc = fail(PL_ERR_USAGE, "shared variable '%s': task %d, but it has %u tasks", v->key,
                  (int)task, v->tasks);
    else if (round < 0 || r >= v->first + PL_SHARED_AHEAD)
        rc = fail(PL_ERR_USAGE,
                  "shared variable '%s': round %lld is too far ahead: %llu is not done yet, and %d "
                  "may be open",
                  v->key, (long long)round, (unsigned long long)v->first, PL_SHARED_AHEAD);
    else if (r >= v->first)
        at = &v->copy[r % PL_SHARED_AHEAD * v->tasks + (uint32_t)task];
    if (at && *at)
        at = NULL;
    if (at)
        rc = fail_by_variable(v, round, pl_shared_submit(v->shared, r, (uint32_t)task, x));
    if (at && rc == PL_OK)
        *at = x;
    else
        free(x);
    return rc;
}

jint NATIVE(sharedSubmit)(JNIEnv *env, jclass class, jlong handle, jint number, jlong round,
                          jint task, jfloatArray array, jobject direct)
{
    (void)class;
    float *x = NULL;
    struct team *team;
    struct variable *v = use_variable(handle, number, &team);
    if (!v)
        return PL_ERR_USAGE;
    int rc = copy_vector(env, v, array, direct, &x);
    if (rc == PL_OK) {
        pthread_mutex_lock(&team->lock);
        rc = submit_copy(v, round, task, x);
        pthread_mutex_unlock(&team->lock);
    }
    object_release(team, USE_SHARED, false);
    return rc;
}

static int get_result(JNIEnv *env, struct variable *v, jlong round, jfloatArray out, jint millis)
{
    int rc = out ? check_length(v, (*env)->GetArrayLength(env, out)) : PL_OK;
    if (rc != PL_OK)
        return rc;
    float *x = out ? malloc(v->n * sizeof *x) : NULL;
    rc = out && !x ? PL_ERR_NOMEM
                   : pl_shared_get(v->shared, (uint64_t)round, x, millis > 0 ? millis / 1e3 : 0);
    if (rc == PL_OK && out)
        (*env)->SetFloatArrayRegion(env, out, 0, (jsize)v->n, x);
    free(x);
    return fail_by_variable(v, round, rc);
}

jint NATIVE(sharedGet)(JNIEnv *env, jclass class, jlong handle, jint number, jlong round,
                       jfloatArray out, jint millis)
{
    (void)class;
    struct team *team;
    struct variable *v = use_variable(handle, number, &team);
    if (!v)
        return PL_ERR_USAGE;
    int rc = get_result(env, v, round, out, millis);
    pthread_mutex_lock(&team->lock);
    free_done(v);
    pthread_mutex_unlock(&team->lock);
    object_release(team, USE_SHARED, false);
    return rc;
}

jlong NATIVE(sharedRound)(JNIEnv *env, jclass class, jlong handle, jint number)
{
    (void)env, (void)class;
    struct team *team;
    struct variable *v = use_variable(handle, number, &team);
    if (!v)
        return PL_ERR_USAGE;
    pthread_mutex_lock(&team->lock);
    free_done(v);
    jlong round = (jlong)v->first;
    pthread_mutex_unlock(&team->lock);
    object_release(team, USE_SHARED, false);
    return round;
}

/* The key-value store over real connections: engines of one process whose threads update and get at
 * once; processes, of which a holder is killed during a read. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "paceline/kv.h"
#include "shared_team.h"

#include <dirent.h>
#include <sys/mman.h>

enum { KEYS = 4, VERSIONS = 12, MB = 1000 * 1000 };

static unsigned char byte_of(uint64_t key, uint64_t version, size_t i)
{
    return (unsigned char)(i * 31 + (i >> 12) + key * 101 + version * 7);
}

static void fill_value(unsigned char *x, size_t n, uint64_t key, uint64_t version)
{
    for (size_t i = 0; i < n; i++)
        x[i] = byte_of(key, version, i);
}

static bool is_whole(const pl_kv_value *value, size_t n, uint64_t key)
{
    const unsigned char *x = pl_kv_data(value);
    if (pl_kv_size(value) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (x[i] != byte_of(key, pl_kv_version(value), i))
            return false;
    return true;
}

static bool message_has(pl_kv *kv, const char *part)
{
    char text[512];
    pl_kv_error(kv, text, sizeof text);
    if (strstr(text, part))
        return true;
    fprintf(stderr, "'%s' does not say '%s'\n", text, part);
    return false;
}

/* No member leaves while another may need its values. */
static int leave_store(struct member *m)
{
    float nothing = 0;
    int rc = pl_team_allreduce(m->team, &nothing, 1, NULL, NULL);
    if (rc == PL_OK) /* the coordinator leaves when all others are here, which ends their calls */
        (void)pl_team_allreduce(m->team, &nothing, 1, NULL, NULL);
    return rc;
}

/* ---- many keys, many callers ---- */

struct caller {
    pthread_t thread;
    struct member *member;
    pl_kv *kv;
    uint64_t key;
    bool reads; /* the newest, by another thread of the same member */
    int rc;
};

static size_t size_of(uint64_t key, uint64_t version)
{
    return (size_t)(key * 700 * 1000 + version * 1000);
}

/* The newest version, or, if this one is not registered yet, an older one that is newer than the
 * last. */
static int get_whole(struct caller *c, uint64_t version)
{
    char name[2] = {(char)('a' + c->key), '\0'};
    const pl_kv_want want = {.size = sizeof want, name, PL_KV_NEWEST, 1, 60};
    for (double limit = process_now() + 60; process_now() < limit; process_nap(0.001)) {
        pl_kv_value *value;
        int rc = pl_kv_get(c->kv, &want, &value);
        if (rc != PL_OK)
            return rc;
        uint64_t is = pl_kv_version(value);
        bool whole = is_whole(value, size_of(c->key, is), c->key);
        pl_kv_free(value);
        if (!whole || is >= version)
            return whole ? PL_OK : PL_ERR_DIVERGED;
    }
    return PL_ERR_TIMEOUT;
}

/* Members take turns in making versions; the others get each. */
static void *run_caller(void *arg)
{
    struct caller *c = arg;
    char name[2] = {(char)('a' + c->key), '\0'};
    unsigned char *x = malloc(size_of(KEYS, VERSIONS));
    for (uint64_t v = 1; x && c->rc == PL_OK && v <= VERSIONS; v++) {
        if (c->reads) {
            c->rc = get_whole(c, 1);
        } else if ((v + c->key) % MEMBERS != c->member->number) {
            c->rc = get_whole(c, v);
        } else {
            fill_value(x, size_of(c->key, v), c->key, v);
            c->rc = v == 1 ? PL_OK : get_whole(c, v - 1);
            if (c->rc == PL_OK)
                c->rc = pl_kv_update(c->kv, name, v - 1, x, size_of(c->key, v), 60);
        }
    }
    free(x);
    return NULL;
}

static int play_callers(struct member *m)
{
    struct caller c[2 * KEYS];
    int rc = PL_OK;
    for (size_t i = 0; i < 2 * KEYS; i++) {
        c[i] = (struct caller){.member = m, .key = i % KEYS, .reads = i >= KEYS};
        rc = pl_kv_open(m->team, &c[i].kv);
        if (rc != PL_OK)
            return rc;
        pthread_create(&c[i].thread, NULL, run_caller, &c[i]);
    }
    for (size_t i = 0; i < 2 * KEYS; i++) {
        pthread_join(c[i].thread, NULL);
        if (rc == PL_OK && c[i].rc != PL_OK) {
            char text[256];
            pl_kv_error(c[i].kv, text, sizeof text);
            fprintf(stderr, "member %u, key %u: %d, %s\n", m->number, (unsigned)c[i].key, c[i].rc,
                    text);
            rc = c[i].rc;
        }
    }
    int departed = leave_store(m);
    return rc == PL_OK ? departed : rc;
}

static void test_kv_many_keys_and_callers(void **state)
{
    (void)state;
    run_team_by(false, MEMBERS, play_callers, NULL);
    run_team_by(true, MEMBERS, play_callers, NULL);
}

/* ---- the first handle ---- */

static int count_threads(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static void *open_handle(void *arg)
{
    struct caller *c = arg;
    c->rc = pl_kv_open(c->member->team, &c->kv);
    return NULL;
}

/* The first member to open it starts the store, once; a team without handles has no thread for
 * it. */
static int play_open(struct member *m)
{
    struct caller c[8];
    int before = count_threads();
    for (size_t i = 0; i < 8; i++) {
        c[i] = (struct caller){.member = m};
        assert_int_equal(pthread_create(&c[i].thread, NULL, open_handle, &c[i]), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        pthread_join(c[i].thread, NULL);
        assert_int_equal(c[i].rc, PL_OK);
        assert_int_equal(pl_kv_update(c[i].kv, "x", i, "a", 1, 10), PL_OK);
    }
    for (double limit = process_now() + 10; count_threads() != before + 1; process_nap(0.01))
        assert_true(process_now() < limit); /* a lost member may still be in the view for a
                                               moment */
    return PL_OK;
}

static void test_kv_first_handle_starts_the_store(void **state)
{
    (void)state;
    run_team(1, play_open, NULL);
}

/* ---- wrong use, by the public names ---- */

static int play_wrong(struct member *m)
{
    enum { SIZE = sizeof(pl_kv_want) };
    const pl_kv_want none = {SIZE, "none", 3, 0, 10}, late = {SIZE, "none", PL_KV_NEWEST, 1, 0.05},
                     zero = {SIZE, "x", 0, 0, 10}, blank = {SIZE, "a b", 1, 0, 10},
                     no_key = {SIZE, NULL, 1, 0, 10}, x1 = {SIZE, "x", 1, 0, 10};
    char key[PL_KV_KEY_MAX + 2];
    pl_kv *kv = NULL;
    pl_kv_value *value = NULL;
    pl_kv_fetch *fetch = NULL;
    memset(key, 'k', sizeof key);
    key[PL_KV_KEY_MAX + 1] = '\0';
    assert_int_equal(pl_kv_open(m->team, &kv), PL_OK);
    assert_int_equal(pl_kv_update(kv, key, 0, "a", 1, 10), PL_ERR_USAGE);
    assert_true(message_has(kv, "1 to 63 characters"));
    assert_int_equal(pl_kv_update(kv, key + 1, 0, "a", 1, 10), PL_OK);
    assert_int_equal(pl_kv_update(kv, "x", 0, NULL, 1, 10), PL_ERR_USAGE);
    assert_int_equal(pl_kv_update(kv, "x", 0, NULL, 0, 10), PL_OK);
    assert_int_equal(pl_kv_update(kv, "x", 0, "a", 1, 10), PL_ERR_REPLICAS);
    assert_true(message_has(kv, "key 'x', version 1: node 0 has 1 bytes"));
    assert_int_equal(pl_kv_update(kv, "x", 8, "abc", 4, 10), PL_OK);
    assert_int_equal(pl_kv_update(kv, "x", 7, "abc", 4, 10), PL_ERR_USAGE);
    assert_int_equal(pl_kv_get(kv, &none, &value), PL_ERR_NOT_FOUND);
    assert_true(message_has(kv, "key 'none', version 3: no member holds it"));
    assert_int_equal(pl_kv_get(kv, &late, &value), PL_ERR_TIMEOUT);
    assert_int_equal(pl_kv_get(kv, &zero, &value), PL_ERR_USAGE);
    assert_int_equal(pl_kv_get(kv, &blank, &value), PL_ERR_USAGE);
    assert_int_equal(pl_kv_begin(kv, &no_key, &fetch), PL_ERR_USAGE);
    assert_int_equal(pl_kv_get(kv, &x1, &value), PL_ERR_NOT_FOUND); /* version 9 replaced it */
    assert_int_equal(
        pl_kv_begin(kv, &(pl_kv_want){.size = sizeof(pl_kv_want), "x", PL_KV_NEWEST, 0, 10},
                    &fetch),
        PL_OK);
    assert_int_equal(pl_kv_finish(fetch, 10, &value), PL_OK);
    pl_kv_end(fetch);
    assert_int_equal(pl_kv_withdraw(kv, "x"), PL_OK);
    assert_int_equal(pl_kv_withdraw(kv, "x"), PL_ERR_NOT_FOUND);
    assert_int_equal(pl_kv_begin(kv, &late, &fetch), PL_OK);
    *(pl_kv_value **)m->arg = value; /* it outlives the team */
    pl_kv_end(fetch);
    pl_kv_end(NULL);
    return PL_OK;
}

static void test_kv_misuse_is_refused_by_name(void **state)
{
    (void)state;
    pl_kv_value *value = NULL;
    run_team(1, play_wrong, &value);
    assert_int_equal(pl_kv_version(value), 9);
    assert_int_equal(pl_kv_size(value), 4);
    assert_string_equal(pl_kv_data(value), "abc");
    pl_kv_free(value);
    pl_kv_free(NULL);
}

/* The coordinator leaves, and waiting members get an error at once. */
static int play_end(struct member *m)
{
    const pl_kv_want want = {.size = sizeof want, "never", 1, 1, 30};
    pl_kv *kv;
    pl_kv_value *value;
    int rc = pl_kv_open(m->team, &kv);
    if (rc != PL_OK || m->number == 0) {
        process_nap(0.3);
        return rc;
    }
    double begun = process_now();
    rc = pl_kv_get(kv, &want, &value);
    bool reported = rc == PL_ERR_PEER && message_has(kv, "over") && process_now() - begun < 10;
    return reported && pl_kv_update(kv, "x", 0, "a", 1, 5) == PL_ERR_PEER ? PL_OK : PL_ERR_DIVERGED;
}

static void test_kv_end_of_team_is_reported(void **state)
{
    (void)state;
    run_team(2, play_end, NULL);
}

/* ---- a hundred megabytes ---- */

#ifdef __SANITIZE_THREAD__
enum { LARGE = 40 * MB };
#else
enum { LARGE = 100 * MB };
#endif

static int play_large(struct member *m)
{
    const pl_kv_want want = {.size = sizeof want, "x", PL_KV_NEWEST, 1, 60};
    unsigned char *x = malloc(LARGE);
    pl_kv *kv;
    pl_kv_value *value;
    pl_kv_fetch *fetch;
    uint64_t have = 0, size = 0, before = 0, steps = 0;
    int rc = x ? pl_kv_open(m->team, &kv) : PL_ERR_NOMEM;
    if (rc == PL_OK && m->number > 0) {
        fill_value(x, LARGE, 0, 5);
        rc = pl_kv_update(kv, "x", 4, x, LARGE, 60);
    }
    if (rc == PL_OK)
        rc = leave_store(m);
    if (rc == PL_OK && m->number == 0) {
        double begun = process_now();
        rc = pl_kv_begin(kv, &want, &fetch);
        while (rc == PL_OK && (rc = pl_kv_finish(fetch, 0.002, &value)) == PL_ERR_TIMEOUT) {
            pl_kv_progress(fetch, &have, &size);
            steps += have > before && have <= size;
            before = have;
            rc = PL_OK;
            if (process_now() - begun > 60)
                rc = PL_ERR_TIMEOUT;
        }
        double seconds = process_now() - begun;
        if (rc != PL_OK)
            return rc;
        pl_kv_progress(fetch, &have, &size);
        if (!is_whole(value, LARGE, 0) || have != LARGE || size != LARGE || steps < 2)
            rc = PL_ERR_DIVERGED;
        printf("%d MB from two holders by %s: %.3f s, %.0f MB/s\n", LARGE / MB,
               m->tcp ? "TCP" : "shared memory", seconds, LARGE / MB / seconds);
        pl_kv_free(value);
        pl_kv_end(fetch);
    }
    free(x);
    return rc == PL_OK ? leave_store(m) : rc;
}

static void test_a_hundred_megabytes_with_progress(void **state)
{
    (void)state;
    run_team_by(true, MEMBERS, play_large, NULL);
    run_team_by(false, MEMBERS, play_large, NULL);
}

/* ---- a holder is killed while it is read from ---- */

struct stage {
    pid_t child[MEMBERS];
    _Atomic int ready, done;
};

static int wait_until(_Atomic int *what, int is)
{
    for (double limit = process_now() + 60; *what < is; process_nap(0.002))
        if (process_now() > limit)
            return PL_ERR_TIMEOUT;
    return PL_OK;
}

static int read_and_kill(struct member *m, pl_kv *kv, struct stage *stage, bool both)
{
    const pl_kv_want want = {.size = sizeof want, "x", 1, 0, 60};
    uint64_t have = 0, size = 0;
    pl_kv_fetch *fetch;
    pl_kv_value *value;
    int rc = pl_kv_begin(kv, &want, &fetch);
    for (double limit = process_now() + 30; rc == PL_OK && have < 20 * MB;) {
        pl_kv_progress(fetch, &have, &size);
        if (process_now() > limit)
            rc = PL_ERR_TIMEOUT;
    }
    for (uint32_t i = both ? 1 : 2; rc == PL_OK && i < m->members; i++)
        rc = stage->child[i] > 0 && kill(stage->child[i], SIGKILL) == 0 ? PL_OK : PL_ERR_BUG;
    if (rc == PL_OK)
        rc = pl_kv_finish(fetch, 60, &value);
    if (both) {
        bool reported = rc == PL_ERR_NOT_FOUND && message_has(kv, "no member holds it any more;");
        rc = reported ? PL_OK : PL_ERR_DIVERGED;
    } else if (rc == PL_OK) {
        rc = is_whole(value, LARGE, 0) ? PL_OK : PL_ERR_DIVERGED;
        pl_kv_free(value);
    } else {
        message_has(kv, "no error");
    }
    pl_kv_end(fetch);
    stage->done = 1;
    return rc;
}

static int play_killed(struct member *m)
{
    struct stage *stage = m->arg;
    unsigned char *x = m->number ? malloc(LARGE) : NULL;
    pl_kv *kv;
    int rc = pl_kv_open(m->team, &kv);
    if (rc == PL_OK && m->number > 0) {
        fill_value(x, LARGE, 0, 1);
        rc = pl_kv_update(kv, "x", 0, x, LARGE, 60);
        stage->ready++;
    }
    free(x);
    if (rc == PL_OK && m->number > 0)
        return wait_until(&stage->done, 1);
    if (rc == PL_OK)
        rc = wait_until(&stage->ready, (int)m->members - 1);
    return rc == PL_OK ? read_and_kill(m, kv, stage, m->tcp) : rc;
}

static void run_processes(bool both)
{
    char rendezvous[32];
    struct stage *stage =
        mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(stage != MAP_FAILED);
    memset(stage, 0, sizeof *stage);
    port_find(rendezvous);
    for (uint32_t i = MEMBERS; i-- > 0;) { /* the last one to kill: it knows all others */
        pid_t child = fork();
        assert_true(child >= 0);
        if (child > 0) {
            stage->child[i] = child;
            continue;
        }
        struct member m = {.number = i,
                           .members = MEMBERS,
                           .rendezvous = rendezvous,
                           .play = play_killed,
                           .arg = stage,
                           .tcp = both};
        run_member(&m);
        if (m.rc != PL_OK)
            fprintf(stderr, "process %u: %d, %s\n", i, m.rc, m.error);
        _exit(m.rc == PL_OK ? 0 : 1);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        int status;
        assert_int_equal(waitpid(stage->child[i], &status, 0), stage->child[i]);
        if (i == 2 || (both && i == 1))
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    munmap(stage, sizeof *stage);
}

static void test_a_killed_holder_is_made_up_for(void **state)
{
    (void)state;
    run_processes(false);
}

static void test_kv_lost_value_is_reported(void **state)
{
    (void)state;
    run_processes(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_holder_is_made_up_for), /* forks: before there are threads */
        cmocka_unit_test(test_kv_lost_value_is_reported),
        cmocka_unit_test(test_kv_many_keys_and_callers),
        cmocka_unit_test(test_kv_first_handle_starts_the_store),
        cmocka_unit_test(test_kv_misuse_is_refused_by_name),
        cmocka_unit_test(test_kv_end_of_team_is_reported),
        cmocka_unit_test(test_a_hundred_megabytes_with_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

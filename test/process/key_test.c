#define _GNU_SOURCE
/* Admission to a run on this machine: a worker must have its key. */
#include "free_port.h"
#include "real_run.h"

#include <sys/stat.h>

static const char refusal[] = "it refuses this worker: its run has key ";

/* From now on started processes use that folder for the user's own key. */
static void be_user(struct tiny *t, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", t->folder, name);
    setenv("XDG_CONFIG_HOME", path, 1);
}

static mode_t mode_of(const char *path)
{
    struct stat of;
    assert_int_equal(stat(path, &of), 0);
    return of.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
}

/* The driver's address in a worker's arguments. */
static void find_driver(pid_t worker, char *out, size_t size)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/cmdline", (long)worker);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    for (const char *at = text; at < text + n; at += strlen(at) + 1)
        if (strcmp(at, "--join") == 0)
            snprintf(out, size, "%s", at + sizeof "--join");
}

static void expect_refused(struct tiny *t, const char *driver)
{
    struct process p;
    process_start(&p, t->folder, (const char *const[]){"worker", "--join", driver, NULL});
    process_wait(&p, REAL_LIMIT_S);
    if (p.code != 2 || !strstr(p.err, refusal))
        fail_msg("code %d; it said:\n%s", p.code, p.err);
    process_release(&p);
}

/* Its workers have the key; no other process learns anything of the run. */
static void test_train_refuses_a_stranger(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    char driver[64] = "";
    START(t, &r, "--workers", "2", "--set", "pace=0.01", "--set", "stop.epochs=100");
    real_workers(&r, 2, worker);
    find_driver(worker[0], driver, sizeof driver);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 2);
    expect_refused(t, driver);
    assert_int_equal(real_members(&r, "join"), 2);
    process_signal_all(&r.p, SIGINT);
    real_end(&r, 130, "interrupted");
    process_release(&r.p);
}

static void start_driver(struct tiny *t, struct real_run *r, const char *address, const char *name,
                         const char *file)
{
    const char *argv[] = {"driver", t->job,  "--out",     r->dir, "--json", "--listen",
                          address,  "--set", "workers=1", name,   file,     NULL};
    process_start(&r->p, t->folder, argv);
}

/* Driver and worker of one user need no option. */
static void test_driver_asks_for_the_users_own_key(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    struct process worker;
    char address[32], path[160];
    port_find(address);
    be_user(t, "one");
    start_driver(t, &r, address, NULL, NULL);
    snprintf(path, sizeof path, "%s/one/paceline/key", t->folder);
    UNTIL(REAL_LIMIT_S, access(path, R_OK) == 0);
    assert_int_equal(mode_of(path), S_IRUSR | S_IWUSR);
    be_user(t, "other");
    process_nap(0.5);
    expect_refused(t, address);
    be_user(t, "one");
    process_start(&worker, t->folder, (const char *const[]){"worker", "--join", address, NULL});
    real_end(&r, 0, "epochs");
    process_wait(&worker, REAL_LIMIT_S);
    assert_int_equal(worker.code, 0);
    process_release(&worker);
    process_release(&r.p);
}

static int make_key(struct tiny *t, const char *path, const char *expected)
{
    struct process p;
    process_start(&p, t->folder, (const char *const[]){"keygen", path, NULL});
    process_wait(&p, REAL_LIMIT_S);
    int code = p.code;
    if (!strstr(code ? p.err : p.out, expected))
        fail_msg("code %d; it said: %s%s", code, p.out, p.err);
    process_release(&p);
    return code;
}

static void expect_no_key(struct tiny *t, const char *const *argv, const char *why)
{
    struct process p;
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    if (p.code != 2 || !strstr(p.err, why))
        fail_msg("code %d; it said:\n%s", p.code, p.err);
    process_release(&p);
}

/* The driver prints the line that starts a worker, with the key's file and id. */
static void test_key_file_is_made_and_kept_secret(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    struct process worker;
    char address[32], path[160], id[17] = "";
    const char *argv[] = {"worker", "--join", address, "--key", path, NULL};
    port_find(address);
    snprintf(path, sizeof path, "%s/made.key", t->folder);
    expect_no_key(t, argv, "it is not there; make one with `paceline keygen FILE`");
    assert_int_equal(make_key(t, path, " has key "), 0);
    assert_int_equal(mode_of(path), S_IRUSR | S_IWUSR);
    assert_int_equal(make_key(t, path, "it exists; name a new file"), 2);

    chmod(path, S_IRUSR | S_IWUSR | S_IRGRP);
    expect_no_key(t, argv, "other users can read or change it; chmod 600 it");
    chmod(path, S_IRUSR | S_IWUSR);
    start_driver(t, &r, address, "--key", path);
    process_start(&worker, t->folder, argv);
    real_end(&r, 0, "epochs");
    const char *line = strstr(r.p.err, "   # key ");
    assert_true(strstr(r.p.err, "--key") && line && sscanf(line, "   # key %16s", id) == 1);
    assert_int_equal(strlen(id), 16);
    process_wait(&worker, REAL_LIMIT_S);
    assert_int_equal(worker.code, 0);
    process_release(&worker);
    process_release(&r.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_refuses_a_stranger),
        cmocka_unit_test(test_driver_asks_for_the_users_own_key),
        cmocka_unit_test(test_key_file_is_made_and_kept_secret),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}

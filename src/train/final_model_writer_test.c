/* A trained model is never dropped: whole runs in virtual time on a disk that is full, whose quota
 * is used up, or that can only be read, for a while or for good. And a run that is to stop at once
 * keeps what there is. */
#include "doomed_run.h"
#include "run_files.h"

#include "data/lease.h"
#include "real/disk.h"
#include "train/driver.h"
#include "train/rundir.h"

enum fault { FAULT_FULL, FAULT_QUOTA, FAULT_READ_ONLY, FAULTS };

/* The real disk, but what lies under `root` cannot be written for a while. */
struct tight_disk {
    struct disk disk; /* first */
    const char *root;
    enum fault fault;
    double from_s, until_s;
    bool after_checkpoint; /* from_s is when the first checkpoint has its name */
    struct doomed_run *run;
};

struct disk_file {
    struct tight_disk *disk;
    struct disk_file *file; /* the real disk's */
    bool inside;
};

static double now_s(const struct doomed_run *r)
{
    return r->sim ? (double)sim_now(r->sim) * 1e-9 : 0;
}

static bool is_tight(const struct tight_disk *t, const char *path)
{
    double now = now_s(t->run);
    return strncmp(path, t->root, strlen(t->root)) == 0 && now >= t->from_s && now < t->until_s;
}

static bool is_read_only(struct disk *d, const char *path)
{
    const struct tight_disk *t = (struct tight_disk *)d;
    return t->fault == FAULT_READ_ONLY && is_tight(t, path);
}

static int refuse_file(const char *path, struct err *err)
{
    return err_set(err, ERR_IO, "%s: cannot write: Read-only file system", path);
}

static int tight_make_dir(struct disk *d, const char *path, bool *made, struct err *err)
{
    return is_read_only(d, path) ? refuse_file(path, err)
                                 : real_disk()->ops->make_dir(real_disk(), path, made, err);
}

static int tight_list(struct disk *d, const char *path, void (*fn)(void *user, const char *name),
                      void *user, struct err *err)
{
    (void)d;
    return real_disk()->ops->list(real_disk(), path, fn, user, err);
}

static int tight_remove(struct disk *d, const char *path, struct err *err)
{
    return is_read_only(d, path) ? refuse_file(path, err)
                                 : real_disk()->ops->remove(real_disk(), path, err);
}

static int tight_rename(struct disk *d, const char *from, const char *to, struct err *err)
{
    struct tight_disk *t = (struct tight_disk *)d;
    int rc = is_read_only(d, from) ? refuse_file(from, err)
                                   : real_disk()->ops->rename(real_disk(), from, to, err);
    if (rc == OK && t->after_checkpoint && strstr(to, "/checkpoint/"))
        t->from_s = now_s(t->run);
    return rc;
}

static int tight_sync_dir(struct disk *d, const char *path, struct err *err)
{
    (void)d;
    return real_disk()->ops->sync_dir(real_disk(), path, err);
}

/* A quota is unknown before it is reached. */
static int tight_free_space(struct disk *d, const char *path, uint64_t *bytes, struct err *err)
{
    const struct tight_disk *t = (struct tight_disk *)d;
    int rc = real_disk()->ops->free_space(real_disk(), path, bytes, err);
    if (t->fault == FAULT_FULL && is_tight(t, path))
        *bytes = 1000;
    return rc;
}

static int tight_open(struct disk *d, const char *path, bool append, struct disk_file **out,
                      struct err *err)
{
    struct tight_disk *t = (struct tight_disk *)d;
    if (is_read_only(d, path))
        return refuse_file(path, err);
    struct disk_file *file = malloc(sizeof *file);
    assert_non_null(file);
    *file = (struct disk_file){.disk = t, .inside = strncmp(path, t->root, strlen(t->root)) == 0};
    int rc = real_disk()->ops->open(real_disk(), path, append, &file->file, err);
    if (rc == OK)
        *out = file;
    else
        free(file);
    return rc;
}

static int tight_write(struct disk_file *f, const void *data, size_t len, struct err *err)
{
    const struct tight_disk *t = f->disk;
    if (!f->inside || !is_tight(t, t->root))
        return real_disk()->ops->write(f->file, data, len, err);
    if (t->fault == FAULT_READ_ONLY)
        return refuse_file(t->root, err);
    int rc = real_disk()->ops->write(f->file, data, len / 3, err); /* it is full then */
    return rc != OK ? rc
                    : err_set(err, ERR_FULL, "%s: cannot write: %s", t->root,
                              t->fault == FAULT_FULL ? "No space left on device"
                                                     : "Disk quota exceeded");
}

static int tight_truncate(struct disk_file *f, uint64_t len, struct err *err)
{
    return real_disk()->ops->truncate(f->file, len, err);
}

static int tight_sync(struct disk_file *f, struct err *err)
{
    return real_disk()->ops->sync(f->file, err);
}

static int tight_close(struct disk_file *f, struct err *err)
{
    int rc = real_disk()->ops->close(f->file, err);
    free(f);
    return rc;
}

/* A run of the tiny job in a directory of its own on such a disk. */
struct scene {
    struct doomed_run run;
    struct tight_disk disk;
    struct rundir dir;
    char path[128], fallback[160];
    struct rundir_fallback fallbacks[2];
    atomic_int stop;
    double stop_at[2]; /* when it is raised; 0: never */
    double stopping_at[STOPPING_DONE + 1];
    struct train_stopping stopping[STOPPING_DONE + 1];
    int reported, ticks, evaluated_after_stop;
    const char *every; /* seconds between checkpoints */
};

static void on_line(void *user, const char *event)
{
    struct scene *s = user;
    event_log_line(&s->dir.events, event);
    s->evaluated_after_stop += s->reported > 0 && strstr(event, "\"kind\":\"eval\"");
}

static void on_tick(void *user)
{
    struct scene *s = user;
    s->ticks++;
    for (int i = 0; i < 2; i++)
        if (s->stop_at[i] > 0 && now_s(&s->run) >= s->stop_at[i] && atomic_load(&s->stop) <= i)
            atomic_store(&s->stop, i + 1);
}

static void on_stopping(void *user, const struct train_stopping *stopping)
{
    struct scene *s = user;
    assert_int_equal(stopping->stage, s->reported); /* each once, in this order */
    s->stopping[s->reported] = *stopping;
    s->stopping_at[s->reported++] = now_s(&s->run);
}

static struct scene *make_scene(struct tiny *t)
{
    static const struct disk_ops ops = {
        .make_dir = tight_make_dir,
        .list = tight_list,
        .remove = tight_remove,
        .rename = tight_rename,
        .sync_dir = tight_sync_dir,
        .free_space = tight_free_space,
        .open = tight_open,
        .write = tight_write,
        .truncate = tight_truncate,
        .sync = tight_sync,
        .close = tight_close,
    };
    struct scene *s = calloc(1, sizeof *s);
    struct err err = {0};
    assert_non_null(s);
    tiny_out(t, s->path);
    snprintf(s->fallback, sizeof s->fallback, "%s/place-%d", t->folder, t->runs);
    assert_int_equal(mkdir(s->path, 0700), 0);
    assert_int_equal(mkdir(s->fallback, 0700), 0);
    s->disk = (struct tight_disk){.disk = {&ops}, .root = s->path, .run = &s->run};
    s->dir.disk = &s->disk.disk;
    snprintf(s->dir.path, sizeof s->dir.path, "%s", s->path);
    char path[256];
    snprintf(path, sizeof path, "%s/events.jsonl", s->path);
    if (event_log_open(&s->dir.events, &s->disk.disk, path, &err) != OK)
        fail_msg("%s", err.text);
    s->fallbacks[0] = (struct rundir_fallback){s->fallback, true};
    s->run.kill_node = 0;
    s->run.options = (struct train_options){
        .dir = &s->dir,
        .line = on_line,
        .user = s,
        .tick = on_tick,
        .stopping = on_stopping,
        .stop = &s->stop,
        .fallbacks = s->fallbacks,
    };
    s->every = "0.5";
    return s;
}

static const char cluster[] =
    "node { count: 4 } step_seconds: 0.1 link { mbit: 1000 latency_us: 100 }";

static void play_every(struct tiny *t, struct scene *s, const char *strategy, const char *seconds)
{
    char every[64];
    snprintf(every, sizeof every, "checkpoint.every_seconds=%s", seconds);
    doomed_play(t, cluster,
                (const char *const[]){
                    every, "checkpoint.wait_seconds=120", strategy ? strategy : "batch=16",
                    strategy && strstr(strategy, "ps=") ? "solver.momentum=0" : "batch=16", NULL},
                1000, &s->run);
    if (s->run.rc != OK)
        fail_msg("%s: %s", strategy ? strategy : "", s->run.err.text);
    s->run.sim = NULL;
}

static void play_strategy(struct tiny *t, struct scene *s, const char *strategy)
{
    play_every(t, s, strategy, s->every);
}

/* Each line of the events is one object, and the last is the run's end. */
static void expect_whole_events(const struct scene *s)
{
    char path[256], last[32] = "";
    static char line[1 << 16];
    int n = 0;
    snprintf(path, sizeof path, "%s/events.jsonl", s->path);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); n++) {
        cJSON *event = cJSON_Parse(line);
        if (!event || !strchr(line, '\n'))
            fail_msg("line %d: %s", n + 1, line);
        const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
        snprintf(last, sizeof last, "%s", kind ? kind : "");
        cJSON_Delete(event);
    }
    fclose(f);
    assert_string_equal(last, "end");
}

static void expect_model(const struct scene *s, bool elsewhere)
{
    struct safetensors st;
    const struct train_report *r = &s->run.report;
    const char *folder = elsewhere ? s->fallback : s->path;
    assert_int_equal(r->elsewhere, elsewhere);
    assert_int_equal(strncmp(r->model, folder, strlen(folder)), 0);
    run_model(folder, r->model + strlen(folder) + 1, &st);
    safetensors_release(&st);
}

static void count_checkpoint(void *user, const char *name)
{
    *(int *)user += strstr(name, ".safetensors") != NULL;
}

static int count_checkpoints(const struct scene *s)
{
    char path[256];
    int n = 0;
    snprintf(path, sizeof path, "%s/checkpoint", s->path);
    real_disk()->ops->list(real_disk(), path, count_checkpoint, &n, NULL);
    return n;
}

static void end_scene(struct scene *s)
{
    event_log_close(&s->dir.events);
    free(s);
}

/* The run takes 2.7 s. */
static void test_final_model_survives_failing_disk(void **state)
{
    static const struct {
        double from_s, until_s;
    } when[] = {{0.2, 1.5}, {0.2, 22}, {1.3, 24}, {2.5, 25}, {0.2, 1e9}, {2.5, 1e9}};
    for (int fault = 0; fault < FAULTS; fault++)
        for (size_t i = 0; i < sizeof when / sizeof *when; i++) {
            struct scene *s = make_scene(*state);
            bool for_good = when[i].until_s > 1000;
            s->disk.fault = (enum fault)fault;
            s->disk.from_s = when[i].from_s;
            s->disk.until_s = when[i].until_s;
            play_strategy(*state, s, NULL);
            expect_model(s, for_good);
            if (when[i].from_s > 1) /* what there was to resume from still is, whatever is full */
                assert_true(count_checkpoints(s) >= 1);
            assert_string_equal(s->run.report.reason, "epochs");
            double end = s->run.end_s, until = when[i].until_s;
            if (for_good)
                assert_true(end > 120 && end < 130);
            else if (until > 5)
                assert_true(end > until && end < until + 7);
            else
                assert_true(end < 4);
            assert_int_equal(event_log_flush(&s->dir.events), 0); /* the disk is well again */
            expect_whole_events(s);
            end_scene(s);
        }
}

/* The disk is full as soon as the last checkpoint is written: that one is the model, and needs no
 * room. A run that has not come to its end keeps it to resume from. */
static void test_final_model_is_last_checkpoint_on_full_disk(void **state)
{
    for (int stopped = 0; stopped < 2; stopped++) {
        struct scene *s = make_scene(*state);
        s->disk.fault = FAULT_QUOTA;
        s->disk.from_s = s->disk.until_s = 1e9;
        s->disk.after_checkpoint = true;
        s->every = "1000";
        s->stop_at[0] = stopped ? 1 : 0;
        s->stop_at[1] = stopped ? 20 : 0;
        play_strategy(*state, s, NULL);
        expect_model(s, stopped);
        assert_int_equal(count_checkpoints(s), stopped);
        if (!stopped) {
            assert_non_null(strstr(s->run.log, "the newest checkpoint is the final model now"));
            assert_true(s->run.end_s < 4);
        }
        end_scene(s);
    }
}

/* A stop ends the wait: the copy is the model then. */
static void test_final_model_wait_ends_on_stop(void **state)
{
    struct scene *s = make_scene(*state);
    s->disk.fault = FAULT_FULL;
    s->disk.from_s = 1;
    s->disk.until_s = 1e9;
    s->stop_at[0] = 15;
    play_strategy(*state, s, NULL);
    expect_model(s, true);
    assert_string_equal(s->run.report.reason, "epochs");
    assert_true(s->run.end_s > 15 && s->run.end_s < 16);
    assert_true(s->ticks > 100); /* ten a second, also while nothing commits */
    end_scene(s);
}

/* The host is informed at once; nothing is evaluated any more. */
static void test_stop_skips_evaluation(void **state)
{
    struct scene *s = make_scene(*state);
    s->stop_at[0] = 1.05;
    play_strategy(*state, s, NULL);
    expect_model(s, false);
    assert_string_equal(s->run.report.reason, "interrupted");
    assert_int_equal(s->reported, 1);
    assert_true(s->stopping_at[0] < 1.3);
    assert_true(s->stopping[0].commit_s >= 0 && s->stopping[0].commit_s <= 0.4);
    assert_true(s->stopping[0].state_age_s >= 0 && s->stopping[0].state_age_s <= 0.5);
    assert_int_equal(s->evaluated_after_stop, 0);
    assert_false(s->run.report.has_test);
    assert_true(s->run.end_s < 1.8);
    expect_whole_events(s);
    end_scene(s);
}

/* The checkpoint of the run that was stopped is of as many exchanges as was said, and the lease
 * table in it is of the same moment as the model: what is in no lease and not lost has been used.
 */
static void expect_checkpoint(const struct scene *s, const char *strategy)
{
    static struct lease_table table;
    const struct train_report *r = &s->run.report;
    struct safetensors st;
    run_model(s->path, r->model + r->model_name, &st);
    uint64_t offset = strtoull(safetensors_meta_get(&st, "place"), NULL, 10);
    const char *leases = safetensors_meta_get(&st, "leases");
    if (strtoull(safetensors_meta_get(&st, "lane.0"), NULL, 10) !=
        s->stopping[STOPPING_DONE].exchanges)
        fail_msg("%s: not the exchange that was told", strategy);
    if (leases) {
        assert_true(lease_read(&table, leases, 16));
        uint64_t used = table.frontier - table.lost - lease_pooled(&table);
        if (used != offset)
            fail_msg("%s: at %llu, leases \"%s\"", strategy, (unsigned long long)offset, leases);
    }
    safetensors_release(&st);
}

/* With each strategy the second wish leaves a checkpoint of what the driver had, or was sent: with
 * checkpoints before, and without; at once, and a step after the first wish. */
static void test_stop_at_once_keeps_a_state(void **state)
{
    static const char *const strategies[] = {
        "strategy.sync={tau:10}",  "strategy.allreduce={}",       "strategy.diloco={tau:10}",
        "strategy.mpca={}",        "strategy.easgd={tau:4}",      "strategy.ps={consistency:asp}",
        "strategy.gossip={p:0.3}", "strategy.async_allreduce={}", "strategy.pace={}",
    };
    for (int i = 0; i < 4 * (int)(sizeof strategies / sizeof *strategies); i++) {
        struct scene *s = make_scene(*state);
        const char *strategy = strategies[i / 4];
        bool at_once = i % 2, first = i / 2 % 2; /* of all checkpoints */
        s->stop_at[0] = 1.25;
        s->stop_at[1] = at_once ? 1.25 : 1.35;
        play_every(*state, s, strategy, first ? "0" : "0.5");
        assert_string_equal(s->run.report.reason, "interrupted");
        if (at_once)
            assert_int_equal(s->reported, STOPPING_DONE + 1);
        if (!s->run.report.model[0])
            fail_msg("%s: nothing is kept", strategy);
        if (s->reported == STOPPING_DONE + 1) { /* else it had come to its commit point by then */
            const struct train_stopping *done = &s->stopping[STOPPING_DONE];
            assert_true(s->run.end_s < 4);
            if (done->requests && done->state_age_s > 0.2) /* that of a worker, not one of before */
                fail_msg("%s: a state of %g s ago is kept", strategy, done->state_age_s);
            expect_checkpoint(s, strategy);
        }
        expect_model(s, false);
        expect_whole_events(s);
        end_scene(s);
    }
}

/* Steps are so long that no worker answers a stop at once: the model that was evaluated last, of
 * which no checkpoint was asked for, is promised and kept. */
static void test_stop_at_once_keeps_evaluated_model(void **state)
{
    struct scene *s = make_scene(*state);
    s->stop_at[0] = s->stop_at[1] = 17;
    doomed_play(*state, "node { count: 4 } step_seconds: 5 link { mbit: 1000 latency_us: 100 }",
                (const char *const[]){"checkpoint.every_seconds=0", "evaluate.every_exchanges=3",
                                      "strategy.allreduce={}", NULL},
                1000, &s->run);
    assert_int_equal(s->run.rc, OK);
    s->run.sim = NULL;
    assert_int_equal(s->reported, STOPPING_DONE + 1);
    assert_int_equal(s->stopping[STOPPING_SOON].exchanges, 3);
    assert_int_equal(s->stopping[STOPPING_DONE].exchanges, 3);
    expect_checkpoint(s, "allreduce");
    end_scene(s);
}

/* The driver of a run in which the first model that is to be the final one does not fit. */
struct tight_writer {
    struct driver *driver;
    size_t room; /* the model writer's own, while it has less */
};

static void watch_driver(void *user, const struct driver *d)
{
    ((struct tight_writer *)user)->driver = (struct driver *)(uintptr_t)d;
}

static void watch_worker(void *user, uint32_t node, const struct worker *w)
{
    (void)user, (void)node, (void)w;
}

static struct tight_writer tight;

/* Less room once the final model has been asked for, until that has been told. */
static void on_tick_of_tight(void *user)
{
    struct scene *s = user;
    struct driver *d = tight.driver;
    on_tick(user);
    if (tight.room == 0 && d && d->requests.final_of != WORLD_ANY) {
        tight.room = d->model_writer.room;
        d->model_writer.room = 1;
    } else if (d && strstr(s->run.log, "its length is wrong")) {
        d->model_writer.room = tight.room;
    }
}

/* A final model that cannot be used is asked for again, of another worker. */
static void test_final_model_left_out_is_requested_again(void **state)
{
    const struct train_watch watch = {watch_driver, watch_worker, &tight, {0}};
    struct scene *s = make_scene(*state);
    s->run.watch = &watch;
    s->run.options.tick = on_tick_of_tight;
    play_strategy(*state, s, "strategy.allreduce={}");
    assert_true(tight.room > 0);
    assert_non_null(
        strstr(s->run.log, "worker 0: its model is dropped: its header or its length is wrong"));
    expect_model(s, false);
    assert_string_equal(s->run.report.reason, "epochs");
    expect_whole_events(s);
    end_scene(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_final_model_survives_failing_disk),
        cmocka_unit_test(test_final_model_is_last_checkpoint_on_full_disk),
        cmocka_unit_test(test_final_model_wait_ends_on_stop),
        cmocka_unit_test(test_stop_skips_evaluation),
        cmocka_unit_test(test_stop_at_once_keeps_a_state),
        cmocka_unit_test(test_stop_at_once_keeps_evaluated_model),
        cmocka_unit_test(test_final_model_left_out_is_requested_again),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}

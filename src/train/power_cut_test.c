/* The power is cut at each call of a run's checkpoints, in each state that a disk may be left in,
 * and once more while the run that resumes from there writes its own: what is loaded is a state
 * that was written, to the bit, and never older than the newest that was reported as saved. */
#include "checkpoint_sample.h"
#include "power_disk.h"
#include "sweep_stride.h"

enum {
    GENERATIONS = 6,
    SECOND_GENERATIONS = 3,
    KEEP = 3,
    SEEN = 1 << 18,
    EACH_BYTE = SWEEP_STRIDE(17, 17),
    SOME_BYTES = 97
};

struct cutting {
    struct sample *m;
    struct power_disk disk;
    uint64_t reported, begun; /* the newest that is saved, and that was being saved */
    size_t stride;            /* files are torn at every so many bytes */
    bool second;              /* a run that continues after a cut: no third one */
    bool tolerant;            /* wrong states are counted, not complained of */
};

/* Of all cuts, in states that differ or with other things promised. */
static struct {
    uint64_t seen[SEEN];
    int points, loads, nothing, older, resumed, bad;
} meta;

static bool seen_before(uint64_t key)
{
    size_t at = key % SEEN;
    key += key == 0;
    while (meta.seen[at] != 0 && meta.seen[at] != key)
        at = (at + 1) % SEEN;
    bool seen = meta.seen[at] == key;
    meta.seen[at] = key;
    return seen;
}

static void clear_image(const struct sample *m)
{
    char command[128];
    snprintf(command, sizeof command, "%s/image", m->folder.path);
    if (access(command, F_OK) != 0)
        return;
    snprintf(command, sizeof command, "rm -rf '%s/image'", m->folder.path);
    assert_int_equal(system(command), 0);
}

/* Remove what power_put_dir made, without a process for each. */
static void remove_image(const struct power_disk *p, int dir, const char *path)
{
    char name[POWER_PATH];
    for (int i = 0; i < p->names; i++) {
        if (p->name[i].dir != dir)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, p->name[i].name);
        if (p->node[p->name[i].node].is_dir)
            remove_image(p, p->name[i].node, name);
        else
            assert_int_equal(unlink(name), 0);
    }
    assert_int_equal(rmdir(path), 0);
}

/* Load what the cut has left. The exchange it is of; 0: there is nothing, and the message says so.
 */
static uint64_t load_image(const struct cutting *c, const struct power_disk *image, bool *good)
{
    struct sample *m = c->m;
    float model[SAMPLE_ROOM], want[SAMPLE_ROOM];
    struct checkpoint_header header = {0};
    struct err err = {0};
    assert_int_equal(mkdir(image->root, 0700), 0);
    power_put_dir(image, 0, image->root);
    int rc = sample_load(m, model, &header, &err);
    remove_image(image, 0, image->root);
    uint64_t n = rc == OK ? header.progress.exchanges : 0;
    sample_fill(m, n, want);
    *good = rc == OK
                ? (n == c->reported || n == c->begun) && header.used == sample_header_of(n).used &&
                      memcmp(model, want, model_floats(&m->layout) * sizeof *model) == 0
                : c->reported == 0 && err.text[0] && (rc == ERR_NOT_FOUND || rc == ERR_INPUT);
    if (!*good && !c->tolerant)
        fail_msg("reported %d, begun %d; loaded %d: %s\n%s", (int)c->reported, (int)c->begun,
                 (int)n, err.text, m->log);
    return n;
}

static void write_on(struct cutting *c, uint64_t from, int generations);

/* The run continues, on what the cut has left, and the power is cut again. */
static void resume_on(const struct cutting *c, const struct power_disk *image, uint64_t from)
{
    struct cutting *second = malloc(sizeof *second);
    assert_non_null(second);
    *second = *c;
    second->disk = *image;
    second->second = true;
    second->stride = SOME_BYTES;
    second->reported = second->begun = from;
    write_on(second, from, SECOND_GENERATIONS);
    free(second);
    meta.resumed++;
}

static void try_cut(struct cutting *c, const struct power_cut *cut)
{
    static struct power_disk image; /* large; a cut within a cut makes its own */
    struct power_disk *after = c->second ? malloc(sizeof *after) : &image;
    bool good;
    assert_non_null(after);
    power_after(&c->disk, cut, after);
    after->before = NULL;
    uint64_t key = hash_mix(hash_mix(power_hash(after), c->reported), c->begun * 2 + c->second);
    if (!seen_before(key)) {
        uint64_t n = load_image(c, after, &good);
        meta.points++;
        meta.loads += n > 0;
        meta.nothing += n == 0;
        meta.older += n > 0 && n < c->begun;
        meta.bad += !good;
        if (!c->second && good && !c->tolerant && meta.points % 16 == 0)
            resume_on(c, after, n);
    }
    if (c->second)
        free(after);
}

/* Every state that a cut may leave here. */
static void cut_here(void *user)
{
    struct cutting *c = user;
    const uint32_t all = (1u << c->disk.pendings) - 1;
    size_t unsafe = power_unsafe(&c->disk);
    assert_true(c->disk.pendings < 12);
    for (uint32_t happened = 0; happened <= all; happened++)
        for (size_t at = 0; at <= unsafe; at += unsafe > 2 ? unsafe / 2 : 1)
            try_cut(c, &(struct power_cut){happened, at, POWER_SHORT});
    for (size_t at = 0; at < unsafe; at += c->stride)
        for (enum power_tear tear = POWER_SHORT; tear < POWER_TEARS; tear++)
            try_cut(c, &(struct power_cut){all, at, tear});
}

/* Save so many more checkpoints after exchange `from`. */
static void write_on(struct cutting *c, uint64_t from, int generations)
{
    struct err err = {0};
    c->disk.before = cut_here;
    c->disk.user = c;
    for (int i = 1; i <= generations; i++) {
        c->begun = from + (uint64_t)i * 7;
        if (!c->second)
            c->stride = i == 1 || i == KEEP + 2 ? EACH_BYTE : SOME_BYTES;
        if (sample_save_to(c->m, &c->disk.disk, c->begun, KEEP, &err) != OK)
            fail_msg("%s", err.text);
        c->reported = c->begun;
    }
    cut_here(c);
}

static void begin_cutting(struct cutting *c, struct sample *m, const struct disk_ops *ops)
{
    struct err err = {0};
    char root[80], path[96];
    snprintf(root, sizeof root, "%s/image", m->folder.path);
    snprintf(path, sizeof path, "%s/run", root);
    *c = (struct cutting){.m = m};
    memset(&meta, 0, sizeof meta);
    power_init(&c->disk, root);
    if (ops)
        c->disk.disk.ops = ops;
    clear_image(m);
    assert_int_equal(rundir_create(&m->dir, &c->disk.disk, path, "x", &err), OK);
    rundir_close(&m->dir);     /* gives up the lock, which is of the other disk */
    m->dir.disk = real_disk(); /* which loads */
}

static void test_checkpoint_survives_power_cut_at_any_call(void **state)
{
    static struct cutting c;
    begin_cutting(&c, *state, NULL);
    write_on(&c, 0, GENERATIONS);
    print_message(
        "    %d points: %d loads of the newest, %d of the one before, %d times nothing yet; "
        "%d runs continued, and were cut again; %d bad\n",
        meta.points, meta.loads - meta.older, meta.older, meta.nothing, meta.resumed, meta.bad);
    assert_true(meta.points >= 10000 / SWEEP_STRIDE(10, 10) && meta.loads - meta.older > 20 &&
                meta.older > 100 && meta.nothing > 100 &&
                meta.resumed > 600 / SWEEP_STRIDE(15, 15));
    assert_int_equal(meta.bad, 0);
}

/* ---- the model can find what it is there to find ---- */

static int no_sync(struct disk_file *f, struct err *err)
{
    (void)f, (void)err;
    return OK;
}

static int no_sync_dir(struct disk *d, const char *path, struct err *err)
{
    (void)d, (void)path, (void)err;
    return OK;
}

/* Names of a folder are kept, but those of one that ends with `run` are not. */
static int no_sync_of_the_run(struct disk *d, const char *path, struct err *err)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, "/run") == 0 ? OK : power_sync_dir(d, path, err);
}

static int bad_with(struct sample *m, const struct disk_ops *ops)
{
    static struct cutting c;
    begin_cutting(&c, m, ops);
    c.tolerant = true;
    c.second = true;
    c.stride = SOME_BYTES;
    write_on(&c, 0, 2);
    print_message("    %d of %d are bad\n", meta.bad, meta.points);
    return meta.bad;
}

static void test_power_cut_detects_missing_sync(void **state)
{
    struct power_disk *p = calloc(1, sizeof *p);
    assert_non_null(p);
    power_init(p, "/");
    struct disk_ops files = *p->disk.ops, dirs = files, run = files;
    files.sync = no_sync;
    dirs.sync_dir = no_sync_dir;
    run.sync_dir = no_sync_of_the_run;
    assert_int_equal(bad_with(*state, p->disk.ops), 0);
    assert_true(bad_with(*state, &files) > 0);
    assert_true(bad_with(*state, &dirs) > 0);
    assert_true(bad_with(*state, &run) > 0);
    free(p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, sample_setup, sample_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_checkpoint_survives_power_cut_at_any_call),
        TEST(test_power_cut_detects_missing_sync),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

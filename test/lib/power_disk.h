/* A disk in memory whose power can be cut. A power cut leaves not one state but many: bytes that
 * were written and not synced are present, missing, or torn at any byte; each change of a name in a
 * directory that was not synced after it has happened or not, independently of earlier and later
 * ones; synced data is present. A file's name belongs to its directory: syncing the file does not
 * keep it.
 *
 * The model is the one of Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014), with
 * renames that happen whole. */
#ifndef PL_LIB_POWER_DISK_H
#define PL_LIB_POWER_DISK_H

#include "base/bytes.h"
#include "base/hash.h"
#include "folder.h"
#include "world/disk.h"

enum {
    POWER_NODES = 64,
    POWER_BYTES = 4096, /* of one file */
    POWER_NAMES = 64,   /* in all directories */
    POWER_NAME = 48,
    POWER_PENDING = 32,
    POWER_PATH = 512,
};

struct power_node {
    bool is_dir;
    size_t len, safe; /* bytes, and how many of them are synced */
    uint8_t bytes[POWER_BYTES];
};

/* In directory `dir`, `name` leads to `node`; -1: to nothing. */
struct power_name {
    int dir, node;
    char name[POWER_NAME];
};

/* One change of a directory: a rename sets one name and takes another away. */
struct power_change {
    int n;
    struct power_name name[2];
};

struct power_disk {
    struct disk disk; /* first */
    char root[64];    /* the prefix of paths: node 0, which always exists */
    struct power_node node[POWER_NODES];
    int nodes;
    struct power_name name[POWER_NAMES]; /* that are safe */
    int names;
    struct power_change pending[POWER_PENDING]; /* changes that are not, oldest first */
    int pendings;
    void (*before)(void *user); /* each call that changes something: the power may be cut here */
    void *user;
};

struct disk_file {
    struct power_disk *disk;
    int node;
};

/* The remains of files that were being written. */
enum power_tear {
    POWER_SHORT, /* ends at a byte */
    POWER_ZEROS, /* has its length, but zeros from a byte on */
    POWER_NOISE, /* or the previous bytes */
    POWER_LATE,  /* or zeros up to that byte, followed by the written bytes */
    POWER_TEARS,
};

/* One state that a cut may leave. */
struct power_cut {
    uint32_t happened; /* bit i: pending[i] has */
    size_t at;         /* where files are torn, counted from their last synced byte */
    enum power_tear tear;
};

/* ---- names ---- */

static inline void power_set(struct power_name *names, int *count, const struct power_name *to)
{
    int i = 0;
    while (i < *count && (names[i].dir != to->dir || strcmp(names[i].name, to->name) != 0))
        i++;
    if (i == *count && to->node < 0)
        return;
    assert_true(i < POWER_NAMES);
    if (to->node < 0) {
        names[i] = names[--*count];
        return;
    }
    names[i] = *to;
    *count += i == *count;
}

/* The names as they are with those of the pending changes; how many. */
static inline int power_names(const struct power_disk *p, uint32_t happened,
                              struct power_name out[POWER_NAMES])
{
    int count = p->names;
    memcpy(out, p->name, (size_t)count * sizeof *out);
    for (int i = 0; i < p->pendings; i++)
        for (int k = 0; happened >> i & 1 && k < p->pending[i].n; k++)
            power_set(out, &count, &p->pending[i].name[k]);
    return count;
}

static inline int power_find(const struct power_disk *p, int dir, const char *name)
{
    struct power_name names[POWER_NAMES];
    int count = power_names(p, UINT32_MAX, names);
    for (int i = 0; i < count; i++)
        if (names[i].dir == dir && strcmp(names[i].name, name) == 0)
            return names[i].node;
    return -1;
}

/* The directory that holds the last part of a path, which goes to `last`; -1: there is none. */
static inline int power_walk(const struct power_disk *p, const char *path, char last[POWER_NAME])
{
    char rest[POWER_PATH], *part, *more = NULL;
    size_t root = strlen(p->root);
    assert_true(strncmp(path, p->root, root) == 0 && strlen(path) < sizeof rest);
    snprintf(rest, sizeof rest, "%s", path + root);
    int dir = 0;
    last[0] = '\0';
    for (part = strtok_r(rest, "/", &more); part; part = strtok_r(NULL, "/", &more)) {
        if (last[0])
            dir = power_find(p, dir, last);
        if (dir < 0 || !p->node[dir].is_dir)
            return -1;
        assert_true(strlen(part) < POWER_NAME);
        snprintf(last, POWER_NAME, "%s", part);
    }
    return dir;
}

/* The target of a path; -1: none. */
static inline int power_at(const struct power_disk *p, const char *path)
{
    char last[POWER_NAME];
    int dir = power_walk(p, path, last);
    return dir < 0 || !last[0] ? dir : power_find(p, dir, last);
}

static inline void power_change(struct power_disk *p, const struct power_change *change)
{
    assert_true(p->pendings < POWER_PENDING);
    p->pending[p->pendings++] = *change;
}

static inline struct power_name power_name(int dir, const char *name, int node)
{
    struct power_name out = {.dir = dir, .node = node};
    snprintf(out.name, sizeof out.name, "%s", name);
    return out;
}

static inline int power_new(struct power_disk *p, int dir, const char *name, bool is_dir)
{
    assert_true(p->nodes < POWER_NODES);
    int node = p->nodes++;
    p->node[node].is_dir = is_dir;
    p->node[node].len = p->node[node].safe = 0;
    power_change(p, &(struct power_change){1, {power_name(dir, name, node)}});
    return node;
}

/* ---- what a disk does ---- */

static inline struct power_disk *power_of(struct disk *d)
{
    struct power_disk *p = (struct power_disk *)d;
    if (p->before)
        p->before(p->user);
    return p;
}

static inline int power_no(const char *path, struct err *err)
{
    return err_set(err, ERR_IO, "%s: cannot", path);
}

static inline int power_make_dir(struct disk *d, const char *path, bool *made, struct err *err)
{
    struct power_disk *p = power_of(d);
    char last[POWER_NAME];
    int dir = power_walk(p, path, last), node = power_at(p, path);
    if (dir < 0 || (node >= 0 && !p->node[node].is_dir))
        return power_no(path, err);
    if (made)
        *made = node < 0;
    if (node < 0)
        power_new(p, dir, last, true);
    return OK;
}

static inline int power_by_name(const void *a, const void *b)
{
    const struct power_name *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static inline int power_list(struct disk *d, const char *path,
                             void (*fn)(void *user, const char *name), void *user, struct err *err)
{
    const struct power_disk *p = (struct power_disk *)d;
    struct power_name names[POWER_NAMES];
    int dir = power_at(p, path), count = power_names(p, UINT32_MAX, names);
    if (dir < 0 || !p->node[dir].is_dir)
        return err_set(err, ERR_NOT_FOUND, "%s: no such directory", path);
    qsort(names, (size_t)count, sizeof *names, power_by_name);
    for (int i = 0; i < count; i++)
        if (names[i].dir == dir)
            fn(user, names[i].name);
    return OK;
}

static inline int power_remove(struct disk *d, const char *path, struct err *err)
{
    struct power_disk *p = power_of(d);
    char last[POWER_NAME];
    int dir = power_walk(p, path, last), node = power_at(p, path);
    if (node < 0 || p->node[node].is_dir)
        return power_no(path, err);
    power_change(p, &(struct power_change){1, {power_name(dir, last, -1)}});
    return OK;
}

/* Within one directory. */
static inline int power_rename(struct disk *d, const char *from, const char *to, struct err *err)
{
    struct power_disk *p = power_of(d);
    char old[POWER_NAME], new[POWER_NAME];
    int dir = power_walk(p, from, old), node = power_at(p, from);
    if (node < 0 || power_walk(p, to, new) != dir)
        return power_no(from, err);
    power_change(p,
                 &(struct power_change){2, {power_name(dir, new, node), power_name(dir, old, -1)}});
    return OK;
}

static inline int power_sync_dir(struct disk *d, const char *path, struct err *err)
{
    struct power_disk *p = power_of(d);
    int dir = power_at(p, path), left = 0;
    if (dir < 0 || !p->node[dir].is_dir)
        return power_no(path, err);
    for (int i = 0; i < p->pendings; i++) {
        if (p->pending[i].name[0].dir != dir)
            p->pending[left++] = p->pending[i];
        for (int k = 0; p->pending[i].name[0].dir == dir && k < p->pending[i].n; k++)
            power_set(p->name, &p->names, &p->pending[i].name[k]);
    }
    p->pendings = left;
    return OK;
}

static inline int power_free_space(struct disk *d, const char *path, uint64_t *bytes,
                                   struct err *err)
{
    (void)d, (void)path, (void)err;
    *bytes = UINT32_MAX;
    return OK;
}

static inline int power_open(struct disk *d, const char *path, bool append, struct disk_file **out,
                             struct err *err)
{
    struct power_disk *p = power_of(d);
    char last[POWER_NAME];
    int dir = power_walk(p, path, last), node = power_at(p, path);
    if (dir < 0 || (node >= 0 && (!append || p->node[node].is_dir)))
        return power_no(path, err);
    struct disk_file *file = malloc(sizeof *file);
    assert_non_null(file);
    *file = (struct disk_file){p, node >= 0 ? node : power_new(p, dir, last, false)};
    *out = file;
    return OK;
}

static inline int power_write(struct disk_file *f, const void *data, size_t len, struct err *err)
{
    struct power_node *node = &power_of(&f->disk->disk)->node[f->node];
    (void)err;
    assert_true(len <= POWER_BYTES - node->len);
    memcpy(node->bytes + node->len, data, len);
    node->len += len;
    return OK;
}

static inline int power_truncate(struct disk_file *f, uint64_t len, struct err *err)
{
    struct power_node *node = &power_of(&f->disk->disk)->node[f->node];
    (void)err;
    assert_true(len <= node->len && len >= node->safe);
    node->len = (size_t)len;
    return OK;
}

static inline int power_sync(struct disk_file *f, struct err *err)
{
    struct power_node *node = &power_of(&f->disk->disk)->node[f->node];
    (void)err;
    node->safe = node->len;
    return OK;
}

static inline int power_close(struct disk_file *f, struct err *err)
{
    (void)err;
    free(f);
    return OK;
}

/* One machine with a power cut: locks do not survive it. */
static inline int power_lock(struct disk *d, const char *path, bool take_over,
                             struct disk_file **out, struct disk_holder *holder, struct err *err)
{
    (void)take_over, (void)holder;
    return power_open(d, path, true, out, err);
}

static inline void power_touch(struct disk_file *lock)
{
    (void)lock;
}

static inline void power_unlock(struct disk_file *lock)
{
    free(lock);
}

/* An empty disk, whose paths begin with `root`. */
static inline void power_init(struct power_disk *p, const char *root)
{
    static const struct disk_ops ops = {
        .make_dir = power_make_dir,
        .list = power_list,
        .remove = power_remove,
        .rename = power_rename,
        .sync_dir = power_sync_dir,
        .free_space = power_free_space,
        .open = power_open,
        .write = power_write,
        .truncate = power_truncate,
        .sync = power_sync,
        .close = power_close,
        .lock = power_lock,
        .touch = power_touch,
        .unlock = power_unlock,
    };
    *p = (struct power_disk){.disk = {&ops}, .nodes = 1};
    p->node[0].is_dir = true;
    assert_true(strlen(root) < sizeof p->root);
    memcpy(p->root, root, strlen(root) + 1);
}

/* ---- cuts ---- */

/* The most bytes that a cut may take from one file. */
static inline size_t power_unsafe(const struct power_disk *p)
{
    size_t most = 0;
    for (int i = 0; i < p->nodes; i++)
        if (p->node[i].len - p->node[i].safe > most)
            most = p->node[i].len - p->node[i].safe;
    return most;
}

/* The bytes of a file after the cut; how many. */
static inline size_t power_torn(const struct power_node *node, const struct power_cut *cut,
                                uint8_t out[POWER_BYTES])
{
    size_t at = node->safe + cut->at;
    memcpy(out, node->bytes, node->len);
    if (at >= node->len)
        return node->len;
    for (size_t i = node->safe; i < node->len; i++) {
        if (cut->tear == POWER_LATE ? i < at : i >= at)
            out[i] = cut->tear == POWER_NOISE ? (uint8_t)(i * 157 + 41) : 0;
    }
    return cut->tear == POWER_SHORT ? at : node->len;
}

/* The disk as the cut leaves it, all of it safe. */
static inline void power_after(const struct power_disk *p, const struct power_cut *cut,
                               struct power_disk *out)
{
    *out = *p;
    out->names = power_names(p, cut->happened, out->name);
    out->pendings = 0;
    for (int i = 0; i < p->nodes; i++)
        out->node[i].len = out->node[i].safe = power_torn(&p->node[i], cut, out->node[i].bytes);
}

static inline void power_put_dir(const struct power_disk *p, int dir, const char *path)
{
    char name[POWER_PATH];
    for (int i = 0; i < p->names; i++) {
        if (p->name[i].dir != dir)
            continue;
        const struct power_node *node = &p->node[p->name[i].node];
        if (snprintf(name, sizeof name, "%s/%s", path, p->name[i].name) >= (int)sizeof name)
            fail_msg("%s: too long", path);
        if (node->is_dir) {
            assert_int_equal(mkdir(name, 0700), 0);
            power_put_dir(p, p->name[i].node, name);
            continue;
        }
        FILE *file = fopen(name, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(node->bytes, 1, node->len, file), node->len);
        assert_int_equal(fclose(file), 0);
    }
}

/* A hash of all that can be reached; equal for equal contents. Names are taken in any order. */
static inline uint64_t power_hash(const struct power_disk *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < p->names; i++) {
        const struct power_node *node = &p->node[p->name[i].node];
        uint64_t name = hash_bytes(p->name[i].name, strlen(p->name[i].name));
        uint64_t bytes =
            node->is_dir ? (uint64_t)p->name[i].node : hash_bytes(node->bytes, node->len);
        uint64_t all[3] = {name, bytes, (uint64_t)p->name[i].dir};
        sum += hash_bytes((uint8_t *)all, sizeof all);
    }
    return sum;
}

#endif

#include "data/record_cache.h"

#include "base/fault.h"
#include "base/file.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of each allocation that the allocator needs for itself. */
enum { ALLOCATION_BYTES = 16 };

/* Of the disk so much stays free; asked again after so many bytes. */
static const uint64_t DISK_FREE_LEAST = (uint64_t)1 << 30, DISK_ASK_BYTES = (uint64_t)64 << 20;

struct record_cache {
    _Atomic size_t limit, used;
    _Atomic uint64_t in_memory, on_disk;
    atomic_bool writes;  /* the file takes more */
    atomic_flag writing; /* held by the thread that appends to the file, which owns: */
    struct disk *disk;
    struct disk_file *out;
    _Atomic uint64_t written; /* bytes of the file */
    uint64_t asked;           /* of them, when the free space was asked for */
    char *folder;
    struct err why;      /* why the file takes no more */
    struct file_open in; /* the same file, to read from */
    bool is_open;
};

/* Where a record is: nowhere (0), in memory (the address), in the file (the offset); and its
 * kind in bits that an address, or an offset shifted by them, leaves. The kind is the form, or
 * KIND_SHRUNK and more: of a picture that is shrunk. */
enum { SLOT_ON_DISK = 1, SLOT_KIND_SHIFT = 1, SLOT_BITS = 4 };
enum { KIND_SHRUNK = RAW_FLOATS, KIND_MASK = 7 };
_Static_assert(KIND_SHRUNK + SHRINK_MAX <= KIND_MASK && SLOT_BITS == 4, "it has a kind's bits");

struct source_cached {
    struct source source; /* first */
    const struct source *of;
    struct record_cache *cache;
    _Atomic uint64_t *slot; /* of each record */
};

int record_cache_create(struct record_cache **out, struct err *err)
{
    struct record_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return err_set(err, ERR_NOMEM, "data: out of memory for a cache");
    atomic_flag_clear(&cache->writing);
    *out = cache;
    return OK;
}

void record_cache_free(struct record_cache *cache)
{
    if (!cache)
        return;
    if (cache->out)
        cache->disk->ops->close(cache->out, NULL);
    if (cache->is_open)
        file_close(&cache->in);
    free(cache->folder);
    free(cache);
}

void record_cache_allow_memory(struct record_cache *cache, size_t bytes)
{
    atomic_store(&cache->limit, bytes);
}

int record_cache_allow_disk(struct record_cache *cache, struct disk *disk, const char *path,
                            struct err *err)
{
    PL_ASSERT(!cache->out);
    const char *slash = strrchr(path, '/');
    cache->folder = strndup(path, slash ? (size_t)(slash - path) + 1 : 0);
    if (!cache->folder)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    cache->disk = disk;
    int rc = disk->ops->open(disk, path, false, &cache->out, err);
    if (rc != OK)
        return rc;
    rc = file_open(path, &cache->in, err);
    cache->is_open = rc == OK;
    int removed = disk->ops->remove(disk, path, rc == OK ? err : NULL);
    rc = rc == OK ? removed : rc;
    atomic_store(&cache->writes, rc == OK);
    return rc;
}

void record_cache_count(struct record_cache *cache, struct record_cache_counts *out)
{
    *out = (struct record_cache_counts){
        .in_memory = atomic_load(&cache->in_memory),
        .on_disk = atomic_load(&cache->on_disk),
        .memory_bytes = atomic_load(&cache->used),
        .disk_bytes = atomic_load(&cache->written),
    };
    if (cache->out && !atomic_load(&cache->writes))
        out->disk_error = cache->why;
}

/* ---- keeping ---- */

static size_t raw_bytes(const struct raw *raw)
{
    return raw->C * shrunk_side(raw->H, raw->shrink) * shrunk_side(raw->W, raw->shrink) *
           (raw->form == RAW_FLOATS ? sizeof(float) : 1);
}

static uint64_t kind_bits(const struct raw *raw)
{
    PL_ASSERT(raw->shrink == 0 || raw->form == RAW_INTERLEAVED);
    uint64_t kind = raw->shrink > 0 ? KIND_SHRUNK + raw->shrink : (unsigned)raw->form;
    return kind << SLOT_KIND_SHIFT;
}

static void set_kind(struct raw *raw, uint64_t slot)
{
    unsigned kind = (unsigned)(slot >> SLOT_KIND_SHIFT) & KIND_MASK;
    raw->form = kind > KIND_SHRUNK ? RAW_INTERLEAVED : (enum raw_form)kind;
    raw->shrink = kind > KIND_SHRUNK ? kind - KIND_SHRUNK : 0;
}

/* Memory is taken before it is allocated, so that threads do not pass the limit together. */
static void *take_memory(struct record_cache *cache, size_t n)
{
    size_t all = n + ALLOCATION_BYTES, limit = atomic_load(&cache->limit);
    if (all > limit || atomic_load(&cache->used) > limit - all)
        return NULL;
    void *at = atomic_fetch_add(&cache->used, all) > limit - all ? NULL : malloc(n);
    if (!at)
        atomic_fetch_sub(&cache->used, all);
    return at;
}

static bool keep_in_memory(struct source_cached *self, size_t i, const struct raw *raw)
{
    size_t n = raw_bytes(raw);
    uint64_t none = 0;
    void *at = take_memory(self->cache, n);
    if (!at)
        return false;
    memcpy(at, raw->at, n);
    PL_ASSERT(((uintptr_t)at & ((1u << SLOT_BITS) - 1)) == 0);
    uint64_t slot = (uint64_t)(uintptr_t)at | kind_bits(raw);
    if (atomic_compare_exchange_strong(&self->slot[i], &none, slot)) {
        atomic_fetch_add(&self->cache->in_memory, 1);
        return true;
    }
    free(at); /* another thread was faster */
    atomic_fetch_sub(&self->cache->used, n + ALLOCATION_BYTES);
    return true;
}

/* Too little is free, or the answer is an error: the file takes no more. */
static bool has_space(struct record_cache *cache, uint64_t end)
{
    uint64_t left = 0;
    if (end < cache->asked + DISK_ASK_BYTES && cache->asked > 0)
        return true;
    cache->asked = end;
    int rc = cache->disk->ops->free_space(cache->disk, cache->folder, &left, &cache->why);
    if (rc == OK && left < DISK_FREE_LEAST)
        err_set(&cache->why, ERR_FULL, "%s: less than %d MiB are free", cache->folder,
                (int)(DISK_FREE_LEAST >> 20));
    return rc == OK && left >= DISK_FREE_LEAST;
}

/* While another thread writes, this record is not kept; it will be read again. */
static void keep_on_disk(struct source_cached *self, size_t i, const struct raw *raw)
{
    struct record_cache *cache = self->cache;
    size_t n = raw_bytes(raw);
    uint64_t none = 0;
    if (!atomic_load(&cache->writes) || atomic_flag_test_and_set(&cache->writing))
        return;
    uint64_t at = atomic_load(&cache->written);
    if (!atomic_load(&cache->writes)) {
        /* another thread has ended it meanwhile */
    } else if (has_space(cache, at + n) &&
               cache->disk->ops->write(cache->out, raw->at, n, &cache->why) == OK) {
        uint64_t slot = at << SLOT_BITS | kind_bits(raw) | SLOT_ON_DISK;
        atomic_store(&cache->written, at + n);
        if (atomic_compare_exchange_strong(&self->slot[i], &none, slot))
            atomic_fetch_add(&cache->on_disk, 1);
    } else {
        atomic_store(&cache->writes, false);
    }
    atomic_flag_clear(&cache->writing);
}

/* ---- reading ---- */

static bool find_kept(const struct source_cached *self, size_t i, struct scratch *scratch,
                      struct raw *raw)
{
    uint64_t slot = atomic_load(&self->slot[i]);
    if (!slot)
        return false;
    struct raw kept = {.C = self->source.shape.dim[0]};
    set_kind(&kept, slot);
    source_size(self->of, i, &kept.H, &kept.W);
    kept.at = (const void *)(uintptr_t)(slot & ~(uint64_t)((1u << SLOT_BITS) - 1));
    if (slot & SLOT_ON_DISK) {
        size_t n = raw_bytes(&kept);
        uint64_t at = slot >> SLOT_BITS;
        const struct file_open file = {.fd = self->cache->in.fd, .len = at + n};
        void *to = scratch_get(scratch, SCRATCH_FILE, n);
        if (!to || file_part(&file, at, to, n) != OK)
            return false;
        kept.at = to;
    }
    *raw = kept;
    return true;
}

/* Is there room for the values, a byte each, of a record of which so much is wanted? */
static bool has_room(const struct source_cached *self, const struct raw_want *want)
{
    struct record_cache *cache = self->cache;
    size_t n = self->source.shape.dim[0] * shrunk_side(want->H, want->shrink) *
               shrunk_side(want->W, want->shrink);
    return atomic_load(&cache->writes) ||
           atomic_load(&cache->used) + n + ALLOCATION_BYTES <= atomic_load(&cache->limit);
}

/* A record that is kept is whole, since the next reader may want another part of it. */
static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    struct source_cached *self = (struct source_cached *)(uintptr_t)source;
    if (find_kept(self, i, scratch, raw))
        return OK;
    const struct raw_want *want = scratch->want;
    struct raw_want all;
    if (want && !has_room(self, want))
        return self->of->ops->read(self->of, i, scratch, raw, err);
    if (want)
        all = (struct raw_want){want->H, want->W, want->shrink, 0, SIDE_MAX, 0, SIDE_MAX};
    scratch->want = want ? &all : NULL;
    int rc = self->of->ops->read(self->of, i, scratch, raw, err);
    scratch->want = want;
    if (rc == OK && !keep_in_memory(self, i, raw))
        keep_on_disk(self, i, raw);
    return rc;
}

static int read_encoded(const struct source *source, size_t i, struct scratch *scratch,
                        const uint8_t **bytes, size_t *n, struct err *err)
{
    const struct source *of = ((const struct source_cached *)source)->of;
    *bytes = NULL;
    return of->ops->encoded ? of->ops->encoded(of, i, scratch, bytes, n, err) : OK;
}

static void prefetch_record(const struct source *source, size_t i)
{
    const struct source_cached *self = (const struct source_cached *)source;
    if (!atomic_load(&self->slot[i]))
        source_prefetch(self->of, i);
}

static uint32_t label_of(const struct source *source, size_t i)
{
    const struct source *of = ((const struct source_cached *)source)->of;
    return of->ops->label(of, i);
}

static void size_of(const struct source *source, size_t i, size_t *H, size_t *W)
{
    source_size(((const struct source_cached *)source)->of, i, H, W);
}

static void name_of(const struct source *source, size_t i, char *out, size_t room)
{
    const struct source *of = ((const struct source_cached *)source)->of;
    of->ops->name(of, i, out, room);
}

static void close_cached(struct source *source)
{
    struct source_cached *self = (struct source_cached *)source;
    for (size_t i = 0; i < source->count; i++) {
        uint64_t slot = atomic_load(&self->slot[i]);
        if (slot && !(slot & SLOT_ON_DISK))
            free((void *)(uintptr_t)(slot & ~(uint64_t)((1u << SLOT_BITS) - 1)));
    }
    free(self->slot);
    free(self);
}

static const struct source_ops named_ops = {
    .kind = "cached",
    .read = read_record,
    .encoded = read_encoded,
    .prefetch = prefetch_record,
    .label = label_of,
    .size = size_of,
    .name = name_of,
    .close = close_cached,
};

/* Records without names are called by their numbers. */
static const struct source_ops numbered_ops = {
    .kind = "cached",
    .read = read_record,
    .encoded = read_encoded,
    .prefetch = prefetch_record,
    .label = label_of,
    .size = size_of,
    .close = close_cached,
};

bool record_cache_serves(const struct source *of)
{
    return of->reading == SOURCE_READS && of->count <= CACHED_RECORDS_MAX;
}

int source_cached(const struct source *of, struct record_cache *cache, struct source **out,
                  struct err *err)
{
    PL_ASSERT(record_cache_serves(of));
    struct source_cached *self = calloc(1, sizeof *self);
    _Atomic uint64_t *slot = calloc(of->count, sizeof *slot);
    if (!self || !slot) {
        free(self);
        free(slot);
        return err_set(err, ERR_NOMEM, "data: out of memory for a cache of %zu records", of->count);
    }
    self->source = *of;
    self->source.ops = of->ops->name ? &named_ops : &numbered_ops;
    self->of = of;
    self->cache = cache;
    self->slot = slot;
    *out = &self->source;
    return OK;
}

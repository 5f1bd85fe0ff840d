#include "data/source_text.h"

#include "base/array.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/vocabulary.h"
#include "job/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVERY = 1024,    /* characters, whose first one is in the index */
    BLOCK = 1 << 20, /* bytes that are read at a time */
};

static const uint64_t FILE_BYTES_MAX = UINT64_C(1) << 36;

struct source_text {
    struct source source;       /* first */
    Paceline__Data__Text *spec; /* own, settled */
    struct file_open file;
    bool open;
    uint32_t stride;
    uint64_t units;                /* in the file */
    struct vocabulary *vocabulary; /* NULL: units are bytes, */
    uint32_t highest;              /* of which the file has none above it */
    uint64_t *index;               /* offsets of characters 0, EVERY, 2 EVERY, ... */
    size_t indexed, room;
};

static int refuse_memory(const char *path, struct err *err)
{
    return err_set(err, ERR_NOMEM, "%s: out of memory", path);
}

static int refuse_unknown(const struct source_text *self, uint32_t code, uint64_t offset,
                          struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "%s: byte %" PRIu64 ": character U+%04" PRIX32 " is none of the %" PRIu32
                   " in the vocabulary",
                   self->spec->path, offset, code, self->vocabulary->n);
}

/* ---- records ---- */

static int refuse_changed(const struct source_text *self, uint64_t offset, struct err *err)
{
    return err_set(err, ERR_IO, "%s: cannot be read at byte %" PRIu64 "; the file has changed",
                   self->spec->path, offset);
}

/* Unit k of a window and the one behind it is an input, the target of the unit before, or both. */
static void put_unit(float *x, size_t window, size_t k, uint32_t id)
{
    if (k < window)
        x[k] = (float)id;
    if (k > 0)
        x[window + k - 1] = (float)id;
}

static int read_bytes(const struct source_text *self, uint64_t first, struct scratch *scratch,
                      float *x, struct err *err)
{
    size_t window = self->spec->window;
    uint8_t *bytes = scratch_get(scratch, SCRATCH_FILE, window + 1);
    if (!bytes)
        return refuse_memory(self->spec->path, err);
    if (file_part(&self->file, first, bytes, window + 1) != OK)
        return refuse_changed(self, first, err);
    for (size_t k = 0; k <= window; k++)
        put_unit(x, window, k, bytes[k]);
    return OK;
}

/* The characters from one in the index on. */
static int read_characters(const struct source_text *self, uint64_t first, struct scratch *scratch,
                           float *x, struct err *err)
{
    size_t window = self->spec->window, skipped = (size_t)(first % EVERY);
    uint64_t from = self->index[first / EVERY];
    size_t n = (skipped + window + 1) * UTF8_BYTES_MAX;
    n = n < self->file.len - from ? n : (size_t)(self->file.len - from);
    uint8_t *bytes = scratch_get(scratch, SCRATCH_FILE, n);
    if (!bytes)
        return refuse_memory(self->spec->path, err);
    if (file_part(&self->file, from, bytes, n) != OK)
        return refuse_changed(self, from, err);
    for (size_t i = 0, at = 0, length; i <= skipped + window; i++, at += length) {
        uint32_t code;
        length = at < n ? utf8_take(bytes + at, n - at, &code) : 0;
        if (length == 0)
            return refuse_changed(self, from + at, err);
        if (i < skipped)
            continue;
        if (!vocabulary_has(self->vocabulary, code))
            return refuse_unknown(self, code, from + at, err);
        put_unit(x, window, i - skipped, vocabulary_id(self->vocabulary, code));
    }
    return OK;
}

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_text *self = (const struct source_text *)source;
    size_t values = source->shape.dim[0];
    uint64_t first = (uint64_t)i * self->stride;
    float *x = scratch_get(scratch, SCRATCH_PIXELS, values * sizeof *x);
    if (!x)
        return refuse_memory(self->spec->path, err);
    *raw = (struct raw){x, RAW_FLOATS, values, 1, 1, 0};
    return self->vocabulary ? read_characters(self, first, scratch, x, err)
                            : read_bytes(self, first, scratch, x, err);
}

static uint32_t label_of(const struct source *source, size_t i)
{
    (void)source;
    (void)i;
    return 0;
}

static void close_source(struct source *source)
{
    struct source_text *self = (struct source_text *)source;
    if (self->open)
        file_close(&self->file);
    if (self->spec)
        protobuf_c_message_free_unpacked(&self->spec->base, NULL);
    free(self->vocabulary);
    free(self->index);
    free(self);
}

static const struct source_ops ops = {
    .kind = "text",
    .read = read_record,
    .label = label_of,
    .close = close_source,
};

const Paceline__Data__Text *source_text_settled(const struct source *source)
{
    return source->ops == &ops ? ((const struct source_text *)source)->spec : NULL;
}

uint64_t source_text_units(const struct source *source)
{
    return source->ops == &ops ? ((const struct source_text *)source)->units : 0;
}

uint32_t source_text_values(const struct source *source)
{
    const struct source_text *self = (const struct source_text *)source;
    if (source->ops != &ops)
        return 0;
    return self->vocabulary ? self->vocabulary->n : UINT8_MAX + 1;
}

uint32_t source_text_rows(const struct source *source)
{
    const struct source_text *self = (const struct source_text *)source;
    return source->ops == &ops && !self->vocabulary ? self->highest + 1
                                                    : source_text_values(source);
}

/* ---- all of the text ---- */

/* It is read once, and in pieces. */
struct scan {
    struct source_text *self;
    const struct source_config *config;
    struct hash_stream *hash;
    bool finds;      /* the vocabulary */
    uint8_t *bytes;  /* room for a block and what is left of the one before */
    size_t left;     /* bytes that are not divided into characters yet, */
    uint64_t offset; /* and where they begin in the file */
};

static int see_character(const struct scan *scan, uint32_t code, uint64_t offset, struct err *err)
{
    struct source_text *self = scan->self;
    if (self->units % EVERY == 0) {
        if (!array_grow(&self->index, self->indexed, &self->room, sizeof *self->index))
            return refuse_memory(self->spec->path, err);
        self->index[self->indexed++] = offset;
    }
    self->units++;
    if (scan->finds) {
        vocabulary_add(self->vocabulary, code);
    } else if (!scan->config->bad && !vocabulary_has(self->vocabulary, code)) {
        refuse_unknown(self, code, offset, err);
        err_remedy(err, BAD_RECORD_REMEDY);
        return ERR_INPUT;
    }
    return OK;
}

/* Divide the bytes of the scan; `last`: no byte follows them. */
static int see_characters(struct scan *scan, bool last, struct err *err)
{
    const char *path = scan->self->spec->path;
    size_t at = 0, least = last ? 1 : UTF8_BYTES_MAX;
    int rc = OK;
    while (rc == OK && scan->left - at >= least) {
        uint32_t code = 0;
        uint64_t offset = scan->offset + at;
        size_t length = utf8_take(scan->bytes + at, scan->left - at, &code);
        if (length == 0 || code == 0)
            return err_set(err, ERR_INPUT,
                           "%s: byte %" PRIu64 " (\\x%02x) is no character of UTF-8; `unit: byte` "
                           "reads any file",
                           path, offset, scan->bytes[at]);
        rc = see_character(scan, code, offset, err);
        at += length;
    }
    scan->left -= at;
    scan->offset += at;
    memmove(scan->bytes, scan->bytes + at, scan->left);
    return rc;
}

static void see_bytes(struct scan *scan)
{
    uint8_t highest = (uint8_t)scan->self->highest;
    for (size_t i = 0; i < scan->left; i++)
        highest = scan->bytes[i] > highest ? scan->bytes[i] : highest;
    scan->self->highest = highest;
    scan->left = 0;
}

static int scan_blocks(struct scan *scan, struct err *err)
{
    const struct source_text *self = scan->self;
    uint64_t len = self->file.len;
    int rc = OK;
    hash_stream_begin(scan->hash);
    for (uint64_t done = 0; rc == OK && done < len;) {
        size_t n = len - done < BLOCK ? (size_t)(len - done) : BLOCK;
        uint8_t *block = scan->bytes + scan->left;
        rc = file_part(&self->file, done, block, n);
        if (rc != OK)
            return err_set(err, rc, "%s: cannot be read", self->spec->path);
        hash_stream_add(scan->hash, block, n);
        done += n;
        scan->left += n;
        if (self->vocabulary)
            rc = see_characters(scan, done == len, err);
        else
            see_bytes(scan);
        if (rc == OK)
            rc = open_watch_report(scan->config->watch, "bytes", done, len, err);
    }
    return rc;
}

static int scan_text(struct source_text *self, const struct source_config *config, bool finds,
                     struct err *err)
{
    struct scan scan = {.self = self, .config = config, .finds = finds};
    scan.hash = hash_stream_create();
    scan.bytes = malloc((self->file.len < BLOCK ? (size_t)self->file.len : BLOCK) + UTF8_BYTES_MAX);
    int rc =
        scan.hash && scan.bytes ? scan_blocks(&scan, err) : refuse_memory(self->spec->path, err);
    if (rc == OK)
        self->source.hash = hash_stream_take(scan.hash);
    hash_stream_free(scan.hash);
    free(scan.bytes);
    if (!self->vocabulary)
        self->units = self->file.len;
    return rc;
}

/* ---- opening ---- */

static int refuse_vocabulary(const struct source_text *self, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: more than %d different characters; `unit: byte` has 256",
                   self->spec->path, VOCABULARY_MAX);
}

/* The vocabulary of the spec, where it has one. */
static int begin_vocabulary(struct source_text *self, struct err *err)
{
    self->vocabulary = calloc(1, sizeof *self->vocabulary);
    if (!self->vocabulary)
        return refuse_memory(self->spec->path, err);
    const char *given = self->spec->vocabulary;
    const char *wrong = given ? vocabulary_read(self->vocabulary, given) : NULL;
    if (wrong)
        return err_set(err, ERR_INPUT, "text.vocabulary: %s", wrong);
    vocabulary_number(self->vocabulary);
    return self->vocabulary->n <= VOCABULARY_MAX ? OK : refuse_vocabulary(self, err);
}

/* The characters that the scan has found, into the spec. */
static int end_vocabulary(struct source_text *self, struct err *err)
{
    vocabulary_number(self->vocabulary);
    if (self->vocabulary->n > VOCABULARY_MAX)
        return refuse_vocabulary(self, err);
    free(self->spec->vocabulary);
    self->spec->vocabulary = vocabulary_write(self->vocabulary);
    return self->spec->vocabulary ? OK : refuse_memory(self->spec->path, err);
}

static int count_records(struct source_text *self, struct err *err)
{
    const Paceline__Data__Text *spec = self->spec;
    const char *unit = self->vocabulary ? "characters" : "bytes";
    uint64_t taken = (uint64_t)spec->window + 1;
    if (self->units < taken)
        return err_set(err, ERR_INPUT,
                       "%s: has %" PRIu64 " %s, and a window of %" PRIu32
                       " with what follows it takes %" PRIu64,
                       spec->path, self->units, unit, spec->window, taken);
    uint64_t count = (self->units - taken) / self->stride + 1;
    if (count > UINT32_MAX)
        return err_set(err, ERR_INPUT, "%s: more than %u records; give a longer stride", spec->path,
                       UINT32_MAX);
    self->source.count = (size_t)count;
    return OK;
}

static void set_shape(struct source_text *self)
{
    size_t window = self->spec->window;
    struct source *source = &self->source;
    source->shape = (struct shape){3, {2 * window, 1, 1}};
    source->fields = (struct fields){
        2, {{"data", {1, {window}}, 0, true}, {"target", {1, {window}}, window, true}}};
    source->is_integer = true;
    source->hash = hash_mix(source->hash, window);
    source->hash = hash_mix(source->hash, self->stride);
    const char *characters = self->vocabulary ? self->spec->vocabulary : "";
    source->hash = hash_mix(source->hash, hash_bytes(characters, strlen(characters)));
}

static void fill_defaults(struct source_text *self)
{
    Paceline__Data__Text *spec = self->spec;
    if (!spec->has_window)
        spec->window = TEXT_WINDOW;
    spec->has_unit = spec->has_window = true;
    self->stride = spec->stride > 0 ? spec->stride : spec->window;
}

static int load_text(struct source_text *self, const struct source_config *config, struct err *err)
{
    const char *path = self->spec->path;
    bool characters = self->spec->unit == PACELINE__DATA__TEXT__UNIT__character;
    int rc = file_check_under(config->root, path, err);
    if (rc == OK)
        rc = file_open(path, &self->file, err);
    self->open = rc == OK;
    if (rc == OK && self->file.len > FILE_BYTES_MAX)
        rc = err_set(err, ERR_INPUT, "%s: longer than 64 GiB", path);
    if (rc == OK && characters)
        rc = begin_vocabulary(self, err);
    bool finds = rc == OK && characters && self->vocabulary->n == 0;
    if (rc == OK)
        rc = scan_text(self, config, finds, err);
    if (rc == OK && finds)
        rc = end_vocabulary(self, err);
    return rc == OK ? count_records(self, err) : rc;
}

int source_text_open(const struct source_config *config, const Paceline__Data__Text *spec,
                     struct source **out, struct err *err)
{
    struct source_text *self = calloc(1, sizeof *self);
    if (!self)
        return refuse_memory(spec->path, err);
    self->source.ops = &ops;
    self->spec = (Paceline__Data__Text *)text_copy(&spec->base);
    int rc = self->spec ? OK : refuse_memory(spec->path, err);
    if (rc == OK) {
        fill_defaults(self);
        rc = load_text(self, config, err);
    }
    if (rc != OK) {
        close_source(&self->source);
        return rc;
    }
    set_shape(self);
    *out = &self->source;
    return OK;
}

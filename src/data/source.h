/* Data is random access (D9): a source is a numbered set of records, each an image (C, H, W) and a
 * label, read by index, from any thread, in any order. */
#ifndef PL_DATA_SOURCE_H
#define PL_DATA_SOURCE_H

#include "base/open_watch.h"
#include "data/bad_records.h"
#include "data/raw.h"
#include "job/job.pb-c.h"
#include "tensor/record_fields.h"

#include <stdint.h>

/* Where a record comes from when it is read; it is the same each time unless it is drawn. */
enum source_reading {
    SOURCE_READS,     /* a read of a file, a decoder, a function */
    SOURCE_IN_MEMORY, /* or behind a cache already */
    SOURCE_DRAWS,     /* a function of (seed, epoch), too */
};

struct source {
    const struct source_ops *ops;
    size_t count;         /* records, > 0, fits 32 bits */
    struct shape shape;   /* of a record: (C, H, W); H = W = 0 where they differ in size */
    uint32_t classes;     /* labels are below it; 0: there are none */
    bool is_integer;      /* values are integers that bf16 may not hold */
    bool is_bf16;         /* values are floats, all of which bf16 holds */
    struct fields fields; /* n > 0: a record's floats are these, and its shape (count, 1, 1) */
    enum source_reading reading;
    bool unshared;     /* no other node has these records, whatever the hash */
    bool in_parts;     /* records that arrive later come in whole parts */
    unsigned depth;    /* of zips and maps within each other, up to DEPTH_MAX */
    uint64_t hash;     /* identity of the data, compared between nodes: see each source */
    char warning[320]; /* names the records that were left out when it was opened; "": none */
};

/* Records that lie side by side in a source, with an identity of their own: a file of many. */
struct source_part {
    size_t count;  /* of records */
    uint64_t hash; /* of their contents */
};

struct source_ops {
    const char *kind;
    /* Record i (< count) into `raw`, of source->shape where all have one. Headers were checked when
     * the source was opened; what can be seen only now is an error. Called from several threads at
     * once, each with its own scratch.
     * ERR_INPUT  the record itself is broken, for everybody
     * ERR_IO     the file is not there any more, has changed, or cannot be read
     * ERR_NOMEM */
    int (*read)(const struct source *source, size_t i, struct scratch *scratch, struct raw *raw,
                struct err *err);
    /* (optional: no record is a picture) The bytes of picture i as its file has them, JPEG or
     * PNG, in the scratch; *bytes NULL: it is no picture. Errors as `read`. */
    int (*encoded)(const struct source *source, size_t i, struct scratch *scratch,
                   const uint8_t **bytes, size_t *n, struct err *err);
    /* (optional: a read does not wait for a disk) A hint that record i will be read soon. It does
     * not wait. Any thread */
    void (*prefetch)(const struct source *source, size_t i);
    uint32_t (*label)(const struct source *source, size_t i);
    /* (optional: all are alike) Height and width of record i. */
    void (*size)(const struct source *source, size_t i, size_t *H, size_t *W);
    /* (optional: all have) Records that have arrived by now. `count` is their number when the
     * source was opened; *more: others may follow. Any thread */
    size_t (*arrived)(const struct source *source, bool *more);
    /* (optional: it is one part) The parts of the source, in order, of which `most` at most are
     * written. Returns their number. */
    size_t (*parts)(const struct source *source, struct source_part *out, size_t most);
    /* (optional) The name of record i in messages; default: its number. */
    void (*name)(const struct source *source, size_t i, char *out, size_t room);
    void (*close)(struct source *source);
};

/* The use of the data: a folder of CIFAR files has records for both. */
enum source_role { SOURCE_TRAIN, SOURCE_TEST };

/* Open what `spec` names; paths in it are absolute or relative to the working directory.
 * ERR_INPUT   missing, truncated, oversized, not that format; labels and images that do not fit
 * ERR_NOMEM */
int source_open(const Paceline__Data *spec, enum source_role role, struct source **out,
                struct err *err);
/* How a source is opened. All zero: for training, from anywhere, unwatched, and no record may be
 * broken. */
struct source_config {
    enum source_role role;
    /* Nothing outside of this folder is opened, whatever paths, lists of pictures and links say:
     * ERR_INPUT by name (file_check_under). Borrowed as long as the source is open; NULL: anything
     * may be. */
    const char *root;
    const struct open_watch *watch; /* receives the progress and may cancel (ERR_CANCELLED); or
                                       NULL */
    /* Counts records with a damaged header, which are left out; NULL: such a record is an error. */
    struct bad_records *bad;
    enum bad_source of;         /* the set under which they are counted */
    struct record_cache *cache; /* for the opener of sources, who puts it in front; NULL: none */
    const struct bindings *bindings; /* of `memory:NAME`; NULL: none */
    /* With a root: URLs that begin with this text, which ends with a slash, are opened all the
     * same. Borrowed for opening; NULL: none are. */
    const char *urls;
    struct remote *remote; /* opens URLs; borrowed as long as the source is open; NULL: none */
    bool only_training;    /* for a corpus of a worker with local_data: its test set is left out */
};

int source_open_with(const struct source_config *config, const Paceline__Data *spec,
                     struct source **out, struct err *err);

/* Give tables and texts of `data`, also within a zip, the columns and the vocabulary of those that
 * `source` has in the same places (job_table_settle, job_text_settle). ERR_NOMEM */
int source_settle(const struct source *source, Paceline__Data *data, struct err *err);
void source_close(struct source *source);

/* Count the bad record `number`, whose message is in `err`, in config->bad (not NULL). ERR_INPUT:
 * there are too many. Internal to sources. */
int source_leave_out(const struct source_config *config, uint64_t number, struct err *err);

/* All `count` records were left out; `err` has the last one's message. ERR_INPUT */
int source_refuse_empty(const char *path, uint64_t count, struct err *err);

/* hash_bytes of something large, watched in stage "bytes hashed". ERR_CANCELLED, ERR_NOMEM */
int source_hash_bytes(const void *data, size_t len, const struct open_watch *watch, uint64_t *out,
                      struct err *err);

/* ERR_INPUT: sets are made of others more than DEPTH_MAX deep. */
int source_refuse_depth(struct err *err);

void source_size(const struct source *source, size_t i, size_t *H, size_t *W);
void source_prefetch(const struct source *source, size_t i);

/* The parts of a source, or the one part that it is where it has more than `most` (> 0). Returns
 * their number. */
size_t source_parts(const struct source *source, struct source_part *out, size_t most);

/* "record 7", or "record 7 (dogs/rex.jpg)". */
enum { SOURCE_NAME_MAX = 256 };
const char *source_name(const struct source *source, size_t i, char out[SOURCE_NAME_MAX]);

/* Make text of unknown origin fit for a message: bytes that are no printable UTF-8 become \xNN, and
 * long text is truncated. */
const char *source_quote(const char *text, char *out, size_t room);

/* Are its values numbers of things, as a text's are? No map changes those. */
static inline bool source_is_numbers(const struct source *source)
{
    return source->is_integer && source->fields.n > 0;
}

#endif

/* Inspect records: the contents of a SPEC, statistics of its values, a picture of it, and single
 * records as a net receives them. */
#ifndef PACELINE_DATA_H
#define PACELINE_DATA_H

#include "paceline/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_data pl_data;

/* Open KIND:PATH[?scale=...&mean=...]. `training`: of a folder that holds records for both, those
 * to train on, else those to test with. PL_ERR_USAGE: no SPEC; PL_ERR_INPUT: missing, broken,
 * labels and records that do not fit; PL_ERR_NOMEM */
int pl_data_open(pl_engine *engine, const char *spec, bool training, pl_data **out);

/* The same for records to test a model of the job's run with: a table has the columns of the job's
 * training data, as job.prototxt in the run's directory lists them. */
int pl_data_open_for(const pl_job *job, const char *spec, pl_data **out);

/* Open pictures, JPEG or PNG, by their paths (copied): records without labels. `maps`, which may be
 * NULL, is the part of a SPEC after the `?`. As above, naming the file. */
int pl_data_open_pictures(pl_engine *engine, const char *const *paths, size_t count,
                          const char *maps, pl_data **out);

/* Open a job's test data, or with `training` its training data. PL_ERR_INPUT: it has none */
int pl_data_open_job(const pl_job *job, bool training, pl_data **out);

/* NULL is allowed. */
void pl_data_close(pl_data *data);

/* ---- records of your own ---- */

/* Integers become floats, and are exact within ±2^24: a record with another one is broken. A value
 * of PL_BF16 is a uint16_t, the upper half of a float. */
typedef enum pl_value_type { PL_U8, PL_F32, PL_I32, PL_I64, PL_BF16 } pl_value_type;

/* Records in the caller's memory, or made when they are asked for. */
typedef struct pl_records {
    size_t size;                      /* sizeof this struct */
    size_t count;                     /* 1 to 2^32 - 1 */
    uint32_t channels, height, width; /* of a record; of a vector: its length, 1, 1 */
    uint32_t classes;                 /* labels are below it; at most 2^20; 0: no labels */
    pl_value_type type;
    /* count × channels × height × width, one record after another; NULL: `read` makes them.
     * Borrowed, as the labels are. */
    const void *values;
    /* NULL, or count + 1 ascending numbers: records differ in length. Record i has the values
     * begin[i] to begin[i + 1] - 1, at most channels × height × width, and `fill` behind them.
     * Borrowed. */
    const uint64_t *begin;
    float fill;
    const uint32_t *labels; /* count; NULL without classes */
    /* Without values: write those of record i. It always writes the same ones for the same i, is
     * called by any thread, and by several at once. PL_OK; PL_ERR_INPUT: this record is broken
     * (a job may leave it out: on_bad_record); any other status ends the run. */
    int (*read)(void *user, size_t i, void *values);
    void (*release)(void *user); /* called when the name is unbound; may be NULL */
    void *user;
    /* Identity of the values, which nodes of a run compare; 0: all of them are hashed each time
     * they are opened. Without values it is not 0. */
    uint64_t hash;
} pl_records;

/* Give records a name. SPECs of this engine may then say `memory:NAME`, with maps as every other
 * kind, and jobs `train_data { memory { name: "NAME" } }`: for pl_net_set_training_data, pl_sim,
 * and pl_run, whose workers bind the same records in their own process before pl_work. The
 * struct is copied; what it points to stays until pl_data_unbind, or until the engine is
 * destroyed.
 *
 * PL_ERR_USAGE  the name is bound already, or is not 1 to 63 letters, digits, dots, dashes or
 *               underscores
 * PL_ERR_INPUT  a number out of its limits, a label that is no class; PL_ERR_NOMEM */
int pl_data_bind(pl_engine *engine, const char *name, const pl_records *records);

/* PL_ERR_USAGE: no such name, or the records are in use by a net or an open pl_data */
int pl_data_unbind(pl_engine *engine, const char *name);

/* ---- a stream of records ---- */

/* Records that arrive one after another, as from an iterator, a query or another process. They
 * are kept for reading at random: `memory` bytes of them in memory, the others in a file of
 * `folder` that has no name, so that nothing is left of it when the process ends. */
typedef struct pl_stream_options {
    size_t size;                               /* sizeof this struct */
    uint32_t channels, height, width, classes; /* as pl_records */
    pl_value_type type;
    /* Bytes of values; the labels and 1 MiB of values are besides; 0: all. In a worker's process
     * they are part of the job's memory_budget, and come first: the net must fit into the rest, and
     * the cache has what that leaves. A worker whose process has more than its budget before it
     * opens its data ends with PL_ERR_INPUT. The cache does not keep the records of a stream that
     * is in memory as a whole a second time. */
    size_t memory;
    const char *folder; /* NULL: $TMPDIR, or /tmp; copied */
    /* The name is bound at once, and records are read while others arrive: in full blocks of 16
     * KiB, the last ones when the stream is flushed or sealed. For workers of a job with
     * local_data: one begins when as many records have arrived as the job asks for
     * (memory.begin_with), and takes further ones on its way; a training set that pl_net or a
     * SPEC opens has those that are there. Such a stream may be used by a thread of its own
     * while another one uses the engine, and pl_stream_error has its messages. */
    bool grows;
    /* With `grows`: identity of the records, by which a worker that has the same ones takes the
     * place of this one; 0: no other worker has them. */
    uint64_t hash;
    /* With `grows`: records arrive in parts that have identities of their own, `hash` is not used,
     * and pl_stream_cut takes the place of pl_stream_flush. A worker takes a part at the end of the
     * step in which it becomes readable. When a worker is lost, any other may be given the parts
     * that it had: the run counts the samples of a part wherever they are trained on. */
    bool parts;
    /* With `parts`: path of a new file, of mode 0600 and locked by this process, to which each part
     * is written as it arrives. Another process of this user and machine may take the parts from it
     * (pl_stream_adopt) when this one has ended in whatever way. Records are read from it, and
     * those of `memory` bytes stay in memory, too, once they have been read; none where the file
     * system is memory. When it cannot be written any more, a warning says so, and parts that
     * follow are as those of other streams. The caller removes it. NULL: there is none. Copied */
    const char *keep;
    uint64_t set; /* with `keep`: identity of what the parts belong to */
} pl_stream_options;

typedef struct pl_stream pl_stream;

/* PL_ERR_USAGE, PL_ERR_INPUT as pl_data_bind; PL_ERR_NOMEM; PL_ERR_IO: the file `keep` cannot be
 * made. One thread at a time uses a stream. */
int pl_stream_open(pl_engine *engine, const char *name, const pl_stream_options *options,
                   pl_stream **out);

/* Memory for the next records, at least one: *room of them, in *values as pl_records has them,
 * and in *labels. Valid until the next call with the stream. PL_ERR_NOMEM */
int pl_stream_acquire(pl_stream *stream, void **values, uint32_t **labels, size_t *room);

/* The first `count` of the records acquired are complete. PL_ERR_INPUT: a label that is no
 * class, and none of them counts; PL_ERR_USAGE: more than were acquired; PL_ERR_IO: the file
 * cannot be written, which ends the stream: every later call but pl_stream_free has this error,
 * too. */
int pl_stream_commit(pl_stream *stream, size_t count);

/* Of a stream that grows: all records that are committed can be read from now on. The block of the
 * last ones stays in memory beyond the limit; call it where a while passes before others arrive.
 * PL_ERR_USAGE: it does not grow; PL_ERR_NOMEM */
int pl_stream_flush(pl_stream *stream);

/* Of a stream in parts: the records that are committed since the last part are one, with this
 * identity, and can be read from now on. Parts with equal identities have the same records. Costs
 * memory as pl_stream_flush. PL_ERR_USAGE: there are no such records, or it is not in parts;
 * PL_ERR_FULL: it has 256 parts, and these records are in none; PL_ERR_NOMEM */
int pl_stream_cut(pl_stream *stream, uint64_t hash);

/* A part, as pl_stream_adopt looks for it. */
typedef struct pl_stream_part {
    uint64_t hash;    /* its identity, as pl_stream_cut had it */
    uint64_t records; /* how many it has */
} pl_stream_part;

/* Of a stream in parts with `keep`: take parts from the file `path`, which a stream of the same
 * `set`, type, shape and classes kept, and whose process has ended. Of the `count` parts that are
 * wanted those are taken that are complete and as they were written (XXH3 of each block), and that
 * this stream does not have; adopted[i]: part i can be read from now on. The records of these are
 * read once. The file stays theirs, with its lock, as long as the binding; the caller removes it.
 *
 * PL_ERR_USAGE  the process that has the file lives; nothing was taken
 * PL_ERR_INPUT  the file is a link or no regular one, another user's, open to other users, or of
 *               another set; or it is damaged, and what is sound was taken
 * PL_ERR_FULL   the stream has 256 parts, or 64 files; PL_ERR_IO; PL_ERR_NOMEM */
int pl_stream_adopt(pl_stream *stream, const char *path, const pl_stream_part *wanted, size_t count,
                    bool *adopted);

/* No record follows: the name is bound, as by pl_data_bind, with the hash of all values, and the
 * stream is freed. On an error it is still the caller's: PL_ERR_INPUT: it has no record;
 * PL_ERR_USAGE: the name was bound meanwhile, or the last records are in no part; PL_ERR_IO,
 * PL_ERR_NOMEM */
int pl_stream_seal(pl_stream *stream);

/* Forget a stream that was not sealed, and its records; of a stream that grows the records that are
 * readable stay, and no other follows. NULL is allowed. */
void pl_stream_free(pl_stream *stream);

/* Message of the last call with a stream that grows, if it failed; valid until the next call. */
const char *pl_stream_error(const pl_stream *stream);

/* ---- sets made of others ---- */

/* Each call binds a name to records of other SPECs, or names, as pl_data_bind does. Nothing is read
 * before it is asked for. SPECs of fields may have maps; others have none: those of the SPEC that
 * uses the name apply. The records of a folder that holds both are those to train on.
 *
 * PL_ERR_USAGE  the name is taken or is no name; a SPEC has maps, or is none
 * PL_ERR_INPUT  a SPEC cannot be opened; numbers out of their limits; more than 2^32 - 1 records
 * PL_ERR_NOMEM */

/* A tensor of a record. */
typedef struct pl_field {
    /* Its values, through the SPEC's maps; fields of one size draw the same crops and mirrors.
     * PL_ERR_INPUT: another number of records than the first one's */
    const char *spec;
    const char *name; /* 1 to 63 bytes, not "label"; NULL: the fields that a zip of the SPEC has */
    uint32_t rank;    /* 0: as the records of the SPEC are, a vector if height and width are 1; */
    uint32_t dims[7]; /* or as many values in this shape */
} pl_field;

/* Record i has record i of each field: a net whose data layer has a top of that name takes it, as
 * its input or as what a loss compares with: several labels, or one for each position. 1 to 16
 * fields. Labels are those of the first SPEC that has some. The SPEC that uses the name has no
 * maps. A job makes the same of files: `train_data { zip { field { ... } } }`. */
int pl_data_zip(pl_engine *engine, const char *name, const pl_field *fields, size_t n);

/* How a map may draw: in training by seed and epoch; otherwise it draws nothing. */
typedef struct pl_draw {
    bool training;
    uint64_t seed, epoch;
} pl_draw;

/* A function from record to record. */
typedef struct pl_map {
    size_t size; /* sizeof this struct */
    uint32_t channels, height,
        width; /* of what it makes; 0, 0, 0: as the record, with its fields */
    /* Write record i to `out` from its values `in`, floats as channels, height, width, or field
     * after field. It depends on these, i and *draw alone, is called by any thread, and by several
     * at once. PL_OK; PL_ERR_INPUT: this record is broken; any other status ends the run. */
    int (*apply)(void *user, size_t i, const float *in, const pl_draw *draw, float *out);
    void (*release)(void *user); /* called when the name is unbound; may be NULL */
    void *user;
    uint64_t hash; /* identity of the function, which nodes of a run compare; not 0 */
    bool constant; /* it does not look at `draw`: a cache may keep what it makes */
} pl_map;

/* The records through a map, each time that one is read; labels stay. The struct is copied.
 * PL_ERR_INPUT: records of several sizes, too. */
int pl_data_map(pl_engine *engine, const char *name, const char *spec, const pl_map *map);

/* All records of these, one SPEC after another. Their channels are equal. */
int pl_data_concat(pl_engine *engine, const char *name, const char *const *specs, size_t n);

/* Those with these numbers, in this order; a number may come twice. */
int pl_data_subset(pl_engine *engine, const char *name, const char *spec, const uint32_t *records,
                   size_t count);

/* Part `part` of `parts` equal ones, in order. */
int pl_data_shard(pl_engine *engine, const char *name, const char *spec, uint32_t part,
                  uint32_t parts);

/* All of them, `times` times. */
int pl_data_repeat(pl_engine *engine, const char *name, const char *spec, uint32_t times);

typedef struct pl_sample_options {
    size_t size;  /* sizeof this struct */
    size_t count; /* of records to draw */
    uint64_t seed;
    bool replacement; /* a record may be drawn more than once */
    bool stratified;  /* of each class as many, in proportion, as there are; without the others */
    /* One for each record, 0 or more; without replacement a record is drawn among those that are
     * left. NULL: equal chances. */
    const double *weights;
} pl_sample_options;

/* A sample, which depends on the options and the number of records alone. With equal chances it
 * takes no memory, with weights up to 12 bytes a record. */
int pl_data_sample(pl_engine *engine, const char *name, const char *spec,
                   const pl_sample_options *options);

/* ---- what there is ---- */

typedef struct pl_data_info {
    /* "idx", "cifar10", "cifar100", "images", "webdataset", "lmdb", "npy", "csv", "text",
     * "shards", "pictures", "zip", "memory" */
    const char *kind;
    size_t records;
    uint32_t channels, height_min, height_max, width_min, width_max; /* before any map */
    bool mapped;                                                     /* the SPEC has maps, */
    uint32_t shape[3];    /* which make this of each record: channels, height, width */
    uint32_t classes;     /* labels are below it; 0: there are no labels */
    uint64_t *of_class;   /* records of each class; valid until the next call with the data */
    uint64_t bytes;       /* of all values as they are stored, unpacked */
    uint64_t hash;        /* identity of the records */
    uint32_t values;      /* of a text: the numbers of its units are below it; else 0 */
    uint64_t reserved[8]; /* room for further fields; 0 */
} pl_data_info;

/* Reads every label and size, and decodes only the first record; pl_data_verify decodes all.
 * PL_ERR_INPUT: maps that do not fit */
int pl_data_describe(pl_data *data, pl_data_info *out);

typedef struct pl_data_record {
    uint32_t height, width; /* before any map */
    bool has_label;
    uint32_t label;
    const char *class_name; /* NULL: unknown; valid until pl_data_close */
    char name[256];         /* of its file, printable; "": its number is all that it is called */
} pl_data_record;

/* PL_ERR_USAGE: there is no record i */
int pl_data_record_at(const pl_data *data, size_t i, pl_data_record *out);

/* The name of a class according to the data, or NULL. Valid until pl_data_close. */
const char *pl_data_class_name(const pl_data *data, uint32_t label);

typedef struct pl_data_channel {
    double mean, deviation, least, most;
} pl_data_channel;

typedef struct pl_data_stats {
    size_t records;
    uint32_t channels, classes; /* as pl_data_info */
    bool scaled; /* by a mean or a scale; or records have fields, which have neither */
    const pl_data_channel *channel;
    const uint64_t *of_class;
} pl_data_stats;

/* Over the values of the first `first` records, or of all: 0; as the SPEC's maps leave them, if it
 * has any, else as they are stored. Reads them all, in memory for one. The arrays are valid until
 * the next call with the data. PL_ERR_INPUT, PL_ERR_IO: a record cannot be read; PL_ERR_NOMEM */
int pl_data_measure(pl_data *data, size_t first, pl_data_stats *out);

/* Callbacks of a verification, on the caller's thread. */
typedef struct pl_data_check {
    size_t size; /* sizeof this struct */
    void *user;
    /* A record that cannot be read, with its path and cause. */
    void (*problem)(void *user, const char *what);
    /* `done` of `total` records were checked; returning false ends the verification. May be NULL.
     */
    bool (*progress)(void *user, size_t done, size_t total);
} pl_data_check;

typedef struct pl_data_verified {
    size_t done;     /* checked records; fewer than all if `progress` ended it */
    size_t broken;   /* how many of them could not be read, which is no error of the call */
    const char *set; /* "train" or "test", of a folder that holds records for both; else NULL */
} pl_data_verified;

/* Open a SPEC as pl_data_open does, but for records whose heads are broken, 10000 at most; read and
 * decode every record, through the SPEC's maps if it has any, in memory for one. PL_ERR_INPUT: it
 * cannot be opened, or no record can be read, after a report of each that is broken; maps that do
 * not fit; PL_ERR_NOMEM */
int pl_data_verify(pl_engine *engine, const char *spec, bool training, const pl_data_check *check,
                   pl_data_verified *out);

/* How records are packed. */
typedef struct pl_data_packing {
    size_t size; /* sizeof this struct */
    /* Where: the shards are PREFIX-00000.shard, PREFIX-00001.shard and so on. */
    const char *prefix;
    /* A shard ends with the record by which its records have so many bytes; 0: 1 GiB. */
    uint64_t shard_bytes;
    /* Shards of that prefix may be there already; those with higher numbers are removed. */
    bool replace;
    void *user;
    /* `done` of `total` records were written; returning false ends the packing with
     * PL_ERR_STOP. May be NULL. */
    bool (*progress)(void *user, size_t done, size_t total);
} pl_data_packing;

typedef struct pl_data_packed {
    size_t records;
    uint32_t shards;
    uint64_t bytes;  /* of the files */
    char spec[4608]; /* the SPEC that names them, for pl_data_open and a job */
} pl_data_packed;

/* Write all records into shards, Paceline's own format: pictures as their files are, all others
 * as values, with labels, fields and names of classes. Of the SPEC's maps none is applied: they
 * are given where the shards are read. Each shard is there whole or not at all; after an error
 * none is left that this call wrote. In memory for one record and an index of 8 to 20 bytes a
 * record. PL_ERR_USAGE: the SPEC has maps, or the prefix is that of the shards it names;
 * PL_ERR_INPUT: a shard is there already, a record cannot be read, records are of several sizes
 * and no pictures; PL_ERR_STOP, PL_ERR_IO, PL_ERR_FULL, PL_ERR_NOMEM */
int pl_data_pack(pl_data *data, const pl_data_packing *packing, pl_data_packed *out);

/* Write an index next to each archive of a `webdataset:` SPEC, ARCHIVE.index, in place of one that
 * is there: opening then reads it instead of the archive, if that has the same length and time of
 * change. *archives, which may be NULL, is their number. PL_ERR_USAGE: another kind of data;
 * PL_ERR_INPUT: an archive is a URL, or has a broken record; PL_ERR_IO, PL_ERR_FULL, PL_ERR_NOMEM
 */
int pl_data_index(pl_data *data, uint32_t *archives);

/* Write a contact sheet of the first `first` records to a PNG file, whole or not at all: a grid
 * of so many columns (0: about a square) of cells of side × side pixels. Records are shown as
 * the SPEC crops and resizes them, without its mean and scale; three channels are red, green and
 * blue, or the reverse where the data states that order; of other numbers of channels the first
 * is shown in grey. `replace`: there may be a file of that name already. PL_ERR_USAGE: no
 * record, or a side that is not from 8 to 1024; PL_ERR_INPUT: a record cannot be read, the sheet
 * would be too large, or the file exists; PL_ERR_IO, PL_ERR_NOMEM */
int pl_data_sheet(pl_data *data, size_t first, uint32_t columns, uint32_t side, const char *path,
                  bool replace);

/* ---- as a net sees them ---- */

/* Take the maps of a job's test data, else those of its training data, and the order of colours
 * with them, unless the data was opened with some of its own. PL_ERR_NOMEM */
int pl_data_take_maps(pl_data *data, const pl_job *job);

/* Make records fit a net that takes channels × height × width. Pictures become grey for one
 * channel, unless the SPEC or job sets it. Where the SPEC gives no size, and the job's maps give
 * another size or would crop to less than half of a record's edges, the shorter edge is resized and
 * the centre cropped. If height and width differ, both edges are resized; with a mean image, to its
 * size first. *how describes these changes, or is NULL; valid until the next call with the data.
 * PL_ERR_INPUT: they cannot fit; PL_ERR_NOMEM */
int pl_data_fit(pl_data *data, uint32_t channels, uint32_t height, uint32_t width,
                const char **options);

/* Channels, height and width of each record through the maps. PL_ERR_INPUT: maps that do not fit,
 * or records of different sizes */
int pl_data_shape(pl_data *data, uint32_t shape[3]);

/* Records first .. first + count - 1 through the maps, as for testing, one after another; `out` has
 * room for `room` floats. PL_ERR_USAGE: no such records, too little room; and as pl_data_measure */
int pl_data_read(pl_data *data, size_t first, size_t count, float *out, size_t room);

/* ---- names of classes ---- */

typedef struct pl_names pl_names;

/* A file of one name a line, in the order of labels; a synset's number before a name is left out.
 * PL_ERR_INPUT, PL_ERR_NOMEM */
int pl_names_load(pl_engine *engine, const char *path, pl_names **out);
/* The class names that a job's training data contains or that lie next to it, without opening the
 * data; NULL: none. */
int pl_names_of_job(const pl_job *job, pl_names **out);
void pl_names_free(pl_names *names); /* NULL is allowed */
size_t pl_names_count(const pl_names *names);
/* NULL: there is no such label. Valid until pl_names_free. */
const char *pl_names_at(const pl_names *names, size_t label);

#ifdef __cplusplus
}
#endif
#endif

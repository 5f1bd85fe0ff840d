#include "train/handshake_message.h"

#include "base/hash.h"
#include "base/printable.h"
#include "base/remote.h"
#include "learner/corpus.h"
#include "wire/catalogue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_data(const struct hello_data *data, struct buf *out)
{
    buf_put_u64(out, data->hash);
    buf_put_u64(out, data->count);
    buf_put_text(out, data->path);
}

static void read_data(struct byte_reader *in, struct hello_data *out)
{
    out->hash = read_u64(in);
    out->count = read_u64(in);
    read_text(in, out->path, sizeof out->path);
}

static void put_local(const struct hello_local *local, struct buf *out)
{
    buf_put_u64(out, local->schema);
    buf_put_u32(out, local->classes);
    buf_put_text(out, local->kind);
    buf_put_u64(out, local->epoch_records);
    buf_put_u32(out, local->holdings);
    for (uint32_t i = 0; i < local->holdings; i++) {
        buf_put_u64(out, local->holding[i].hash);
        buf_put_u64(out, local->holding[i].count);
        buf_put_u8(out, local->holding[i].grows);
    }
}

static void read_local(struct byte_reader *in, struct hello_local *out)
{
    out->schema = read_u64(in);
    out->classes = read_u32(in);
    read_text(in, out->kind, sizeof out->kind);
    printable(out->kind);
    out->epoch_records = read_u64(in);
    out->holdings = read_u32(in);
    if (out->holdings > HOLDINGS_MAX) {
        out->holdings = 0;
        in->failed = true;
    }
    for (uint32_t i = 0; i < out->holdings; i++) {
        out->holding[i].hash = read_u64(in);
        out->holding[i].count = read_u64(in);
        out->holding[i].grows = read_u8(in) != 0;
        in->failed |= out->holding[i].count == 0 || out->holding[i].count > UINT32_MAX;
    }
}

static void put_records(const struct hello_records *records, struct buf *out)
{
    buf_put_u64(out, records->hash);
    put_data(&records->train, out);
    put_data(&records->test, out);
    put_local(&records->local, out);
}

static void read_records(struct byte_reader *in, struct hello_records *out)
{
    out->hash = read_u64(in);
    read_data(in, &out->train);
    read_data(in, &out->test);
    read_local(in, &out->local);
}

void welcome_encode(const struct welcome *welcome, struct buf *out)
{
    buf_put_u32(out, WIRE_VERSION);
    buf_put_text(out, release_text());
    buf_put_u8(out, welcome->busy_hosts);
    buf_put_u8(out, welcome->resumes);
    buf_put_u8(out, welcome->late);
    buf_put_u8(out, welcome->traces);
    buf_put_u8(out, welcome->checks);
    buf_put_u32(out, welcome->incarnation);
    buf_put_u64(out, welcome->leases_from);
    put_records(&welcome->records, out);
    buf_put_text(out, welcome->job);
    buf_put_text(out, welcome->folder ? welcome->folder : "");
}

/* A text of any length that is in bounds. NULL: it is cut short, or there is no memory for it. */
static char *take_text(struct byte_reader *in, int *rc)
{
    uint32_t len = read_u32(in);
    const char *text = byte_reader_take(in, len);
    char *copy = text ? malloc((size_t)len + 1) : NULL;
    if (!copy) {
        *rc = text ? ERR_NOMEM : ERR_PROTOCOL;
        return NULL;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

int welcome_decode(struct byte_reader *in, struct welcome *out)
{
    *out = (struct welcome){.version = read_u32(in)};
    read_text(in, out->release, sizeof out->release);
    printable(out->release);
    if (in->failed)
        return ERR_PROTOCOL;
    if (out->version != WIRE_VERSION || strcmp(out->release, release_text()) != 0)
        return ERR_UNSUPPORTED;
    bool busy = read_u8(in) != 0;
    bool resumes = read_u8(in) != 0;
    bool late = read_u8(in) != 0;
    bool traces = read_u8(in) != 0;
    bool checks = read_u8(in) != 0;
    uint32_t incarnation = read_u32(in);
    uint64_t leases_from = read_u64(in);
    read_records(in, &out->records);
    printable(out->records.train.path);
    printable(out->records.test.path);
    int rc = OK;
    char *job = take_text(in, &rc);
    char *folder = job ? take_text(in, &rc) : NULL;
    if (rc == OK && !byte_reader_done(in))
        rc = ERR_PROTOCOL;
    if (rc != OK) {
        free(job);
        free(folder);
        return rc;
    }
    out->job = job;
    out->folder = folder;
    out->busy_hosts = busy;
    out->resumes = resumes;
    out->late = late;
    out->traces = traces;
    out->checks = checks;
    out->incarnation = incarnation;
    out->leases_from = leases_from;
    return OK;
}

void welcome_release(struct welcome *welcome)
{
    free(welcome->job);
    free(welcome->folder);
    welcome->job = welcome->folder = NULL;
}

static void take_data(struct hello_data *own, const Paceline__Data *data,
                      const struct source *source, const struct dataset *set)
{
    *own = (struct hello_data){0};
    if (!source || !set->source)
        return;
    own->hash = dataset_hash(set);
    own->count = source->count;
    if (data->source_case == PACELINE__DATA__SOURCE_MEMORY)
        snprintf(own->path, sizeof own->path, "memory:%s", data->memory->name);
    else
        remote_shown(job_data_path(data), own->path, sizeof own->path);
}

/* How many records of the set lie before record `end` of its source. */
static size_t count_before(const struct dataset *set, size_t end)
{
    size_t low = 0, high = set->count;
    if (!set->choice)
        return end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->choice[middle] < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void hello_list_holdings(struct hello_local *own, const struct dataset *set)
{
    struct source_part part[HOLDINGS_MAX];
    size_t parts = source_parts(set->source, part, HOLDINGS_MAX), end = 0, before = 0;
    for (size_t k = 0; k < parts; k++) {
        end += part[k].count;
        size_t now = count_before(set, end);
        if (now > before)
            own->holding[own->holdings++] =
                (struct holding){hash_mix(part[k].hash, set->maps.mean_hash), now - before, false};
        before = now;
    }
}

static void take_local(struct hello_local *own, const struct dataset *set)
{
    char shape[64];
    own->schema = dataset_schema(set);
    own->classes = set->source->classes;
    snprintf(own->kind, sizeof own->kind, "%s of %u classes",
             shape_text(&set->shape, shape, sizeof shape), own->classes);
    hello_list_holdings(own, set);
}

void hello_take_records(struct hello_records *own, const Paceline__Job *job,
                        const struct corpus *corpus)
{
    own->hash = corpus->hash;
    own->local = (struct hello_local){.schema = 0};
    take_data(&own->train, job->train_data, corpus->train_source, &corpus->set[SET_TRAIN]);
    take_data(&own->test, job->test_data, corpus->test_source, &corpus->set[SET_TEST]);
    if (job->local_data) {
        take_local(&own->local, &corpus->set[SET_TRAIN]);
        own->hash = own->local.schema;
    }
}

static void put_machine(const struct hello_machine *machine, struct buf *out)
{
    buf_put_text(out, machine->cpu);
    buf_put_u32(out, machine->cores);
    buf_put_u64(out, machine->memory);
}

static void read_machine(struct byte_reader *in, struct hello_machine *out)
{
    read_text(in, out->cpu, sizeof out->cpu);
    printable_ascii(out->cpu);
    out->cores = read_u32(in);
    out->memory = read_u64(in);
    in->failed |= out->cores > HELLO_CORES_MAX || out->memory >= HELLO_MEMORY_MAX;
}

void hello_write(const struct hello *hello, struct buf *out)
{
    buf_put_u32(out, hello->version);
    buf_put_text(out, hello->release);
    buf_put_u64(out, hello->job_hash);
    buf_put_u64(out, hello->segments_hash);
    buf_put_u32(out, hello->threads);
    buf_put_text(out, hello->isa);
    buf_put_text(out, hello->kernels);
    buf_put_text(out, hello->host);
    buf_put_text(out, hello->address);
    put_machine(&hello->machine, out);
    put_records(&hello->records, out);
}

int hello_read(struct byte_reader *in, struct hello *out)
{
    out->version = read_u32(in);
    read_text(in, out->release, sizeof out->release);
    printable(out->release);
    out->job_hash = read_u64(in);
    out->segments_hash = read_u64(in);
    out->threads = read_u32(in);
    read_text(in, out->isa, sizeof out->isa);
    read_text(in, out->kernels, sizeof out->kernels);
    read_text(in, out->host, sizeof out->host);
    printable_ascii(out->host);
    read_text(in, out->address, sizeof out->address);
    printable(out->address);
    read_machine(in, &out->machine);
    read_records(in, &out->records);
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}

static int refuse_difference(const char *what, uint64_t theirs, uint64_t ours, struct err *err)
{
    return err_set(err, ERR_INPUT, "its %s is %016" PRIx64 ", the driver's %016" PRIx64, what,
                   theirs, ours);
}

static int other_data(const char *field, const struct hello_data *theirs,
                      const struct hello_data *ours, struct err *err)
{
    char path[HELLO_PATH_MAX];
    snprintf(path, sizeof path, "%s", theirs->path);
    printable(path);
    if (theirs->count != ours->count)
        return err_set(err, ERR_INPUT,
                       "other data: %s has %" PRIu64 " records there (%s), %" PRIu64
                       " at the driver (%s); copy the driver's files there",
                       field, theirs->count, path, ours->count, ours->path);
    return err_set(err, ERR_INPUT,
                   "other data: %s has as many records on both sides, %" PRIu64
                   ", with other contents: hash %016" PRIx64 " there (%s), %016" PRIx64
                   " at the driver (%s); copy the driver's files there",
                   field, theirs->count, theirs->hash, path, ours->hash, ours->path);
}

/* The records may be others, and have to be of the same kind. */
static int check_local(const struct hello_records *theirs, const struct hello_records *drivers,
                       struct err *err)
{
    const struct hello_local *there = &theirs->local, *here = &drivers->local;
    if (there->schema == here->schema && there->classes <= here->classes && there->holdings > 0)
        return OK;
    return err_set(err, ERR_INPUT,
                   "other records: train_data there (%s) is %s, the driver's (%s) is %s; with "
                   "local_data shape, fields and maps are the same everywhere, and no worker has "
                   "more classes than the driver",
                   theirs->train.path, there->kind, drivers->train.path, here->kind);
}

int hello_check_records(const struct hello_records *theirs, const struct hello_records *drivers,
                        struct err *err)
{
    if (drivers->local.holdings > 0)
        return check_local(theirs, drivers, err);
    if (theirs->hash == drivers->hash)
        return OK;
    if (theirs->train.hash != drivers->train.hash)
        return other_data("train_data", &theirs->train, &drivers->train, err);
    if (theirs->test.hash != drivers->test.hash)
        return other_data("test_data", &theirs->test, &drivers->test, err);
    return refuse_difference("data", theirs->hash, drivers->hash, err);
}

int release_differs(uint32_t version, const char *release, uint32_t driver_version,
                    const char *driver, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "the worker is release %s (protocol %u), the driver release %s (protocol %u); "
                   "install the same release on both",
                   release, version, driver, driver_version);
}

int hello_check(const struct hello *hello, const struct hello *own, struct err *err)
{
    if (hello->version != own->version || strcmp(hello->release, own->release) != 0)
        return release_differs(hello->version, hello->release, own->version, own->release, err);
    if (hello->job_hash != own->job_hash)
        return refuse_difference("job", hello->job_hash, own->job_hash, err);
    int rc = hello_check_records(&hello->records, &own->records, err);
    if (rc != OK)
        return rc;
    if (hello->segments_hash != own->segments_hash)
        return refuse_difference("net", hello->segments_hash, own->segments_hash, err);
    return OK;
}

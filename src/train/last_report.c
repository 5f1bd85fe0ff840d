#include "train/last_report.h"

#include "base/array.h"
#include "base/file.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "recovery"
#define MODEL  ".safetensors"

enum { MAGIC = 0x31524c50, /* "PLR1" */ FILE_BYTES_MAX = 64 * 1024 };

/* ---- names ---- */

struct name {
    uint32_t incarnation, node;
    bool is_report; /* or its model, or an unfinished file of either */
};

/* false: a file of another kind */
static bool read_name(const char *text, struct name *out)
{
    char *end;
    if (text[0] < '1' || text[0] > '9')
        return false;
    unsigned long long incarnation = strtoull(text, &end, 10);
    if (*end != '-' || end[1] < '0' || end[1] > '9' || incarnation > UINT32_MAX)
        return false;
    unsigned long long node = strtoull(end + 1, &end, 10);
    *out = (struct name){(uint32_t)incarnation, (uint32_t)node, *end == '\0'};
    return node < VIEW_MEMBERS_MAX;
}

static void folder_of(const struct rundir *dir, char *out, size_t size)
{
    rundir_file(dir, FOLDER, out, size);
}

static void path_of(const struct rundir *dir, uint32_t incarnation, uint32_t node, const char *end,
                    char *out, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, FOLDER "/%" PRIu32 "-%" PRIu32 "%s", incarnation, node, end);
    rundir_file(dir, name, out, size);
}

void last_report_model_path(const struct rundir *dir, const struct last_report *report, char *out,
                            size_t size)
{
    path_of(dir, report->incarnation, report->node, MODEL, out, size);
}

/* ---- one file ---- */

static void encode_report(const struct last_report *report, struct buf *out)
{
    buf_put_u32(out, MAGIC);
    buf_put_u32(out, report->incarnation);
    buf_put_u32(out, report->node);
    buf_put_u32(out, report->view);
    members_encode(&report->members, out);
    buf_put_u64(out, report->step_samples);
    buf_put_u8(out, report->has_model);
    buf_put_u64(out, report->version);
    for (size_t i = 0; i < GROUP_REPORT; i++)
        buf_put_u64(out, report->report[i]);
    if (!out->failed)
        buf_put_u64(out, hash_bytes(out->data, out->len));
}

static bool decode_report(const struct file_bytes *bytes, struct last_report *out)
{
    struct byte_reader in = {bytes->data, bytes->len, false};
    bool known = read_u32(&in) == MAGIC;
    out->incarnation = read_u32(&in);
    out->node = read_u32(&in);
    out->view = read_u32(&in);
    members_decode(&in, &out->members);
    out->step_samples = read_u64(&in);
    out->has_model = read_u8(&in) != 0;
    out->version = read_u64(&in);
    for (size_t i = 0; i < GROUP_REPORT; i++)
        out->report[i] = read_u64(&in);
    uint64_t hash = read_u64(&in);
    return byte_reader_done(&in) && known && out->step_samples > 0 &&
           hash == hash_bytes(bytes->data, bytes->len - sizeof hash);
}

int last_report_write(const struct rundir *dir, const struct last_report *report, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct buf bytes = {0};
    folder_of(dir, path, sizeof path);
    int rc = disk_keep_dir(dir->disk, path, NULL, err);
    if (rc != OK)
        return rc;
    path_of(dir, report->incarnation, report->node, "", path, sizeof path);
    encode_report(report, &bytes);
    rc = bytes.failed ? err_set(err, ERR_NOMEM, "%s: out of memory", path)
                      : disk_replace(dir->disk, path, bytes.data, bytes.len, err);
    buf_release(&bytes);
    return rc;
}

static int read_report(const struct rundir *dir, const struct name *name, struct last_report *out,
                       struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct file_bytes bytes;
    path_of(dir, name->incarnation, name->node, "", path, sizeof path);
    int rc = file_read(path, FILE_BYTES_MAX, &bytes, err);
    if (rc != OK)
        return rc;
    bool own = decode_report(&bytes, out) && out->incarnation == name->incarnation &&
               out->node == name->node && members_has(&out->members, out->node);
    file_release(&bytes);
    return own ? OK : err_set(err, ERR_INPUT, "%s: is no whole report of a worker", path);
}

/* ---- all of them ---- */

struct names {
    struct name *at;
    size_t count, cap;
    bool failed;
};

static void add_name(void *user, const char *text)
{
    struct names *names = user;
    struct name name;
    if (names->failed || !read_name(text, &name))
        return;
    names->failed = !array_grow(&names->at, names->count, &names->cap, sizeof *names->at);
    if (!names->failed)
        names->at[names->count++] = name;
}

/* No folder: no names. */
static void list_names(const struct rundir *dir, struct names *names)
{
    char path[RUNDIR_PATH_MAX + 64];
    folder_of(dir, path, sizeof path);
    *names = (struct names){.count = 0};
    dir->disk->ops->list(dir->disk, path, add_name, names, NULL);
}

static int compare_reports(const void *a, const void *b)
{
    const struct last_report *x = a, *y = b;
    return (x->node > y->node) - (x->node < y->node);
}

/* A worker outside of the newest view was given up itself: others have had its leases since. */
static void keep_members(struct last_reports *reports)
{
    size_t kept = 0;
    for (size_t i = 0; i < reports->count; i++)
        if (reports->at[i].view > reports->view) {
            reports->view = reports->at[i].view;
            reports->members = reports->at[i].members;
        }
    for (size_t i = 0; i < reports->count; i++)
        if (members_has(&reports->members, reports->at[i].node))
            reports->at[kept++] = reports->at[i];
    reports->count = kept;
    if (kept > 0)
        qsort(reports->at, kept, sizeof *reports->at, compare_reports);
    for (size_t i = 0; i < kept; i++)
        members_add(&reports->here, reports->at[i].node);
}

int last_reports_read(const struct rundir *dir, const struct logger *log, struct last_reports *out,
                      struct err *err)
{
    struct names names;
    *out = (struct last_reports){.count = 0};
    list_names(dir, &names);
    for (size_t i = 0; i < names.count; i++)
        if (names.at[i].is_report && names.at[i].incarnation > out->incarnation)
            out->incarnation = names.at[i].incarnation;
    if (names.count > 0)
        out->at = calloc(names.count, sizeof *out->at);
    bool failed = names.failed || (names.count > 0 && !out->at);
    for (size_t i = 0; !failed && i < names.count; i++) {
        struct err why;
        if (!names.at[i].is_report || names.at[i].incarnation != out->incarnation)
            continue;
        if (read_report(dir, &names.at[i], &out->at[out->count], &why) == OK)
            out->count++;
        else
            log_warn(log, "passed over: %s", why.text);
    }
    free(names.at);
    if (!failed) {
        keep_members(out);
        return OK;
    }
    last_reports_release(out);
    return err_set(err, ERR_NOMEM, "%s: out of memory for the workers' reports", dir->path);
}

void last_reports_release(struct last_reports *reports)
{
    free(reports->at);
    *reports = (struct last_reports){.count = 0};
}

const struct last_report *last_reports_later(const struct last_reports *reports,
                                             const struct last_report *own)
{
    for (size_t i = 0; i < reports->count; i++) {
        const struct last_report *other = &reports->at[i];
        if (other->has_model && other->incarnation == own->incarnation &&
            members_has(&own->members, other->node) &&
            (other->version > own->version ||
             (other->version == own->version && other->node < own->node)))
            return other;
    }
    return NULL;
}

static void remove_file(const struct rundir *dir, const struct name *name, const char *end)
{
    char path[RUNDIR_PATH_MAX + 64];
    path_of(dir, name->incarnation, name->node, end, path, sizeof path);
    dir->disk->ops->remove(dir->disk, path, NULL);
}

void last_reports_remove(const struct rundir *dir, uint32_t before)
{
    static const char *const ends[] = {DISK_UNFINISHED, MODEL DISK_UNFINISHED, "", MODEL};
    struct names names;
    list_names(dir, &names);
    for (size_t i = 0; i < names.count; i++)
        for (size_t k = 0; names.at[i].incarnation < before && k < sizeof ends / sizeof *ends; k++)
            remove_file(dir, &names.at[i], ends[k]);
    free(names.at);
}

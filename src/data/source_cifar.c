#include "data/source_cifar.h"

#include "base/file.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, FILES_MAX = 5, PATH_TEXT_MAX = 4096 };

static const size_t FILE_BYTES_MAX = (size_t)1 << 30; /* some 350,000 records */

struct source_cifar {
    struct source source; /* first: the ops get a pointer to it */
    enum cifar_kind kind;
    size_t labels;   /* bytes of them before the pixels */
    size_t label_at; /* which of them counts */
    size_t files;
    struct file_bytes file[FILES_MAX];
    size_t records[FILES_MAX];      /* in each */
    const struct open_watch *watch; /* while it is opened */
};

static const uint8_t *record_at(const struct source *source, size_t i)
{
    const struct source_cifar *cifar = (const struct source_cifar *)source;
    size_t f = 0;
    while (i >= cifar->records[f])
        i -= cifar->records[f++];
    return cifar->file[f].data + i * (cifar->labels + PIXELS);
}

static int cifar_read(const struct source *source, size_t i, struct scratch *scratch,
                      struct raw *raw, struct err *err)
{
    (void)scratch;
    (void)err;
    const struct source_cifar *cifar = (const struct source_cifar *)source;
    *raw = (struct raw){record_at(source, i) + cifar->labels, RAW_PLANES, 3, SIDE, SIDE, 0};
    return OK;
}

static uint32_t cifar_label(const struct source *source, size_t i)
{
    return record_at(source, i)[((const struct source_cifar *)source)->label_at];
}

static void cifar_close(struct source *source)
{
    struct source_cifar *cifar = (struct source_cifar *)source;
    for (size_t f = 0; f < cifar->files; f++)
        file_release(&cifar->file[f]);
    free(cifar);
}

static const struct source_ops cifar_ops = {
    .kind = "cifar",
    .read = cifar_read,
    .label = cifar_label,
    .close = cifar_close,
};

/* Whole records, and labels that are in range. */
static int check_file(const char *path, const struct source_cifar *cifar,
                      const struct file_bytes *file, struct err *err)
{
    static const uint8_t ends[2][2] = {{10}, {20, 100}};
    size_t record = cifar->labels + PIXELS;
    if (file->len == 0 || file->len % record != 0)
        return err_set(err, ERR_INPUT,
                       "%s: %zu bytes are no whole number of records of %zu: truncated, or not "
                       "CIFAR-%d in its binary version",
                       path, file->len, record, cifar->kind == CIFAR_10 ? 10 : 100);
    for (size_t at = 0; at < file->len; at += record)
        for (size_t k = 0; k < cifar->labels; k++)
            if (file->data[at + k] >= ends[cifar->kind][k])
                return err_set(err, ERR_INPUT, "%s: record %zu: %slabel %u is out of range 0 to %u",
                               path, at / record,
                               cifar->kind == CIFAR_10 ? ""
                               : k == 0                ? "coarse "
                                                       : "fine ",
                               file->data[at + k], ends[cifar->kind][k] - 1u);
    return OK;
}

static int load_file(const char *root, struct source_cifar *cifar, const char *path,
                     struct err *err)
{
    struct file_bytes *file = &cifar->file[cifar->files];
    int rc = file_check_under(root, path, err);
    if (rc == OK)
        rc = file_read_watched(path, FILE_BYTES_MAX, cifar->watch, file, err);
    if (rc != OK)
        return rc;
    cifar->files++;
    uint64_t hash = 0;
    rc = check_file(path, cifar, file, err);
    if (rc == OK)
        rc = source_hash_bytes(file->data, file->len, cifar->watch, &hash, err);
    if (rc != OK)
        return rc;
    size_t n = file->len / (cifar->labels + PIXELS);
    cifar->records[cifar->files - 1] = n;
    cifar->source.count += n;
    cifar->source.hash = hash_mix(cifar->source.hash, hash);
    return OK;
}

static int load_folder(const struct source_config *config, struct source_cifar *cifar,
                       const char *folder, struct err *err)
{
    static const char *const names[2][2][FILES_MAX] = {
        {{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
          "data_batch_5.bin"},
         {"test_batch.bin"}},
        {{"train.bin"}, {"test.bin"}},
    };
    const char *const *name = names[cifar->kind][config->role];
    int rc = OK;
    for (size_t f = 0; rc == OK && f < FILES_MAX && name[f]; f++) {
        char path[PATH_TEXT_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", folder, name[f]);
        rc = n < (int)sizeof path ? load_file(config->root, cifar, path, err)
                                  : err_set(err, ERR_INPUT, "%.80s...: path longer than %zu bytes",
                                            folder, sizeof path);
    }
    return rc;
}

int source_cifar_open(const struct source_config *config, const Paceline__Data__Cifar *spec,
                      enum cifar_kind kind, struct source **out, struct err *err)
{
    struct source_cifar *cifar = calloc(1, sizeof *cifar);
    if (!cifar)
        return err_set(err, ERR_NOMEM, "%s: out of memory", spec->path);
    bool fine = kind == CIFAR_100 && !spec->coarse;
    cifar->kind = kind;
    cifar->watch = config->watch;
    cifar->labels = kind == CIFAR_10 ? 1 : 2;
    cifar->label_at = fine ? 1 : 0;
    cifar->source.ops = &cifar_ops;
    cifar->source.reading = SOURCE_IN_MEMORY;
    cifar->source.shape = (struct shape){.n = 3, .dim = {3, SIDE, SIDE}};
    cifar->source.classes = kind == CIFAR_10 ? 10 : fine ? 100 : 20;
    cifar->source.hash = hash_mix(0, cifar->label_at);
    int rc = file_check_under(config->root, spec->path, err);
    if (rc == OK)
        rc = file_is_folder(spec->path) ? load_folder(config, cifar, spec->path, err)
                                        : load_file(config->root, cifar, spec->path, err);
    cifar->watch = NULL;
    if (rc != OK) {
        cifar_close(&cifar->source);
        return rc;
    }
    *out = &cifar->source;
    return OK;
}

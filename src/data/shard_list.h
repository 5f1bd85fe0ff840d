/* The files that hold a data set together: paths or URLs with commas between. One range in braces
 * may stand in a path, as train-{000000..000147}.tar; zeros in front of a number give the least
 * number of digits, as in a shell. */
#ifndef PL_DATA_SHARD_LIST_H
#define PL_DATA_SHARD_LIST_H

#include "base/file.h"

struct shard {
    char *path;                 /* owned; of a URL as it may be shown */
    struct remote_file *remote; /* of a URL: open as long as the list; NULL: a local file */
    uint64_t len;               /* of the file, when the list was made */
    size_t first;               /* the number of its first record, which the source sets */
};

struct shard_list {
    struct shard *at; /* owned */
    size_t count, room;
};

/* Each file is opened once, URLs by `remote` (borrowed as long as the list). `under` as for
 * file_check_under; with it no URL is opened, since another node may have named it.
 * ERR_INPUT: no such file; a URL without `remote` or with `under`; a range that cannot be read; no
 * path. ERR_NOMEM. Released in any case by shard_list_release. */
int shard_list_parse(const char *paths, const char *under, struct remote *remote,
                     struct shard_list *out, struct err *err);
void shard_list_release(struct shard_list *list);

/* The shard of record i, by `first`. */
const struct shard *shard_list_find(const struct shard_list *list, size_t i);

/* Of a URL nothing is asked for. ERR_IO: it is not there any more, or has another length */
int shard_open(const struct shard *shard, const char *under, struct file_open *out,
               struct err *err);

#endif

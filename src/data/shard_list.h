/* The files that hold a data set together: paths or URLs with commas between. One range in braces
 * may stand in a path, as train-{000000..000147}.tar; zeros in front of a number give the least
 * number of digits, as in a shell. */
#ifndef PL_DATA_SHARD_LIST_H
#define PL_DATA_SHARD_LIST_H

#include "base/file.h"
#include "data/source.h"

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

/* Each file is opened once. Of the config the root, the URLs and the remote count. Where there is a
 * root, another node may have named a URL, so that only those of `urls` are opened.
 * ERR_INPUT: no such file; a URL that may not or cannot be opened; a range that cannot be read; no
 * path. ERR_NOMEM. Released in any case by shard_list_release. */
int shard_list_parse(const char *paths, const struct source_config *config, struct shard_list *out,
                     struct err *err);
void shard_list_release(struct shard_list *list);

/* The shard of record i, by `first`. */
const struct shard *shard_list_find(const struct shard_list *list, size_t i);

/* `under` is the root. Of a URL nothing is asked for. ERR_IO: it is not there any more, or has
 * another length */
int shard_open(const struct shard *shard, const char *under, struct file_open *out,
               struct err *err);

#endif

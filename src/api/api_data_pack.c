/* Records of any source into shards, and indexes of archives. */
#include "data/pack.h"
#include "data/shard_list.h"
#include "data/source_webdataset.h"
#include "data/tar_index.h"

#include "api/convert.h"
#include "api/data.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "base/fault.h"
#include "real/disk.h"

#include <stdio.h>
#include <string.h>

static const uint64_t SHARD_BYTES_USUAL = (uint64_t)1 << 30;

static bool report_progress(void *user, const char *stage, uint64_t done, uint64_t total)
{
    const pl_data_packing *packing = user;
    (void)stage;
    return !packing->progress || packing->progress(packing->user, (size_t)done, (size_t)total);
}

/* The SPEC of the shards, as the caller named their place. */
static void write_spec(const char *prefix, pl_data_packed *out)
{
    int n = out->shards == 1
                ? snprintf(out->spec, sizeof out->spec, "shards:%s-00000.shard", prefix)
                : snprintf(out->spec, sizeof out->spec, "shards:%s-{00000..%05u}.shard", prefix,
                           out->shards - 1);
    PL_ASSERT(n > 0 && (size_t)n < sizeof out->spec);
}

/* There is the folder, and no shards that are read would be replaced. */
static int check_prefix(const pl_data *data, const char *here, const char *prefix)
{
    struct err *err = &data->engine->error;
    const char *base = strrchr(here, '/') + 1;
    char folder[API_PATH_MAX], target[API_PATH_MAX], path[API_PATH_MAX];
    const struct source_config config = {.remote = data->engine->remote};
    struct shard_list list = {0};
    snprintf(folder, sizeof folder, "%.*s", (int)(base - here), here);
    int rc = file_canonical(folder, path, sizeof path, err);
    if (rc == OK && data->spec->source_case == PACELINE__DATA__SOURCE_SHARDS)
        rc = shard_list_parse(data->spec->shards->shards, &config, &list, err);
    for (size_t s = 0; rc == OK && s < list.count; s++) {
        size_t n = strlen(path);
        if (list.at[s].remote)
            continue;
        rc = file_target(list.at[s].path, target, sizeof target, err);
        if (rc == OK && strncmp(target, path, n) == 0 && target[n] == '/' &&
            strncmp(target + n + 1, base, strlen(base)) == 0 && target[n + 1 + strlen(base)] == '-')
            rc = err_set(err, ERR_USAGE, "data: %.200s is the prefix of the shards that are read",
                         prefix);
    }
    shard_list_release(&list);
    return rc;
}

static int pack_data(pl_data *data, const pl_data_packing *given, pl_data_packed *out)
{
    struct err *err = &data->engine->error;
    pl_data_packing own, *packing = &own;
    int rc = OPTIONS_TAKE(pl_data_packing, &own, given, err);
    if (rc != OK)
        return rc;
    const char *prefix = packing->prefix ? packing->prefix : "";
    const char *slash = strrchr(prefix, '/');
    char here[API_PATH_MAX];
    struct pack_result result;
    if (data->maps)
        return err_set(err, ERR_USAGE,
                       "data: maps are not packed; give the SPEC without them, and the maps where "
                       "the shards are read");
    if (!(slash ? slash[1] : prefix[0]) || strpbrk(prefix, ",{}?"))
        return err_set(err, ERR_USAGE,
                       "data: shards are named PREFIX-00000.shard; `%.200s` is no prefix of a "
                       "file's name",
                       prefix);
    const struct open_watch watch = {packing, report_progress};
    const struct pack_config config = {
        .disk = real_disk(),
        .prefix = here,
        .shard_bytes = packing->shard_bytes ? packing->shard_bytes : SHARD_BYTES_USUAL,
        .names = &data->names,
        .replace = packing->replace,
        .watch = &watch,
    };
    rc = api_path_here(prefix, here, err);
    if (rc == OK)
        rc = check_prefix(data, here, prefix);
    if (rc == OK)
        rc = pack_records(data->source, &config, &result, err);
    if (rc == ERR_CANCELLED)
        return err_set(err, ERR_STOP, "data: packing was ended on request; no shard is left");
    if (rc != OK)
        return rc;
    *out =
        (pl_data_packed){.records = result.records, .shards = result.shards, .bytes = result.bytes};
    write_spec(prefix, out);
    return OK;
}

int pl_data_pack(pl_data *data, const pl_data_packing *packing, pl_data_packed *out)
{
    RETURN_GUARDED(data->engine, pack_data(data, packing, out));
}

/* ---- indexes ---- */

static int put_index(void *user, const char *archive, const struct buf *index, struct err *err)
{
    uint32_t *archives = user;
    char name[API_PATH_MAX], path[API_PATH_MAX];
    int n = snprintf(name, sizeof name, "%s" TAR_INDEX_ENDING, archive);
    if (n < 0 || (size_t)n >= sizeof name)
        return err_set(err, ERR_INPUT, "%s: too long a path for its index", archive);
    int rc = api_path_here(name, path, err);
    if (rc == OK)
        rc = disk_replace(real_disk(), path, index->data, index->len, err);
    *archives += rc == OK;
    return rc;
}

static int index_data(pl_data *data, uint32_t *archives)
{
    struct err *err = &data->engine->error;
    uint32_t written = 0;
    if (data->path || data->spec->source_case != PACELINE__DATA__SOURCE_WEBDATASET)
        return err_set(err, ERR_USAGE, "data: only archives have an index: webdataset:ARCHIVES");
    const struct source_config config = {.remote = data->engine->remote};
    const struct tar_indexer indexer = {put_index, &written};
    int rc = source_webdataset_index(&config, data->spec->webdataset, &indexer, err);
    if (archives)
        *archives = written;
    return rc;
}

int pl_data_index(pl_data *data, uint32_t *archives)
{
    RETURN_GUARDED(data->engine, index_data(data, archives));
}

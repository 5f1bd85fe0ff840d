#include "data/shard_list.h"

#include "base/array.h"
#include "base/minmax.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096, DIGITS_MAX = 9 };

static void close_shard(struct shard *shard)
{
    if (shard->remote)
        shard->remote->ops->close(shard->remote);
    free(shard->path);
}

void shard_list_release(struct shard_list *list)
{
    for (size_t s = 0; s < list->count; s++)
        close_shard(&list->at[s]);
    free(list->at);
    *list = (struct shard_list){0};
}

const struct shard *shard_list_find(const struct shard_list *list, size_t i)
{
    size_t low = 0, high = list->count; /* the last that begins at i or before */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (list->at[middle].first <= i)
            low = middle;
        else
            high = middle;
    }
    return &list->at[low];
}

int shard_open(const struct shard *shard, const char *under, struct file_open *out, struct err *err)
{
    if (shard->remote) {
        *out = (struct file_open){.fd = -1, .len = shard->len, .remote = shard->remote};
        return OK;
    }
    int rc = file_check_under(under, shard->path, err);
    if (rc == OK)
        rc = file_open(shard->path, out, err);
    if (rc != OK)
        return ERR_IO; /* it was there when the list was made */
    if (out->len == shard->len)
        return OK;
    rc =
        err_set(err, ERR_IO, "%s: has changed since it was opened: %" PRIu64 " bytes, not %" PRIu64,
                shard->path, out->len, shard->len);
    file_close(out);
    return rc;
}

/* Does it begin with `urls`, and stay there? */
static bool is_below(const char *url, const char *urls)
{
    size_t n = urls ? strlen(urls) : 0;
    return n > 0 && strncmp(url, urls, n) == 0 && !strstr(url + n, "..") &&
           !strstr(url + n, "%2e") && !strstr(url + n, "%2E");
}

static int open_url(const struct source_config *config, const char *url, const char *shown,
                    struct shard *out, struct err *err)
{
    if (config->root && !is_below(url, config->urls))
        return err_set(
            err, ERR_INPUT,
            "%s: a worker with a data root opens no URL that its driver names, but those "
            "below its --data-urls",
            shown);
    if (!config->remote)
        return err_set(err, ERR_INPUT, "%s: URLs cannot be read here", shown);
    int rc = config->remote->ops->open(config->remote, url, &out->remote, err);
    if (rc == OK)
        out->len = out->remote->len;
    return rc;
}

static int open_local(const char *root, const char *path, struct shard *out, struct err *err)
{
    struct file_open file;
    int rc = file_check_under(root, path, err);
    if (rc == OK)
        rc = file_open(path, &file, err);
    if (rc != OK)
        return rc;
    out->len = file.len;
    file_close(&file);
    return OK;
}

static int add_shard(struct shard_list *list, const struct source_config *config, const char *path,
                     struct err *err)
{
    struct shard shard = {0};
    char shown[PATH_TEXT_MAX];
    bool is_url = remote_is_url(path);
    int rc = is_url ? open_url(config, path, remote_shown(path, shown, sizeof shown), &shard, err)
                    : open_local(config->root, path, &shard, err);
    if (rc != OK)
        return rc;
    shard.path = strdup(is_url ? shown : path);
    if (!shard.path || !array_grow(&list->at, list->count, &list->room, sizeof *list->at)) {
        close_shard(&shard);
        return err_set(err, ERR_NOMEM, "data: out of memory for the list of files");
    }
    list->at[list->count++] = shard;
    return OK;
}

/* {FIRST..LAST}; zeros in front of one give the least number of digits, as in a shell. */
struct range {
    unsigned first, last;
    int digits;
    size_t n; /* characters of it */
};

/* The digits of a number, or 0. */
static size_t parse_number(const char *text, unsigned *out)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > DIGITS_MAX)
        return 0;
    *out = (unsigned)strtoul(text, NULL, 10);
    return n;
}

static bool parse_range(const char *text, struct range *out)
{
    const char *first = text + 1;
    size_t n = parse_number(first, &out->first);
    if (n == 0 || strncmp(first + n, "..", 2) != 0)
        return false;
    const char *last = first + n + 2;
    size_t m = parse_number(last, &out->last);
    if (m == 0 || last[m] != '}' || strchr(last, '{') || out->first > out->last)
        return false;
    if ((n > 1 && *first == '0') || (m > 1 && *last == '0'))
        out->digits = (int)max_size(n, m);
    out->n = (size_t)(last + m + 1 - text);
    return true;
}

static int refuse_list(const char *paths, const char *why, struct err *err)
{
    char shown[PATH_TEXT_MAX];
    return err_set(err, ERR_INPUT, "%s: %s", remote_shown(paths, shown, sizeof shown), why);
}

/* A path, in which one range may stand. */
static int add_pattern(struct shard_list *list, const struct source_config *config,
                       const char *pattern, struct err *err)
{
    const char *brace = strchr(pattern, '{');
    struct range range = {0};
    if (!brace)
        return add_shard(list, config, pattern, err);
    if (!parse_range(brace, &range))
        return refuse_list(pattern,
                           "expected one range in braces, from the lower to the higher number, as "
                           "in train-{000000..000147}.tar",
                           err);
    int rc = OK;
    for (unsigned k = range.first; rc == OK && k <= range.last; k++) {
        char path[PATH_TEXT_MAX];
        int n = snprintf(path, sizeof path, "%.*s%0*u%s", (int)(brace - pattern), pattern,
                         range.digits, k, brace + range.n);
        rc = n < PATH_TEXT_MAX ? add_shard(list, config, path, err)
                               : err_set(err, ERR_INPUT, "%.80s...: path longer than %d bytes",
                                         remote_is_url(pattern) ? "URL" : pattern, PATH_TEXT_MAX);
    }
    return rc;
}

int shard_list_parse(const char *paths, const struct source_config *config, struct shard_list *out,
                     struct err *err)
{
    *out = (struct shard_list){0};
    char *copy = strdup(paths), *rest = NULL;
    int rc = copy ? OK : err_set(err, ERR_NOMEM, "data: out of memory for the list of files");
    for (char *path = copy ? strtok_r(copy, ",", &rest) : NULL; rc == OK && path;
         path = strtok_r(NULL, ",", &rest))
        rc = add_pattern(out, config, path + strspn(path, " "), err);
    free(copy);
    return rc == OK && out->count == 0 ? refuse_list(paths, "names no file", err) : rc;
}

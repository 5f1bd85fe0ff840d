#include "train/driver_term_file.h"

#include "base/bytes.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLAIM "driver."

enum { TERM_FILE_MAX = 64 * 1024, CLAIMS_MAX = 100 /* one after another */ };

static const char *const keys[] = {"run", "incarnation", "view", "members", "next"};

/* The rest of the next line, which must begin with `key`. NULL: it does not. */
static char *line_of(char **text, const char *key)
{
    char *line = *text, *end = strchr(line, '\n');
    size_t n = strlen(key);
    if (!end || strncmp(line, key, n) != 0 || (line[n] != ' ' && line + n != end))
        return NULL;
    *end = '\0';
    *text = end + 1;
    return line + n;
}

static bool read_number(char **at, int base, uint64_t most, uint64_t *out)
{
    char *end;
    *out = strtoull(*at, &end, base);
    bool ok = end != *at && *out <= most;
    *at = end;
    return ok;
}

static bool parse_term(char *text, struct driver_term *out)
{
    char *line[5];
    uint64_t run, incarnation, view, next, node;
    for (int i = 0; i < 5; i++)
        if (!(line[i] = line_of(&text, keys[i])))
            return false;
    if (!read_number(&line[0], 16, UINT64_MAX, &run) ||
        !read_number(&line[1], 10, UINT32_MAX, &incarnation) ||
        !read_number(&line[2], 10, UINT32_MAX, &view) ||
        !read_number(&line[4], 10, UINT32_MAX, &next))
        return false;
    *out = (struct driver_term){run, (uint32_t)incarnation, (uint32_t)view, {{0}}, (uint32_t)next};
    while (*line[3]) {
        if (!read_number(&line[3], 10, VIEW_MEMBERS_MAX - 1, &node))
            return false;
        members_add(&out->members, (uint32_t)node);
    }
    return true;
}

int driver_term_read(const struct rundir *dir, struct driver_term *out, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct file_bytes bytes;
    rundir_file(dir, "driver", path, sizeof path);
    if (file_read(path, TERM_FILE_MAX, &bytes, err) != OK)
        return err_set(err, ERR_NOT_FOUND, "%s: no driver has been here", path);
    struct buf text = {0};
    buf_put(&text, bytes.data, bytes.len);
    buf_put_u8(&text, 0);
    file_release(&bytes);
    int rc = text.failed ? err_set(err, ERR_NOMEM, "%s: out of memory", path)
             : parse_term((char *)text.data, out)
                 ? OK
                 : err_set(err, ERR_INPUT, "%s: cannot be read: it is damaged", path);
    buf_release(&text);
    return rc;
}

static void print_term(const struct driver_term *t, struct buf *text)
{
    buf_printf(text, "run %" PRIx64 "\nincarnation %" PRIu32 "\nview %" PRIu32 "\nmembers", t->run,
               t->incarnation, t->view);
    MEMBERS_EACH (node, &t->members)
        buf_printf(text, " %" PRIu32, node);
    buf_printf(text, "\nnext %" PRIu32 "\n", t->next);
}

/* ---- who has it ---- */

/* The number in a claim file's name; 0: another file. */
static uint32_t claimed_number(const char *name)
{
    size_t n = strlen(CLAIM);
    char *end;
    if (strncmp(name, CLAIM, n) != 0 || name[n] < '1' || name[n] > '9')
        return 0;
    unsigned long long number = strtoull(name + n, &end, 10);
    return *end == '\0' && number < UINT32_MAX ? (uint32_t)number : 0;
}

static void find_newest(void *user, const char *name)
{
    uint32_t *newest = user, number = claimed_number(name);
    *newest = number > *newest ? number : *newest;
}

uint32_t driver_term_newest(const struct rundir *dir)
{
    uint32_t newest = 0;
    struct driver_term now;
    struct err err;
    dir->disk->ops->list(dir->disk, dir->path, find_newest, &newest, &err);
    return driver_term_read(dir, &now, &err) == OK && now.incarnation > newest ? now.incarnation
                                                                               : newest;
}

static void claim_path(const struct rundir *dir, uint32_t incarnation, char *out, size_t size)
{
    char name[sizeof CLAIM + 10];
    snprintf(name, sizeof name, CLAIM "%" PRIu32, incarnation);
    rundir_file(dir, name, out, size);
}

struct older {
    const struct rundir *dir;
    uint32_t than;
};

static void remove_older(void *user, const char *name)
{
    const struct older *older = user;
    uint32_t number = claimed_number(name);
    if (number > 0 && number < older->than)
        driver_term_unclaim(older->dir, number);
}

void driver_term_unclaim(const struct rundir *dir, uint32_t incarnation)
{
    char path[RUNDIR_PATH_MAX + 64];
    claim_path(dir, incarnation, path, sizeof path);
    dir->disk->ops->remove(dir->disk, path, NULL);
}

static int make_claim(const struct rundir *dir, uint32_t incarnation, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct disk_file *file;
    struct disk *disk = dir->disk;
    claim_path(dir, incarnation, path, sizeof path);
    int rc = disk->ops->open(disk, path, false, &file, err);
    if (rc != OK)
        return rc;
    rc = disk->ops->close(file, err);
    if (rc == OK)
        rc = disk->ops->sync_dir(disk, dir->path, err);
    if (rc != OK)
        driver_term_unclaim(dir, incarnation);
    return rc;
}

int driver_term_claim(const struct rundir *dir, uint32_t above, uint32_t *incarnation,
                      struct err *err)
{
    int rc = OK;
    for (int i = 0; i < CLAIMS_MAX; i++) {
        uint32_t newest = driver_term_newest(dir), mine = (newest > above ? newest : above) + 1;
        rc = make_claim(dir, mine, err);
        uint32_t then = driver_term_newest(dir);
        if (rc != OK && then < mine)
            return rc; /* an error other than that another driver was quicker */
        struct driver_term left;
        struct err none;
        bool removed = driver_term_read(dir, &left, &none) == OK && left.incarnation >= mine;
        if (rc != OK || removed) /* another driver had the number, ended, and removed its claim */
            continue;
        const struct older older = {dir, mine};
        dir->disk->ops->list(dir->disk, dir->path, remove_older, (void *)(uintptr_t)&older, &none);
        *incarnation = mine;
        return OK;
    }
    return err_set(err, ERR_IO, "%s: %d other drivers have been quicker to take this run up",
                   dir->path, CLAIMS_MAX);
}

int driver_term_check(const struct rundir *dir, uint32_t own, struct err *err)
{
    uint32_t newest = driver_term_newest(dir);
    return newest <= own ? OK
                         : err_set(err, ERR_FENCED,
                                   "%s: a later driver has taken this run over (number %" PRIu32
                                   ", this one is %" PRIu32 ")",
                                   dir->path, newest, own);
}

int driver_term_write(const struct rundir *dir, const struct driver_term *term, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    int rc = driver_term_check(dir, term->incarnation, err);
    if (rc != OK)
        return rc;
    struct buf text = {0};
    rundir_file(dir, "driver", path, sizeof path);
    print_term(term, &text);
    rc = text.failed ? err_set(err, ERR_NOMEM, "%s: out of memory", path) : ERR_IO;
    /* Two drivers that write at the same moment disturb each other: write once more. */
    for (int i = 0; i < 2 && rc == ERR_IO; i++)
        rc = disk_replace(dir->disk, path, text.data, text.len, err);
    buf_release(&text);
    struct err fenced;
    if (driver_term_check(dir, term->incarnation, &fenced) != OK)
        return err_set(err, ERR_FENCED, "%s", fenced.text);
    return rc;
}

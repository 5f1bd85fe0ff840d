#include "train/checkpoint_files.h"

#include "base/array.h"
#include "train/checkpoint.h"
#include "train/driver_term_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE      ".safetensors"
#define UNFINISHED WHOLE DISK_UNFINISHED

/* "NNNNNNNN" and that end → N; false for any other name. */
static bool checkpoint_number(const char *name, const char *with_end, uint64_t *n)
{
    char *end;
    if (name[0] < '0' || name[0] > '9')
        return false;
    *n = strtoull(name, &end, 10);
    return strcmp(end, with_end) == 0;
}

static void add_number(void *user, const char *name)
{
    struct checkpoint_numbers *numbers = user;
    uint64_t n;
    if (!checkpoint_number(name, numbers->end, &n) || numbers->failed)
        return;
    numbers->failed = !array_grow(&numbers->at, numbers->count, &numbers->cap, sizeof *numbers->at);
    if (!numbers->failed)
        numbers->at[numbers->count++] = n;
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int list_numbers(const struct rundir *dir, struct checkpoint_numbers *numbers,
                        struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    rundir_file(dir, "checkpoint", path, sizeof path);
    int rc = dir->disk->ops->list(dir->disk, path, add_number, numbers, err);
    if (rc == OK && numbers->failed)
        rc = err_set(err, ERR_NOMEM, "%s: out of memory", path);
    if (rc == OK && numbers->count > 0)
        qsort(numbers->at, numbers->count, sizeof *numbers->at, compare_numbers);
    return rc;
}

int checkpoint_files_list(const struct rundir *dir, struct checkpoint_numbers *numbers,
                          struct err *err)
{
    *numbers = (struct checkpoint_numbers){.end = WHOLE};
    return list_numbers(dir, numbers, err);
}

static void file_path(const struct rundir *dir, uint64_t n, const char *end, char *out, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoint/%08" PRIu64 "%s", n, end);
    rundir_file(dir, name, out, size);
}

void checkpoint_path_of(const struct rundir *dir, uint64_t n, char *out, size_t size)
{
    file_path(dir, n, WHOLE, out, size);
}

void checkpoint_files_remove_unfinished(const struct rundir *dir)
{
    struct checkpoint_numbers numbers = {.end = UNFINISHED};
    char path[RUNDIR_PATH_MAX + 64];
    if (list_numbers(dir, &numbers, NULL) == OK)
        for (size_t i = 0; i < numbers.count; i++) {
            file_path(dir, numbers.at[i], UNFINISHED, path, sizeof path);
            dir->disk->ops->remove(dir->disk, path, NULL);
        }
    free(numbers.at);
}

/* Remove checkpoint n, unless a later driver has written it. An unreadable one is removed. */
static int remove_own(const struct rundir *dir, uint64_t n, uint32_t incarnation, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct checkpoint_header header;
    checkpoint_path_of(dir, n, path, sizeof path);
    if (checkpoint_read_header(path, &header, NULL) == OK && header.incarnation > incarnation)
        return err_set(err, ERR_FENCED, "%s: is a later driver's (number %" PRIu32 "), and stays",
                       path, header.incarnation);
    return dir->disk->ops->remove(dir->disk, path, err);
}

/* Remove checkpoints above n: the run was resumed from an earlier one. If one stayed, or reappeared
 * after a power cut, it would be taken for the newest. */
static int remove_above(const struct rundir *dir, const struct checkpoint_numbers *numbers,
                        uint64_t n, uint32_t incarnation, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    size_t left = numbers->count;
    int rc = OK;
    for (; rc == OK && left > 0 && numbers->at[left - 1] > n; left--)
        rc = remove_own(dir, numbers->at[left - 1], incarnation, err);
    rundir_file(dir, "checkpoint", path, sizeof path);
    return rc == OK && left < numbers->count ? dir->disk->ops->sync_dir(dir->disk, path, err) : rc;
}

/* Of the numbers up to n, all but the newest `keep` go. A file that cannot be removed stays and
 * does no harm. */
static void remove_below(const struct rundir *dir, const struct checkpoint_numbers *numbers,
                         uint64_t n, uint32_t keep, uint32_t incarnation)
{
    size_t upto = 0;
    while (upto < numbers->count && numbers->at[upto] <= n)
        upto++;
    for (size_t i = 0; i + keep < upto; i++)
        remove_own(dir, numbers->at[i], incarnation, NULL);
}

int checkpoint_files_remove_others(const struct rundir *dir, uint64_t n, uint32_t keep,
                                   uint32_t incarnation, struct err *err)
{
    struct checkpoint_numbers numbers = {.end = WHOLE};
    int rc = driver_term_check(dir, incarnation, err);
    if (rc == OK)
        rc = list_numbers(dir, &numbers, err);
    if (rc == OK)
        rc = remove_above(dir, &numbers, n, incarnation, err);
    if (rc == OK)
        remove_below(dir, &numbers, n, keep, incarnation);
    free(numbers.at);
    return rc;
}

bool checkpoint_remove_oldest(const struct rundir *dir, uint32_t incarnation)
{
    struct checkpoint_numbers numbers = {.end = WHOLE};
    bool removed = false;
    if (driver_term_check(dir, incarnation, NULL) == OK &&
        list_numbers(dir, &numbers, NULL) == OK && numbers.count > 1)
        removed = remove_own(dir, numbers.at[0], incarnation, NULL) == OK;
    free(numbers.at);
    return removed;
}

#include "base/cgroup.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, FILE_BYTES = 1 << 20 };

/* ---- files ---- */

/* root/folder/name as text, or nothing. Released by file_release. */
static bool read_text(const char *root, const char *folder, const char *name,
                      struct file_bytes *out)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    struct err ignored;
    return n > 0 && (size_t)n < sizeof path && file_read(path, FILE_BYTES, out, &ignored) == OK;
}

/* The number at the start of a text. false for "max", and for -1 and the huge number that mean the
 * same in version 1. */
static bool parse_limit(const char *text, uint64_t *out)
{
    char *end;
    if (*text == '-')
        return false;
    *out = strtoull(text, &end, 10);
    return end != text && *out < UINT64_C(1) << 62;
}

static bool read_limit(const char *root, const char *folder, const char *name, uint64_t *out)
{
    struct file_bytes text;
    if (!read_text(root, folder, name, &text))
        return false;
    bool found = parse_limit((const char *)text.data, out);
    file_release(&text);
    return found;
}

/* The number behind `key` at the start of a line; 0: there is no such line. */
static uint64_t read_field(const char *root, const char *folder, const char *name, const char *word)
{
    struct file_bytes text;
    uint64_t value = 0;
    size_t len = strlen(word);
    if (!read_text(root, folder, name, &text))
        return 0;
    for (const char *at = (const char *)text.data; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, word, len) == 0 && at[len] == ' ' && parse_limit(at + len, &value))
            break;
    }
    file_release(&text);
    return value;
}

/* ---- limits of one group ---- */

struct memory_files {
    const char *limits[2], *usage;
    const char *given_up[3]; /* of memory.stat; NULL: no more */
};

static const struct memory_files memory_files_v1 = {
    {"memory.limit_in_bytes", NULL},
    "memory.usage_in_bytes",
    {"total_inactive_file", "total_active_file", NULL}};
static const struct memory_files memory_files_v2 = {
    {"memory.max", "memory.high"},
    "memory.current",
    {"inactive_file", "active_file", "slab_reclaimable"}};

/* The kernel counts its cache of files and names as usage, and frees it under pressure, however
 * lately it was read. */
static uint64_t read_given_up(const char *root, const char *folder,
                              const struct memory_files *files)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < 3 && files->given_up[i]; i++)
        sum += read_field(root, folder, "memory.stat", files->given_up[i]);
    return sum;
}

static void limit_memory(const char *root, const char *folder, const struct memory_files *files,
                         struct cgroup_limits *out)
{
    for (size_t i = 0; i < 2 && files->limits[i]; i++) {
        uint64_t limit, usage = 0;
        if (!read_limit(root, folder, files->limits[i], &limit))
            continue;
        read_limit(root, folder, files->usage, &usage);
        uint64_t cache = read_given_up(root, folder, files);
        uint64_t held = usage > cache ? usage - cache : 0, left = limit > held ? limit - held : 0;
        if (left < out->memory) {
            out->memory = (size_t)left;
            out->memory_by = files->limits[i];
        }
    }
}

static void limit_cpus(uint64_t quota, uint64_t period, struct cgroup_limits *out)
{
    if (period > 0 && (double)quota / (double)period < out->cpus)
        out->cpus = (double)quota / (double)period;
}

static void limit_memory_v1(const char *root, const char *folder, struct cgroup_limits *out)
{
    limit_memory(root, folder, &memory_files_v1, out);
}

static void limit_cpus_v1(const char *root, const char *folder, struct cgroup_limits *out)
{
    uint64_t quota, period;
    if (read_limit(root, folder, "cpu.cfs_quota_us", &quota) &&
        read_limit(root, folder, "cpu.cfs_period_us", &period))
        limit_cpus(quota, period, out);
}

/* cpu.max: "QUOTA PERIOD", or "max PERIOD" */
static void limit_all_v2(const char *root, const char *folder, struct cgroup_limits *out)
{
    struct file_bytes text;
    uint64_t quota, period;
    limit_memory(root, folder, &memory_files_v2, out);
    if (!read_text(root, folder, "cpu.max", &text))
        return;
    const char *space = strchr((const char *)text.data, ' ');
    if (space && parse_limit((const char *)text.data, &quota) && parse_limit(space, &period))
        limit_cpus(quota, period, out);
    file_release(&text);
}

/* ---- where the groups are ---- */

/* A mount of a hierarchy: the visible part (`below`) and the mount point. */
struct mount {
    char below[PATH_BYTES], point[PATH_BYTES];
};

/* Is `word` in the comma-separated list? */
static bool is_listed(const char *list, size_t len, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list, *end = list + len; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t item = (size_t)((comma ? comma : end) - at);
        if (item == n && memcmp(at, word, n) == 0)
            return true;
        at += item + 1;
    }
    return false;
}

static bool is_within(const char *path, const char *folder)
{
    size_t n = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* A line of mountinfo:
 *     ID PARENT MAJOR:MINOR BELOW POINT OPTIONS [MORE...] - TYPE SOURCE OPTIONS
 * `controller` NULL: of version 2. */
static bool parse_mount(const char *line, const char *controller, struct mount *out)
{
    char type[16], options[512];
    const char *end = strchr(line, '\n'), *dash = strstr(line, " - ");
    if (!dash || (end && dash > end) ||
        sscanf(line, "%*s %*s %*s %4095s %4095s", out->below, out->point) != 2 ||
        sscanf(dash + 3, "%15s %*s %511s", type, options) != 2)
        return false;
    return controller
               ? strcmp(type, "cgroup") == 0 && is_listed(options, strlen(options), controller)
               : strcmp(type, "cgroup2") == 0;
}

/* The mount through which the group `path` is visible; otherwise any mount of its hierarchy, of
 * which only the top is known. */
static bool find_mount(const char *mounts, const char *controller, const char *path,
                       struct mount *out)
{
    struct mount m;
    bool found = false;
    for (const char *line = mounts; line && *line;) {
        if (parse_mount(line, controller, &m) && (!found || is_within(path, m.below))) {
            *out = m;
            found = true;
        }
        line = strchr(line, '\n');
        line += line ? 1 : 0;
    }
    return found;
}

typedef void limit_fn(const char *root, const char *folder, struct cgroup_limits *out);

/* The group's own limits, and those of each above it up to the mount. */
static void limit_group(const char *root, const char *mounts, const char *controller,
                        const char *path, limit_fn *limit, struct cgroup_limits *out)
{
    struct mount m;
    char folder[2 * PATH_BYTES];
    if (!find_mount(mounts, controller, path, &m))
        return;
    const char *rest = "";
    if (is_within(path, m.below))
        rest = path + (strcmp(m.below, "/") == 0 ? 0 : strlen(m.below));
    snprintf(folder, sizeof folder, "%s%s", m.point, rest);
    for (size_t top = strlen(m.point); strlen(folder) >= top;) {
        limit(root, folder, out);
        char *slash = strrchr(folder, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup: "ID:CONTROLLERS:PATH", where version 2 has no controllers. */
static void limit_line(const char *root, const char *mounts, const char *line,
                       struct cgroup_limits *out)
{
    char path[PATH_BYTES];
    const char *list = strchr(line, ':'), *colon = list ? strchr(list + 1, ':') : NULL;
    if (!colon || sscanf(colon + 1, "%4095[^\n]", path) != 1)
        return;
    size_t len = (size_t)(colon - ++list);
    if (len == 0)
        limit_group(root, mounts, NULL, path, limit_all_v2, out);
    if (is_listed(list, len, "memory"))
        limit_group(root, mounts, "memory", path, limit_memory_v1, out);
    if (is_listed(list, len, "cpu"))
        limit_group(root, mounts, "cpu", path, limit_cpus_v1, out);
}

void cgroup_read(const char *root, struct cgroup_limits *out)
{
    struct file_bytes groups, mounts;
    *out = (struct cgroup_limits){.memory = SIZE_MAX, .cpus = (double)INFINITY};
    if (!read_text(root, "/proc/self", "cgroup", &groups))
        return;
    if (read_text(root, "/proc/self", "mountinfo", &mounts)) {
        for (char *line = (char *)groups.data; line && *line;) {
            limit_line(root, (const char *)mounts.data, line, out);
            line = strchr(line, '\n');
            line += line ? 1 : 0;
        }
        file_release(&mounts);
    }
    file_release(&groups);
}

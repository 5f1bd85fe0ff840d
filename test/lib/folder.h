/* A folder of a test's own, and files in it. */
#ifndef PL_LIB_FOLDER_H
#define PL_LIB_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

enum { FOLDER_BYTES_MAX = 1 << 16 };

struct folder {
    char path[64];
};

/* A new folder NAME-XXXXXX, in memory where the machine has room there: tests write many thousand
 * small files, and on a disk they would wait for fsync most of their time. */
static inline bool folder_create(const char *name, char path[64])
{
    struct statvfs room;
    bool memory = statvfs("/dev/shm", &room) == 0 &&
                  (uint64_t)room.f_bavail * room.f_frsize >= (uint64_t)1 << 30;
    snprintf(path, 64, "%s/%s-XXXXXX", memory ? "/dev/shm" : "/tmp", name);
    return mkdtemp(path) != NULL;
}

static inline void folder_make(struct folder *f)
{
    *f = (struct folder){""};
    assert_true(folder_create("paceline-test", f->path));
}

static inline void folder_remove(const struct folder *f)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f->path);
    assert_int_equal(system(command), 0);
}

static inline const char *folder_file(const struct folder *f, const char *name, char out[256])
{
    snprintf(out, 256, "%s/%s", f->path, name);
    return out;
}

static inline bool folder_has(const struct folder *f, const char *name)
{
    char path[256];
    return access(folder_file(f, name, path), F_OK) == 0;
}

static inline void folder_put(const struct folder *f, const char *name, const void *bytes, size_t n)
{
    char path[256];
    FILE *file = fopen(folder_file(f, name, path), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Its bytes into `into`, ended by a zero; how many there are. */
static inline size_t folder_get(const struct folder *f, const char *name,
                                uint8_t into[FOLDER_BYTES_MAX])
{
    char path[256];
    FILE *file = fopen(folder_file(f, name, path), "rb");
    if (!file)
        fail_msg("%s: cannot be opened", path);
    size_t n = fread(into, 1, FOLDER_BYTES_MAX - 1, file);
    fclose(file);
    into[n] = '\0';
    return n;
}

static inline void folder_expect(const struct folder *f, const char *name, const char *text)
{
    static uint8_t bytes[FOLDER_BYTES_MAX];
    folder_get(f, name, bytes);
    assert_string_equal((const char *)bytes, text);
}

#endif

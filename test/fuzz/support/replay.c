/* Without a fuzzer: hand each file that is named, or lies in a folder that is, to the target. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static size_t played;

static int play_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        return 1;
    long n = ftell(file);
    uint8_t *bytes = malloc(n > 0 ? (size_t)n : 1);
    rewind(file);
    if (n < 0 || !bytes || fread(bytes, 1, (size_t)n, file) != (size_t)n)
        return 1;
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, (size_t)n);
    free(bytes);
    played++;
    return 0;
}

static int play_all(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return 1;
    if (!S_ISDIR(st.st_mode))
        return play_file(path);
    DIR *dir = opendir(path);
    if (!dir)
        return 1;
    int rc = 0;
    for (const struct dirent *entry; rc == 0 && (entry = readdir(dir));) {
        char inner[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        rc = play_all(inner);
    }
    closedir(dir);
    return rc;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (play_all(argv[i]) != 0) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 1;
        }
    printf("%zu inputs\n", played);
    return played > 0 ? 0 : 1;
}

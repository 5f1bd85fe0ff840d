#include "cli/workers_file.h"

#include <stdio.h>

void workers_file_look(struct workers_file *file)
{
    struct timespec now;
    long n;
    if (!file->path || clock_gettime(CLOCK_MONOTONIC, &now) != 0 || now.tv_sec == file->looked)
        return;
    file->looked = now.tv_sec;
    FILE *f = fopen(file->path, "r");
    if (f && fscanf(f, "%6ld", &n) == 1 && n >= 0)
        pl_flag_set(&file->workers, (int)n);
    if (f)
        fclose(f);
}

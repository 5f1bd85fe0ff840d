/* A Datum, from memory and through the window on a file: both must give the same result. */
#include "support/fuzz.h"

#include "data/datum.h"

#include <stdlib.h>
#include <string.h>

#define NAME "in.datum"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct pb pb;
    struct datum datum = {0}, second = {0};
    struct file_open file;
    struct err err = {0}, err_again = {0};
    pb_memory(&pb, bytes, n);
    int rc = datum_read(&pb, &datum, &err);
    fuzz_judge(rc, &err, NULL);
    fuzz_files_clear();
    fuzz_file(NAME, bytes, n);
    PL_ASSERT(file_open(NAME, &file, NULL) == OK);
    const struct part_of part = {&file, 0, n, NULL};
    pb_part(&pb, &part);
    PL_ASSERT(datum_read(&pb, &second, &err_again) == rc);
    PL_ASSERT(strcmp(err.text, err_again.text) == 0);
    file_close(&file);
    if (rc != OK)
        return 0;
    PL_ASSERT(second.form == datum.form && second.C == datum.C && second.H == datum.H &&
              second.W == datum.W && second.label == datum.label && second.at == datum.at &&
              second.len == datum.len);
    PL_ASSERT(datum.len <= n && datum.at <= n - datum.len);
    if (datum.form == DATUM_FLOATS) {
        float *x = malloc(datum.C * datum.H * datum.W * sizeof *x);
        PL_ASSERT(x);
        datum_floats(bytes, n, x);
        free(x);
    }
    return 0;
}

/* A mean image, mean.binaryproto. */
#include "support/fuzz.h"

#include "data/mean_file.h"

#include <math.h>
#include <stdlib.h>

#define NAME "in.binaryproto"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct mean_file mean;
    struct err err = {0};
    fuzz_files_clear();
    fuzz_file(NAME, bytes, n);
    int rc = mean_file_read(NAME, &mean, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc != OK)
        return 0;
    for (size_t i = 0; i < shape_count(&mean.shape); i++)
        PL_ASSERT(isfinite(mean.mean[i]));
    free(mean.mean);
    return 0;
}

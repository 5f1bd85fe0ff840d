/* A pair of .npy files: two bytes give the length of the labels' file, which is first. */
#include "support/fuzz.h"

#include "data/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2)
        return 0;
    size_t labels = (size_t)bytes[0] | (size_t)bytes[1] << 8;
    labels = labels < n - 2 ? labels : n - 2;
    Paceline__Data__Npy npy = PACELINE__DATA__NPY__INIT;
    Paceline__Data data = PACELINE__DATA__INIT;
    struct source *source = NULL;
    struct err err = {0};
    data.source_case = PACELINE__DATA__SOURCE_NPY;
    data.npy = &npy;
    npy.values = (char *)(uintptr_t) "in.values";
    npy.labels = (char *)(uintptr_t) "in.labels";
    fuzz_files_clear();
    fuzz_file("in.labels", bytes + 2, labels);
    fuzz_file("in.values", bytes + 2 + labels, n - 2 - labels);
    int rc = source_open(&data, SOURCE_TRAIN, &source, &err);
    fuzz_judge(rc, &err, "in.");
    fuzz_source(rc, source);
    return 0;
}

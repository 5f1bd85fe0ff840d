/* An archive of NumPy's: its array x with the labels y, or alone. */
#include "support/fuzz.h"

#include "data/source.h"

static int open_arrays(const char *labels)
{
    Paceline__Data__Npy npy = PACELINE__DATA__NPY__INIT;
    Paceline__Data data = PACELINE__DATA__INIT;
    struct source *source = NULL;
    struct err err = {0};
    data.source_case = PACELINE__DATA__SOURCE_NPY;
    data.npy = &npy;
    npy.values = (char *)(uintptr_t) "in.npz:x";
    npy.labels = (char *)(uintptr_t)labels;
    int rc = source_open(&data, SOURCE_TRAIN, &source, &err);
    fuzz_judge(rc, &err, "in.npz:");
    fuzz_source(rc, source);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    fuzz_files_clear();
    fuzz_file("in.npz", bytes, n);
    if (open_arrays("in.npz:y") != OK)
        open_arrays(NULL);
    return 0;
}

/* The file of an LMDB and the Datums in it. */
#include "support/fuzz.h"

#include "data/source_lmdb.h"

#define NAME "in.mdb"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    Paceline__Data__Lmdb lmdb = PACELINE__DATA__LMDB__INIT;
    const struct source_config config = {0};
    struct source *source = NULL;
    struct err err = {0};
    lmdb.path = (char *)(uintptr_t)NAME;
    fuzz_files_clear();
    fuzz_file(NAME, bytes, n);
    int rc = source_lmdb_open(&config, &lmdb, &source, &err);
    fuzz_judge(rc, &err, NAME);
    fuzz_source(rc, source);
    return 0;
}

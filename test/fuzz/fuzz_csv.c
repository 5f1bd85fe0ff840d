/* A table, behind a byte that chooses how it is read. The columns that were found must fit the
 * table that they were found in. */
#include "support/fuzz.h"

#include "data/source_csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char *const delimiters[] = {",", ";", "\t", " "};
    if (n < 1)
        return 0;
    Paceline__Data__Csv csv = PACELINE__DATA__CSV__INIT, again = csv;
    Paceline__Data data = PACELINE__DATA__INIT;
    struct source *source = NULL, *second = NULL;
    struct err err = {0};
    data.source_case = PACELINE__DATA__SOURCE_CSV;
    data.csv = &csv;
    csv.path = (char *)(uintptr_t) "in.csv";
    csv.delimiter = (char *)(uintptr_t)delimiters[bytes[0] & 3];
    csv.has_header = csv.has_standardize = true; /* or copies lose them */
    csv.header = !(bytes[0] & 4);
    csv.label = (char *)(uintptr_t)(csv.header ? "y" : "1");
    csv.has_missing = bytes[0] >> 3 & 1;
    csv.standardize = bytes[0] >> 4 & 1;
    fuzz_files_clear();
    fuzz_file("in.csv", bytes + 1, n - 1);
    int rc = source_open(&data, SOURCE_TRAIN, &source, &err);
    fuzz_judge(rc, &err, "in.csv");
    if (rc == OK) {
        const Paceline__Data__Csv *found = source_csv_columns(source);
        again = csv;
        again.column = found->column;
        again.n_column = found->n_column;
        again.has_all_listed = again.all_listed = true;
        data.csv = &again;
        fuzz_text(&data.base);
        rc = source_open(&data, SOURCE_TEST, &second, &err);
        PL_ASSERT(rc == ERR_NOMEM || (rc == OK && second->hash == source->hash));
        if (rc == OK)
            second->ops->close(second);
        rc = OK;
    }
    fuzz_source(rc, source);
    return 0;
}

/* A TAR archive of records. The checksum of every block that looks like a header is made right, so
 * that changes of other bytes are read; an odd length allows bad records, and the second bit of the
 * length takes labels from JSON. Bytes behind "PLTARIDX" are an index of the bytes in front of it,
 * whose checksum is made right. */
#include "support/fuzz.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "data/source_webdataset.h"
#include "data/tar_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "in.tar"

static void repair_checksums(uint8_t *bytes, size_t n)
{
    for (; n >= TAR_BLOCK; bytes += TAR_BLOCK, n -= TAR_BLOCK) {
        unsigned sum = 0;
        if (memcmp(bytes + 257, "ustar", 5) != 0)
            continue;
        memset(bytes + 148, ' ', 8);
        for (size_t i = 0; i < TAR_BLOCK; i++)
            sum += bytes[i];
        snprintf((char *)bytes + 148, 8, "%06o", sum);
    }
}

/* The bytes of the archive; what follows is put next to it as its index. */
static size_t divide_index(uint8_t *bytes, size_t n)
{
    for (size_t at = 0; at + 48 <= n; at++)
        if (memcmp(bytes + at, "PLTARIDX", 8) == 0) {
            bytes_put_le64(bytes + at + 16, at);
            bytes_put_le64(bytes + at + 32, hash_bytes("", 0));
            bytes_put_le64(bytes + n - 8, hash_bytes(bytes + at, n - at - 8));
            fuzz_file(NAME ".index", bytes + at, n - at);
            return at;
        }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    Paceline__Data__WebDataset webdataset = PACELINE__DATA__WEB_DATASET__INIT;
    struct bad_records *bad = n % 2 ? bad_records_create(3) : NULL;
    const struct source_config config = {.bad = bad};
    struct source *source = NULL;
    struct err err = {0};
    uint8_t *copy = malloc(n + 1);
    PL_ASSERT(copy && (bad || n % 2 == 0));
    if (n > 0)
        memcpy(copy, bytes, n);
    repair_checksums(copy, n);
    webdataset.shards = (char *)(uintptr_t)NAME;
    if (n & 2)
        webdataset.label_key = (char *)(uintptr_t) "label.fine";
    fuzz_files_clear();
    fuzz_file(NAME, copy, divide_index(copy, n));
    int rc = source_webdataset_open(&config, &webdataset, &source, &err);
    fuzz_judge(rc, &err, NAME);
    fuzz_source(rc, source);
    bad_records_free(bad);
    free(copy);
    return 0;
}

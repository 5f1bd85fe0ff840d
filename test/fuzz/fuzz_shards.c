/* A shard. The checksums of its index and of its footer are made right, and that of its block if
 * there is one block, so that changes of numbers and records are read. */
#include "support/fuzz.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "data/shard_format.h"
#include "data/source_shards.h"

#include <stdlib.h>
#include <string.h>

#define NAME "in.shard"

static void repair_checksums(uint8_t *bytes, size_t n)
{
    if (n < SHARD_HEADER + SHARD_FOOTER)
        return;
    uint8_t *footer = bytes + n - SHARD_FOOTER;
    uint64_t index = bytes_le64(footer + 64), left = n - SHARD_HEADER - SHARD_FOOTER;
    uint64_t names = bytes_le32(footer + 36), fields = bytes_le32(footer + 32);
    uint64_t hashes = (names + 7) / 8 * 8 + fields * SHARD_FIELD;
    if (index <= left && bytes_le64(footer + 48) == 1 && hashes + 8 <= index)
        bytes_put_le64(footer - index + hashes,
                       hash_bytes(bytes + SHARD_HEADER, (size_t)(left - index)));
    if (index <= left)
        bytes_put_le64(footer + 72, hash_bytes(footer - index, (size_t)index));
    bytes_put_le64(footer + SHARD_FOOTER - 8, hash_bytes(footer, SHARD_FOOTER - 8));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    Paceline__Data__Shards shards = PACELINE__DATA__SHARDS__INIT;
    const struct source_config config = {0};
    struct source *source = NULL;
    struct err err = {0};
    uint8_t *copy = malloc(n + 1);
    PL_ASSERT(copy);
    if (n > 0)
        memcpy(copy, bytes, n);
    repair_checksums(copy, n);
    shards.shards = (char *)(uintptr_t)NAME;
    fuzz_files_clear();
    fuzz_file(NAME, copy, n);
    int rc = source_shards_open(&config, &shards, &source, &err);
    fuzz_judge(rc, &err, NAME);
    fuzz_source(rc, source);
    free(copy);
    return 0;
}

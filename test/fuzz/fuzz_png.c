/* A PNG, which libpng decodes. Checksums would stop nearly every change at the door: they are made
 * right again, but for one input in eight. */
#include "support/fuzz.h"

#include "base/bytes.h"

#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    fuzz_picture(bytes, n);
    return 0;
}

#ifdef FUZZER
enum { SIGNATURE = 8, CHUNK = 12 }; /* length · type · bytes · checksum of type and bytes */

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    n = LLVMFuzzerMutate(bytes, n, most);
    size_t at = SIGNATURE;
    while (seed % 8 != 0 && n >= CHUNK && at <= n - CHUNK) {
        size_t len = bytes_be32(bytes + at);
        if (len > n - at - CHUNK)
            break;
        uint8_t *sum = bytes + at + 8 + len;
        uint32_t crc = (uint32_t)crc32(0, bytes + at + 4, (uInt)(4 + len));
        for (int i = 0; i < 4; i++)
            sum[i] = (uint8_t)(crc >> (24 - 8 * i));
        at += CHUNK + len;
    }
    return n;
}
#endif

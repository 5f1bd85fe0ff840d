/* The code of a vector on the wire, of any codec. Bytes that are a code decode to values whose own
 * code decodes to the same values.
 *
 *   u8 codec, u16 floats, then the code; missing bytes are 0 */
#include "support/fuzz.h"

#include "base/bytes.h"
#include "tensor/codec.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD = 3, FLOATS_MAX = 3 * CODEC_TOPK_BLOCK };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < HEAD)
        return 0;
    enum codec codec = (enum codec)(bytes[0] % CODECS);
    size_t floats = (size_t)(bytes[1] | bytes[2] << 8) % FLOATS_MAX;
    size_t len = codec_bytes(codec, floats), given = n - HEAD < len ? n - HEAD : len;
    uint8_t *code = calloc(len + 1, 1);
    float *x = calloc(floats + 1, sizeof *x), *again = calloc(floats + 1, sizeof *again);
    if (code && x && again) {
        memcpy(code, bytes + HEAD, given);
        if (codec_decode(codec, code, floats, x)) {
            memcpy(again, x, floats * sizeof *x);
            codec_encode(codec, x, floats, code);
            PL_ASSERT(codec_decode(codec, code, floats, x));
            codec_round(codec, again, floats);
            PL_ASSERT(memcmp(again, x, floats * sizeof *x) == 0);
        }
    }
    free(code);
    free(x);
    free(again);
    return 0;
}

/* A node reads from a connection: the hello of a stranger, the challenge in reply, and the heads of
 * frames. Bytes that it accepts are the same when they are encoded again.
 *
 *   u8 kind: 0 hello, 1 challenge, 2 frame, 3 frame whose check is mended; then its bytes */
#include "support/fuzz.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "real/frame.h"
#include "world/world.h"

#include <string.h>

enum { KINDS = 4, CHECK_AT = FRAME_SIZE - 4 };

static void judge_hello(const uint8_t bytes[HELLO_SIZE])
{
    struct hello hello;
    uint8_t again[HELLO_SIZE];
    int rc = hello_decode(bytes, &hello);
    PL_ASSERT(rc == OK || rc == ERR_PROTOCOL || rc == ERR_UNSUPPORTED);
    if (rc == OK || rc == ERR_UNSUPPORTED)
        PL_ASSERT(hello_begins(bytes, HELLO_SIZE) && hello_refusal_text(hello.refusal)[0]);
    if (rc != OK)
        return;
    PL_ASSERT(hello.stripes <= STRIPES_MAX && (hello.stripe < hello.stripes || !hello.stripes));
    hello_encode(&hello, again);
    PL_ASSERT(memcmp(again, bytes, HELLO_SIZE) == 0);
}

static void judge_challenge(const uint8_t bytes[HELLO_SIZE])
{
    struct challenge challenge;
    uint8_t again[HELLO_SIZE];
    if (challenge_decode(bytes, &challenge) != OK)
        return;
    challenge_encode(&challenge, again);
    PL_ASSERT(memcmp(again, bytes, HELLO_SIZE) == 0);
}

static void judge_frame(const uint8_t bytes[FRAME_SIZE])
{
    struct frame frame;
    uint8_t again[FRAME_SIZE];
    int rc = frame_decode(bytes, &frame);
    PL_ASSERT(rc == OK || rc == ERR_CORRUPT || rc == ERR_PROTOCOL);
    if (rc != OK)
        return;
    PL_ASSERT(frame.type == FRAME_CREDIT || frame.length <= WORLD_MESSAGE_MAX);
    frame_encode(&frame, again);
    PL_ASSERT(memcmp(again, bytes, FRAME_SIZE) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint8_t mended[FRAME_SIZE];
    size_t least = n > 0 && bytes[0] % KINDS < 2 ? HELLO_SIZE : FRAME_SIZE;
    if (n < 1 + least)
        return 0;
    const uint8_t *at = bytes + 1;
    switch (bytes[0] % KINDS) {
    case 0: judge_hello(at); break;
    case 1: judge_challenge(at); break;
    case 2: judge_frame(at); break;
    default:
        memcpy(mended, at, FRAME_SIZE);
        bytes_put_le32(mended + CHECK_AT, (uint32_t)hash_bytes(mended, CHECK_AT));
        judge_frame(mended);
    }
    return 0;
}

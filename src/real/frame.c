#include "real/frame.h"

#include "base/bytes.h"
#include "base/hash.h"

#include <string.h>

static const uint8_t magic[8] = {'P', 'A', 'C', 'E', 'L', 'I', 'N', 'E'};

void hello_encode(const struct hello *hello, uint8_t out[HELLO_SIZE])
{
    memset(out, 0, HELLO_SIZE);
    memcpy(out, magic, sizeof magic);
    bytes_put_le32(out + 8, hello->version);
    bytes_put_le32(out + 12, hello->refusal);
    bytes_put_le64(out + 16, hello->run);
    bytes_put_le32(out + 24, hello->node);
    bytes_put_le32(out + 28, hello->peer);
    out[32] = (uint8_t)hello->port;
    out[33] = (uint8_t)(hello->port >> 8);
    out[34] = hello->stripe;
    out[35] = hello->stripes;
    out[36] = hello->shm ? 1 : hello->ucx ? 2 : 0;
    out[37] = hello->plain;
    if (!hello->shm)
        return;
    bytes_put_le32(out + 40, hello->process);
    bytes_put_le32(out + 44, hello->file);
    memcpy(out + 48, hello->nonce, HELLO_NONCE);
}

static bool all_zero(const uint8_t *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (in[i])
            return false;
    return true;
}

static bool stripe_is_sound(uint8_t stripe, uint8_t stripes)
{
    return stripes == 0 ? stripe == 0 : stripes <= STRIPES_MAX && stripe < stripes;
}

int hello_decode(const uint8_t in[HELLO_SIZE], struct hello *out)
{
    if (memcmp(in, magic, sizeof magic) != 0)
        return ERR_PROTOCOL;
    uint32_t version = bytes_le32(in + 8), refusal = bytes_le32(in + 12);
    if (version != PROTOCOL_VERSION) {
        *out = (struct hello){.version = version, .refusal = refusal};
        return ERR_UNSUPPORTED;
    }
    bool shm = in[36] == 1;
    if (!stripe_is_sound(in[34], in[35]) || in[36] > 2 || in[37] > 1 ||
        !all_zero(in + 38, shm ? 2 : 26))
        return ERR_PROTOCOL;
    *out = (struct hello){
        .version = version,
        .refusal = refusal,
        .run = bytes_le64(in + 16),
        .node = bytes_le32(in + 24),
        .peer = bytes_le32(in + 28),
        .port = (uint16_t)(in[32] | in[33] << 8),
        .stripe = in[34],
        .stripes = in[35],
        .plain = in[37] == 1,
        .ucx = in[36] == 2,
        .shm = shm,
        .process = bytes_le32(in + 40),
        .file = bytes_le32(in + 44),
    };
    memcpy(out->nonce, in + 48, HELLO_NONCE);
    return OK;
}

void challenge_encode(const struct challenge *challenge, uint8_t out[HELLO_SIZE])
{
    memset(out, 0, HELLO_SIZE);
    memcpy(out, magic, sizeof magic);
    bytes_put_le32(out + 8, challenge->version);
    memcpy(out + 24, challenge->key_id, KEY_ID_SIZE);
    memcpy(out + 32, challenge->nonce, CHALLENGE_NONCE_SIZE);
}

int challenge_decode(const uint8_t in[HELLO_SIZE], struct challenge *out)
{
    if (memcmp(in, magic, sizeof magic) != 0)
        return ERR_PROTOCOL;
    *out = (struct challenge){.version = bytes_le32(in + 8)};
    if (out->version != PROTOCOL_VERSION)
        return ERR_UNSUPPORTED;
    if (!all_zero(in + 12, 12))
        return ERR_PROTOCOL;
    memcpy(out->key_id, in + 24, KEY_ID_SIZE);
    memcpy(out->nonce, in + 32, CHALLENGE_NONCE_SIZE);
    return OK;
}

bool hello_begins(const uint8_t *in, size_t n)
{
    return memcmp(in, magic, n < sizeof magic ? n : sizeof magic) == 0;
}

const char *hello_refusal_text(uint32_t refusal)
{
    switch (refusal) {
    case REFUSED_VERSION: return "another protocol version";
    case REFUSED_RUN: return "another run";
    case REFUSED_NUMBER: return "a node number that may not connect there";
    case REFUSED_FULL: return "no room for more nodes";
    case REFUSED_KEY: return "it does not have the run's key";
    default: return "no reason that this version knows";
    }
}

enum { CHECK_AT = 20 };

static uint32_t check_of(const uint8_t *head)
{
    return (uint32_t)hash_bytes(head, CHECK_AT);
}

void frame_encode(const struct frame *frame, uint8_t out[FRAME_SIZE])
{
    bytes_put_le32(out, frame->length);
    out[4] = (uint8_t)frame->type;
    out[5] = (uint8_t)frame->class;
    out[6] = out[7] = 0;
    bytes_put_le32(out + 8, frame->view);
    bytes_put_le64(out + 12, frame->tag);
    bytes_put_le32(out + CHECK_AT, check_of(out));
}

int frame_decode(const uint8_t in[FRAME_SIZE], struct frame *out)
{
    uint32_t length = bytes_le32(in), view = bytes_le32(in + 8);
    uint64_t tag = bytes_le64(in + 12);
    uint8_t type = in[4], class = in[5];
    if (bytes_le32(in + CHECK_AT) != check_of(in))
        return ERR_CORRUPT;
    if (length > WORLD_MESSAGE_MAX || class >= CLASS_COUNT || in[6] || in[7])
        return ERR_PROTOCOL;
    if (type != FRAME_DATA && type != FRAME_CREDIT)
        return ERR_PROTOCOL;
    if (type == FRAME_CREDIT && (length || view || !tag || tag > WORLD_CREDIT))
        return ERR_PROTOCOL;
    *out = (struct frame){length, (enum frame_type)type, (enum world_class) class, view, tag};
    return OK;
}

/* The bytes between two real worlds; numbers are little endian. Pure: encodes and decodes, with
 * every bound checked, and opens nothing.
 *
 * A connection begins with three messages: a challenge of the accepting side, the connecting side's
 * hello with its proof, and the accepting side's hello with its proof. Magic, version and refusal
 * keep their places in every version, in all three.
 *
 *     0          8         12        16        24        32                                64
 *    +----------+---------+---------+---------+---------+---------------------------------+
 *    | magic    | version | zero              | key id  | nonce                           |
 *    +----------+---------+---------+---------+---------+---------------------------------+
 *
 *     0          8         12        16        24        28        32      34     35      36
 *    +----------+---------+---------+----------+---------+---------+-------+------+-------+---
 *    | magic    | version | refusal | run      | node    | peer    | port  |stripe|stripes|
 *    +----------+---------+---------+----------+---------+---------+-------+------+-------+---
 *          36      37       38     40        44         48                        64
 *       ---+-------+--------+------+---------+----------+-------------------------+
 *          | past  | plain  | zero | process | file     | nonce                   |
 *       ---+-------+--------+------+---------+----------+-------------------------+
 *
 * Behind the connecting side's hello stand the id of its key, a nonce and a proof; behind the other
 * side's a proof alone (real/run_key.h). All are zero where there is no key. 128 bytes are all that
 * the accepting side reads before it knows that the other side has the key.
 *
 * `stripe` of `stripes` connections to this peer; zero of zero, where there is one only. With 1 in
 * `past` the first hello offers memory to share, in an open file of a process, and the second
 * accepts (real/shm.h); with 2 the same for UCX (real/ucx.h), and what follows is zero, as with 0.
 * With 1 in `plain` of both hellos what follows them is not encrypted. Otherwise, where there is a
 * key and the bytes stay in the TCP socket, a TLS handshake follows, and all else is in its records
 * (real/seal.h).
 *
 * After the hellos come frames, a header and `length` bytes each:
 *
 *     0          4      5       6       8          12                  20        24
 *    +----------+------+-------+-------+----------+-------------------+---------+--------------
 *    | length   | type | class | zero  | view     | tag               | check   | data …
 *    +----------+------+-------+-------+----------+-------------------+---------+--------------
 *
 * `check` is the lower half of the XXH3 of the twenty bytes before it. Behind data that goes
 * through a TCP socket without TLS stand eight bytes, the XXH3 of it: TCP's own sum lets one of
 * 65536 damaged packets pass, and what has crossed a bad switch or adapter was added up again by
 * it. In shared memory there are zeros up to a multiple of eight instead.
 *
 * A data frame is a message. A credit frame has no data and no view; its tag is the number of bytes
 * of the class that have been taken. */
#ifndef PL_REAL_FRAME_H
#define PL_REAL_FRAME_H

#include "world/world.h"

enum {
    PROTOCOL_VERSION = 5,
    HELLO_SIZE = 64, /* and that of a challenge */
    KEY_ID_SIZE = 8,
    KEY_NONCE_SIZE = 24,
    PROOF_SIZE = 32,
    FIRST_SIZE = HELLO_SIZE + KEY_ID_SIZE + KEY_NONCE_SIZE + PROOF_SIZE, /* the connecting side's */
    REPLY_SIZE = HELLO_SIZE + PROOF_SIZE,
    CHALLENGE_NONCE_SIZE = 32,
    HELLO_NONCE = 16,
    STRIPES_MAX = 16,
    FRAME_SIZE = 24,
    FRAME_TAIL = 8, /* behind data, where it is summed */
    /* The cost of a short message, so that credit bounds memory: about the memory that it takes. */
    MESSAGE_COST_MIN = 256,
};

enum hello_refusal {
    REFUSED_NOT,
    REFUSED_VERSION, /* the versions differ */
    REFUSED_RUN,     /* the runs differ */
    REFUSED_NUMBER,  /* a number that is mine, another's, or not to connect here */
    REFUSED_FULL,    /* no room for more peers */
    REFUSED_KEY,     /* it does not prove that it has the run's key */
};

struct hello {
    uint32_t version, refusal; /* enum hello_refusal */
    uint64_t run;              /* 0: a worker that does not know it yet */
    uint32_t node;             /* the sender; WORLD_ANY asks for a number */
    uint32_t peer;             /* whom it speaks to; from the driver: the number given */
    uint16_t port;             /* where the sender listens */
    uint8_t stripe, stripes;   /* 0 ≤ stripe < stripes ≤ STRIPES_MAX, or both 0 */
    bool plain;                /* this side wants no encryption */
    bool ucx;                  /* or shm, and then these are meant: */
    bool shm;
    uint32_t process, file;
    uint8_t nonce[HELLO_NONCE];
};

void hello_encode(const struct hello *hello, uint8_t out[HELLO_SIZE]);

/* ERR_PROTOCOL     this is no hello
 * ERR_UNSUPPORTED  one of another version: only version and refusal are filled in */
int hello_decode(const uint8_t in[HELLO_SIZE], struct hello *out);

/* `key_id` and `nonce` of the accepting side. */
struct challenge {
    uint32_t version;
    uint8_t key_id[KEY_ID_SIZE]; /* zeros: it has no key */
    uint8_t nonce[CHALLENGE_NONCE_SIZE];
};

void challenge_encode(const struct challenge *challenge, uint8_t out[HELLO_SIZE]);
/* As hello_decode. */
int challenge_decode(const uint8_t in[HELLO_SIZE], struct challenge *out);

/* The first n ≤ HELLO_SIZE bytes may be those of a hello. */
bool hello_begins(const uint8_t *in, size_t n);

const char *hello_refusal_text(uint32_t refusal);

enum frame_type { FRAME_DATA = 1, FRAME_CREDIT = 2 };

struct frame {
    uint32_t length;
    enum frame_type type;
    enum world_class class;
    uint32_t view;
    uint64_t tag;
};

void frame_encode(const struct frame *frame, uint8_t out[FRAME_SIZE]);

/* ERR_CORRUPT   it is not what was sent
 * ERR_PROTOCOL  unknown type or class, too long, or anything else that nobody sends */
int frame_decode(const uint8_t in[FRAME_SIZE], struct frame *out);

/* The credit that a message of `len` bytes takes. */
static inline size_t message_cost(size_t len)
{
    return len > MESSAGE_COST_MIN ? len : MESSAGE_COST_MIN;
}

#endif

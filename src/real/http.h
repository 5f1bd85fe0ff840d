/* Files over HTTP and HTTPS, read by ranges (RFC 9110, 14), through libcurl.
 *
 * A file is read in blocks of HTTP_BLOCK bytes, which a cache keeps: the least recently used one
 * goes. Threads of the client fetch them, up to HTTP_RUN adjacent blocks in one request, each over
 * a connection that it keeps. A block that several readers want is fetched once. Where a read
 * begins at or soon after the end of the one before, blocks are fetched ahead, up to HTTP_AHEAD.
 *
 * A request that fails for a reason that may pass (a reset, a stall, a truncated answer, one for
 * another range, status 408, 429, 500, 502, 503, 504) is repeated, HTTP_TRIES times in all. After
 * the last failure, requests for this file are tried once until one succeeds. Bytes are used only
 * if the whole answer is what was asked for. An answer with another length, ETag or Last-Modified
 * than at opening is an error for good. Redirects are followed, five at most, and never from https
 * to http. */
#ifndef PL_REAL_HTTP_H
#define PL_REAL_HTTP_H

#include "base/remote.h"

#include <stdint.h>

enum { HTTP_BLOCK = 1 << 16, HTTP_RUN = 32, HTTP_AHEAD = 256, HTTP_THREADS = 16, HTTP_TRIES = 5 };

/* Zero: the default. */
struct http_options {
    size_t cache_bytes; /* most that blocks take, at least 16 blocks; default 64 MiB */
    int64_t connect;    /* ns to connect; default 10 s */
    int64_t stall; /* ns without a byte; default 20 s. A request takes 15 times that at most. */
    int64_t pause; /* ns before the second try; each further pause is twice as long; default
                           1.5 s */
    const char *ca_file; /* certificates to trust (PEM), copied; NULL: the system's */
};

/* A client. Its threads start when they are needed. NULL: no memory. */
struct remote *http_create(const struct http_options *options);

/* All its files are closed, or never used again. Requests that still run are cancelled, within a
 * second. */
void http_free(struct remote *remote);

struct http_counts {
    uint64_t requests, bytes; /* tries; bytes that came */
    size_t held;              /* bytes of blocks now; they are never given back */
};

struct http_counts http_counts(struct remote *remote);

#endif

/* One request for a range of a URL, and everything that its answer must be. */
#ifndef PL_REAL_HTTP_REQUEST_H
#define PL_REAL_HTTP_REQUEST_H

#include "real/http.h"

#include <stdatomic.h>

enum { HTTP_CAUSE_MAX = 200 };

/* A file as it was when it was opened: its length, and the hashes of its ETag and Last-Modified, 0
 * where the server does not send them. len 0: it is not open yet. */
struct http_identity {
    uint64_t len, etag, modified;
};

struct http_range {
    const char *url;
    uint64_t offset;
    size_t n;
    uint8_t *const *block;          /* receive the bytes, HTTP_BLOCK each */
    struct http_identity *identity; /* compared; set by the answer of the request that opens */
    const atomic_bool *stop;        /* set from any thread: end it */
};

enum http_outcome {
    HTTP_DONE,
    HTTP_AGAIN,   /* it failed, and may succeed another time */
    HTTP_REFUSED, /* it fails every time */
    HTTP_CHANGED, /* the file is another than at opening */
    HTTP_STOPPED
};

/* A connection, kept from request to request; for one thread at a time. */
struct http_connection;

/* NULL: no memory. The options' defaults are filled in. */
struct http_connection *http_connection_create(const struct http_options *options);
void http_connection_free(struct http_connection *connection);

/* Blocks no longer than the options say. When a file is opened, `n` may be more than it has.
 * `cause` is written unless HTTP_DONE, on one line and without the URL. */
enum http_outcome http_request(struct http_connection *connection, const struct http_range *range,
                               char cause[HTTP_CAUSE_MAX]);

#endif

#include "real/http_request.h"

#include "base/hash.h"
#include "base/release.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    HEADERS_MAX = 1 << 16,
    REDIRECTS_MAX = 5,
    STALLS_MAX = 15, /* the longest request, in times without a byte */
    NS_PER_MS = 1000000,
    BUFFER_BYTES = 1 << 17
};

struct http_connection {
    CURL *curl;
    char error[CURL_ERROR_SIZE];
    bool fresh; /* the last request failed: the next one has a new connection */
};

/* The answer, as far as it has come. Of redirects the last one's counts. */
struct answer {
    const struct http_range *range;
    CURL *curl;
    size_t header_bytes;
    bool ranged, encoded;
    uint64_t first, last, total; /* of Content-Range */
    bool sized;
    uint64_t length; /* of Content-Length */
    uint64_t etag, modified;
    bool judged; /* `outcome` says whether it is the right one */
    enum http_outcome outcome;
    size_t expected, got;
    char *cause;
};

static enum http_outcome set_outcome(struct answer *a, enum http_outcome outcome,
                                     const char *format, ...) __attribute__((format(printf, 3, 4)));

static enum http_outcome set_outcome(struct answer *a, enum http_outcome outcome,
                                     const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(a->cause, HTTP_CAUSE_MAX, format, args);
    va_end(args);
    a->judged = true;
    return a->outcome = outcome;
}

/* ---- headers ---- */

/* Digits; false where there are none or too many. */
static bool take_number(const char **at, uint64_t *out)
{
    size_t n = strspn(*at, "0123456789");
    *out = n > 0 && n <= 18 ? strtoull(*at, NULL, 10) : 0;
    *at += n;
    return n > 0 && n <= 18;
}

static bool take_character(const char **at, char c)
{
    return **at == c && (*at)++;
}

/* "bytes 0-65535/100000" */
static bool parse_range(const char *text, struct answer *a)
{
    if (strncasecmp(text, "bytes ", 6) != 0)
        return false;
    text += 6;
    return take_number(&text, &a->first) && take_character(&text, '-') &&
           take_number(&text, &a->last) && take_character(&text, '/') &&
           take_number(&text, &a->total) && !*text && a->first <= a->last && a->last < a->total;
}

/* The value of the header of that name; NULL: it is another. */
static const char *value_of(const char *line, const char *name)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

static void take_header(struct answer *a, const char *line)
{
    const char *value;
    if (strncmp(line, "HTTP/", 5) == 0) { /* of another answer, of a redirect's target */
        a->ranged = a->encoded = a->sized = false;
        a->etag = a->modified = 0;
    } else if ((value = value_of(line, "Content-Range"))) {
        a->ranged = parse_range(value, a);
    } else if ((value = value_of(line, "Content-Length"))) {
        a->sized = take_number(&value, &a->length);
    } else if ((value = value_of(line, "Content-Encoding"))) {
        a->encoded = strcasecmp(value, "identity") != 0;
    } else if ((value = value_of(line, "ETag"))) {
        a->etag = hash_bytes(value, strlen(value));
    } else if ((value = value_of(line, "Last-Modified"))) {
        a->modified = hash_bytes(value, strlen(value));
    }
}

/* Headers that are longer than that are none of these. */
static size_t on_header(char *bytes, size_t size, size_t n, void *user)
{
    struct answer *a = user;
    char line[1024];
    (void)size; /* 1 */
    a->header_bytes += n;
    if (a->header_bytes > HEADERS_MAX) {
        set_outcome(a, HTTP_AGAIN, "more than %d bytes of headers", HEADERS_MAX);
        return 0;
    }
    size_t length = n;
    while (length > 0 && strchr("\r\n \t", bytes[length - 1]))
        length--;
    if (length < sizeof line && !memchr(bytes, '\0', length)) {
        memcpy(line, bytes, length);
        line[length] = '\0';
        take_header(a, line);
    }
    return n;
}

/* ---- the answer ---- */

static const char *explain_status(long status)
{
    switch (status) {
    case 200: return " (the whole file) to a request for a part of it: it does not serve ranges";
    case 401: return " (unauthorized)";
    case 403: return " (forbidden)";
    case 404: return " (not found)";
    case 416: return " (no such range; the file may be empty)";
    case 429: return " (too many requests)";
    case 500: return " (internal error)";
    case 503: return " (unavailable)";
    default: return "";
    }
}

static bool may_pass(long status)
{
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504;
}

/* Is it the file that was opened? */
static enum http_outcome compare_identity(struct answer *a)
{
    const struct http_identity *opened = a->range->identity;
    if (a->total != opened->len)
        return set_outcome(a, HTTP_CHANGED, "%" PRIu64 " bytes, not %" PRIu64, a->total,
                           opened->len);
    if (a->etag != opened->etag)
        return set_outcome(a, HTTP_CHANGED, "another ETag");
    if (a->modified != opened->modified)
        return set_outcome(a, HTTP_CHANGED, "another Last-Modified");
    return HTTP_DONE;
}

static enum http_outcome judge_headers(struct answer *a)
{
    const struct http_range *range = a->range;
    long status = 0;
    curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 206)
        return set_outcome(a, may_pass(status) ? HTTP_AGAIN : HTTP_REFUSED,
                           "the server answers %ld%s", status, explain_status(status));
    if (a->encoded)
        return set_outcome(a, HTTP_REFUSED, "the server sends it encoded (Content-Encoding)");
    if (!a->ranged)
        return set_outcome(a, HTTP_AGAIN, "the server does not say which range it sends");
    if (range->identity->len > 0 && compare_identity(a) != HTTP_DONE)
        return a->outcome;
    uint64_t left = a->total > range->offset ? a->total - range->offset : 0;
    a->expected = left < range->n ? (size_t)left : range->n;
    if (a->first != range->offset || a->last - a->first + 1 != a->expected)
        return set_outcome(a, HTTP_AGAIN,
                           "the server sends bytes %" PRIu64 " to %" PRIu64 " instead", a->first,
                           a->last);
    if (a->sized && a->length != a->expected)
        return set_outcome(a, HTTP_AGAIN,
                           "the server announces %" PRIu64 " bytes for a range of %zu", a->length,
                           a->expected);
    a->judged = true;
    return a->outcome = HTTP_DONE;
}

static void put_bytes(struct answer *a, const char *bytes, size_t n)
{
    while (n > 0) {
        size_t within = a->got % HTTP_BLOCK, room = HTTP_BLOCK - within, take = n < room ? n : room;
        memcpy(a->range->block[a->got / HTTP_BLOCK] + within, bytes, take);
        a->got += take;
        bytes += take;
        n -= take;
    }
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    struct answer *a = user;
    (void)size; /* 1 */
    if (!a->judged)
        judge_headers(a);
    if (a->outcome == HTTP_DONE && n > a->expected - a->got)
        set_outcome(a, HTTP_AGAIN, "the server sends more than the range of %zu bytes",
                    a->expected);
    if (a->outcome != HTTP_DONE)
        return 0; /* ends the request */
    put_bytes(a, bytes, n);
    return n;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now)
{
    const struct answer *a = user;
    (void)total, (void)now, (void)up_total, (void)up_now;
    return atomic_load(a->range->stop);
}

/* ---- the connection ---- */

static bool fails_always(CURLcode code, bool opening)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: /* the name or the port may be wrong, */
    case CURLE_UNSUPPORTED_PROTOCOL: /* or it is no server of HTTP */ return opening;
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_OUT_OF_MEMORY: return true;
    default: return false;
    }
}

static enum http_outcome judge_failure(struct answer *a, CURLcode code, const char *error)
{
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return set_outcome(a, HTTP_STOPPED, "it was closed");
    if (a->outcome != HTTP_DONE)
        return a->outcome;
    bool always = fails_always(code, a->range->identity->len == 0);
    return set_outcome(a, always ? HTTP_REFUSED : HTTP_AGAIN, "%s",
                       error[0] ? error : curl_easy_strerror(code));
}

enum http_outcome http_request(struct http_connection *c, const struct http_range *range,
                               char cause[HTTP_CAUSE_MAX])
{
    struct answer a = {.range = range, .curl = c->curl, .cause = cause};
    bool tls = strncasecmp(range->url, "https:", 6) == 0;
    char bytes[64];
    snprintf(bytes, sizeof bytes, "%" PRIu64 "-%" PRIu64, range->offset,
             range->offset + range->n - 1);
    c->error[0] = '\0';
    curl_easy_setopt(c->curl, CURLOPT_URL, range->url);
    curl_easy_setopt(c->curl, CURLOPT_RANGE, bytes);
    curl_easy_setopt(c->curl, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
    curl_easy_setopt(c->curl, CURLOPT_FRESH_CONNECT, (long)c->fresh);
    curl_easy_setopt(c->curl, CURLOPT_HEADERDATA, &a);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &a);
    curl_easy_setopt(c->curl, CURLOPT_XFERINFODATA, &a);
    CURLcode code = curl_easy_perform(c->curl);
    if (code == CURLE_OK && !a.judged)
        judge_headers(&a);
    if (code != CURLE_OK)
        judge_failure(&a, code, c->error);
    else if (a.outcome == HTTP_DONE && a.got != a.expected)
        set_outcome(&a, HTTP_AGAIN, "%zu of %zu bytes came", a.got, a.expected);
    c->fresh = a.outcome == HTTP_AGAIN;
    if (a.outcome == HTTP_DONE && range->identity->len == 0)
        *range->identity = (struct http_identity){a.total, a.etag, a.modified};
    return a.outcome;
}

static bool set_up(CURL *curl, struct http_connection *c, const struct http_options *options)
{
    long connect = (long)(options->connect / NS_PER_MS), stall = (long)(options->stall / NS_PER_MS);
    char agent[RELEASE_MAX + 16];
    snprintf(agent, sizeof agent, "paceline/%s", release_text());
    bool ok = curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
              curl_easy_setopt(curl, CURLOPT_USERAGENT, agent) == CURLE_OK;
    if (ok && options->ca_file)
        ok = curl_easy_setopt(curl, CURLOPT_CAINFO, options->ca_file) == CURLE_OK;
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, c->error);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, connect > 0 ? connect : 1);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, stall >= 1000 ? stall / 1000 : 1);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, connect + STALLS_MAX * stall);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    return ok;
}

struct http_connection *http_connection_create(const struct http_options *options)
{
    struct http_connection *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->curl = curl_easy_init();
    if (!c->curl || !set_up(c->curl, c, options)) {
        http_connection_free(c);
        return NULL;
    }
    return c;
}

void http_connection_free(struct http_connection *c)
{
    if (!c)
        return;
    if (c->curl)
        curl_easy_cleanup(c->curl);
    free(c);
}

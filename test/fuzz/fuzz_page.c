/* Strangers send bytes to the port of a live page: to one that is for this machine alone, and to
 * one with a token. An answer is HTTP, and a page with a token is shown to nobody who lacks it.
 *
 *   u8 which: 0 this machine's, 1 with a token; then the bytes of the connection */
#include "support/fuzz.h"

#include "cli/page_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN "let-me-in-0123456789abcdef"
#define END   "{\"t\":1,\"kind\":\"end\",\"reason\":\"steps\",\"wall_s\":1}"

/* After it the server closes the connection, which it otherwise keeps for the next request. */
#define LAST "\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n"

enum { PORTS = 2, ANSWER_BYTES = 1 << 16, PATIENCE_MS = 2000 };

/* Of a run that has ended, so that a stream of events does, too. */
static unsigned find_port(int which)
{
    static struct page_server *server[PORTS];
    const struct page_options options = {"127.0.0.1:0", which > 0 ? TOKEN : NULL};
    if (!server[which]) {
        struct live_page *page = live_page_create();
        PL_ASSERT(page);
        live_page_event(page, END);
        server[which] = page_server_start("fuzz", &options, page);
        PL_ASSERT(server[which]);
    }
    return page_server_port(server[which]);
}

static int connect_to(unsigned port)
{
    const struct linger at_once = {1, 0}; /* no port is left waiting */
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    PL_ASSERT(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return fd;
}

/* Until the server has said all, or for the patience. */
static size_t read_answer(int fd, char answer[ANSWER_BYTES])
{
    struct pollfd at = {.fd = fd, .events = POLLIN};
    size_t n = 0;
    while (n < ANSWER_BYTES - 1 && poll(&at, 1, PATIENCE_MS) > 0) {
        ssize_t got = recv(fd, answer + n, ANSWER_BYTES - 1 - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    answer[n] = '\0';
    return n;
}

static bool has_text(const uint8_t *bytes, size_t n, const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i + len <= n; i++)
        if (memcmp(bytes + i, text, len) == 0)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static char answer[ANSWER_BYTES];
    if (n < 2)
        return 0;
    int which = bytes[0] % PORTS, fd = connect_to(find_port(which));
    (void)!send(fd, bytes + 1, n - 1, MSG_NOSIGNAL);
    (void)!send(fd, LAST, strlen(LAST), MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    size_t len = read_answer(fd, answer);
    close(fd);
    PL_ASSERT(len == 0 || strncmp(answer, "HTTP/1.", 7) == 0);
    bool shown =
        strstr(answer, "data-drawn-by") || strstr(answer, "# HELP") || strstr(answer, "event: ");
    PL_ASSERT(which == 0 || !shown || has_text(bytes + 1, n - 1, TOKEN));
    return 0;
}

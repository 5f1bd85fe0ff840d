/* Strangers send bytes to a live page: to one that is for this machine alone, and to one with a
 * token. An answer is HTTP, and a page with a token is shown to nobody who lacks it. The server
 * answers in this thread, over a pair of sockets: a connection takes a tenth of one by a port.
 *
 *   u8 which: 0 this machine's, 1 with a token; then the bytes of the connection */
#include "support/fuzz.h"

#include "cli/page_server.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN "let-me-in-0123456789abcdef"
#define END   "{\"t\":1,\"kind\":\"end\",\"reason\":\"steps\",\"wall_s\":1}"

/* After it the server closes the connection, which it otherwise keeps for the next request. */
#define LAST "\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n"

enum { SERVERS = 2, ANSWER_BYTES = 1 << 16, TURNS = 1000 };

/* Of a run that has ended, so that a stream of events does, too. */
static struct page_server *find_server(int which)
{
    static struct page_server *server[SERVERS];
    const struct page_options options = {.token = which > 0 ? TOKEN : NULL};
    if (!server[which]) {
        struct live_page *page = live_page_create();
        PL_ASSERT(page);
        live_page_event(page, END);
        server[which] = page_server_start("fuzz", &options, page);
        PL_ASSERT(server[which]);
    }
    return server[which];
}

/* Until the server has said all, or for so many turns; then it finds the connection closed. */
static size_t read_answer(struct page_server *server, int fd, char answer[ANSWER_BYTES])
{
    size_t n = 0;
    ssize_t got = -1;
    for (int turn = 0; turn < TURNS && got != 0; turn++) {
        page_server_answer(server);
        got = recv(fd, answer + n, ANSWER_BYTES - 1 - n, MSG_DONTWAIT);
        n += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    page_server_answer(server);
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
    int which = bytes[0] % SERVERS, pair[2];
    struct page_server *server = find_server(which);
    PL_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    PL_ASSERT(page_server_take(server, pair[1]));
    (void)!send(pair[0], bytes + 1, n - 1, MSG_NOSIGNAL);
    (void)!send(pair[0], LAST, strlen(LAST), MSG_NOSIGNAL);
    shutdown(pair[0], SHUT_WR);
    size_t len = read_answer(server, pair[0], answer);
    PL_ASSERT(len == 0 || strncmp(answer, "HTTP/1.", 7) == 0);
    bool shown =
        strstr(answer, "data-drawn-by") || strstr(answer, "# HELP") || strstr(answer, "event: ");
    PL_ASSERT(which == 0 || !shown || has_text(bytes + 1, n - 1, TOKEN));
    return 0;
}

#include "cli/worker_relay.h"

#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 4096 };

/* Is it the line with the reason of the worker's end? The driver, which is this process, prints
 * that itself, with the consequence for the run. */
static bool is_last_line(const char *line)
{
    return strncmp(line, "paceline: worker ", 17) == 0;
}

/* Print whole lines; returns how many bytes of an unfinished one are left at the beginning. */
static size_t print_lines(char *text, size_t len)
{
    char *line = text, *end;
    while ((end = memchr(line, '\n', len - (size_t)(line - text)))) {
        *end = '\0';
        if (!is_last_line(line))
            output_relay(line);
        line = end + 1;
    }
    size_t left = len - (size_t)(line - text);
    memmove(text, line, left);
    return left;
}

static void *read_lines(void *arg)
{
    struct worker_relay *relay = arg;
    char text[LINE_BYTES_MAX + 1];
    size_t len = 0;
    for (;;) {
        ssize_t n = read(relay->ends[0], text + len, LINE_BYTES_MAX - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len = print_lines(text, len + (size_t)n);
        if (len == LINE_BYTES_MAX) {
            text[len] = '\n';
            len = print_lines(text, len + 1);
        }
    }
    text[len] = '\n';
    if (len > 0)
        print_lines(text, len + 1);
    return NULL;
}

void worker_relay_open(struct worker_relay *relay)
{
    sigset_t all, before;
    if (relay->open || pipe(relay->ends) != 0)
        return;
    for (int i = 0; i < 2; i++)
        fcntl(relay->ends[i], F_SETFD, FD_CLOEXEC);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    relay->open = pthread_create(&relay->reader, NULL, read_lines, relay) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!relay->open) {
        close(relay->ends[0]);
        close(relay->ends[1]);
    }
}

void worker_relay_close(struct worker_relay *relay)
{
    if (!relay->open)
        return;
    close(relay->ends[1]);
    pthread_join(relay->reader, NULL);
    close(relay->ends[0]);
    relay->open = false;
}

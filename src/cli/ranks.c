#define _GNU_SOURCE
#include "cli/ranks.h"

#include "cli/cli.h"
#include "cli/host_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 1024 };

static bool read_number(const char *text, uint32_t *out)
{
    char *end;
    if (!text)
        return false;
    unsigned long number = strtoul(text, &end, 10);
    *out = (uint32_t)number;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && number <= RANKS_MAX;
}

/* The address from which this host reaches the rendezvous: asking the routes sends nothing. */
static bool own_address(const char *rendezvous, char *out, size_t size)
{
    char host[64];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, self;
    socklen_t len = sizeof self;
    snprintf(host, sizeof host, "%.*s", (int)strcspn(rendezvous, ":"), rendezvous);
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof host, "127.0.0.1");
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
        return false;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
                 getsockname(fd, (struct sockaddr *)&self, &len) == 0 &&
                 inet_ntop(AF_INET, &self.sin_addr, host, sizeof host);
    if (fd >= 0)
        close(fd);
    if (found)
        snprintf(out, size, "%.*s:0", INET_ADDRSTRLEN, host);
    return found;
}

/* Where this rank listens, and whether that is allowed. */
static bool find_address(const char *command, const char *own, struct ranks_place *place)
{
    if (own)
        snprintf(place->listen, sizeof place->listen, "%.48s:0", own);
    else if (!own_address(place->rendezvous, place->listen, sizeof place->listen)) {
        fprintf(
            stderr,
            "paceline %s: the rendezvous %s cannot be reached: write a host's address and port\n",
            command, place->rendezvous);
        return false;
    }
    place->given = true;
    return true;
}

static bool refuse_options(const char *command, uint32_t count)
{
    if (count < 2)
        fprintf(stderr,
                "paceline %s: give --rank R (from 0 on), --ranks N and --rendezvous HOST:PORT "
                "together; see paceline %s --help\n",
                command, command);
    else
        fprintf(stderr,
                "paceline %s: give --rank R (0 to %u) and --rendezvous HOST:PORT together, for one "
                "of %u ranks; see paceline %s --help\n",
                command, count - 1, count, command);
    return false;
}

/* All of --rank, --ranks and --rendezvous. */
static bool take_options(const char *command, const struct ranks_options *o, uint32_t count,
                         struct ranks_place *place)
{
    char number[HOST_ADDRESS_MAX], own[HOST_ADDRESS_MAX];
    const char *at, *address = NULL;
    if (!o->rank || !o->rendezvous || count < 2 || !read_number(o->rank, &place->rank) ||
        place->rank >= count)
        return refuse_options(command, count);
    if (host_address(command, "rendezvous", o->rendezvous, HOST_PORT, number, &at) >= 0 ||
        host_address(command, "address", o->address, "0", own, &address) >= 0)
        return false;
    place->count = count;
    snprintf(place->rendezvous, sizeof place->rendezvous, "%.63s", at);
    if (address)
        own[strcspn(own, ":")] = '\0';
    return find_address(command, address ? own : NULL, place);
}

bool ranks_find(const char *command, const struct ranks_options *options, uint32_t count,
                struct ranks_place *place)
{
    const char *rendezvous = getenv("PACELINE_RENDEZVOUS");
    *place = (struct ranks_place){.count = count, .insecure = options->insecure};
    const char *key_file = options->key_file ? options->key_file : getenv("PACELINE_KEY_FILE");
    if (key_file && key_option_read(command, key_file, &place->key) >= 0)
        return false;
    if (options->rank || options->rendezvous || options->address)
        return take_options(command, options, count, place);
    if (!getenv("PACELINE_RANKS"))
        return true;
    if (!read_number(getenv("PACELINE_RANKS"), &place->count) ||
        !read_number(getenv("PACELINE_RANK"), &place->rank) || !rendezvous ||
        place->rank >= place->count) {
        fprintf(stderr,
                "paceline %s: PACELINE_RANK, PACELINE_RANKS and PACELINE_RENDEZVOUS must be set "
                "together\n",
                command);
        return false;
    }
    if (count && count != place->count) {
        fprintf(stderr, "paceline %s: --ranks %u, but PACELINE_RANKS is %u\n", command, count,
                place->count);
        return false;
    }
    snprintf(place->rendezvous, sizeof place->rendezvous, "%s", rendezvous);
    return find_address(command, getenv("PACELINE_ADDRESS"), place);
}

int ranks_open(pl_engine *engine, const struct ranks_place *place, pl_team **team)
{
    const pl_team_options options = {
        .size = sizeof options,
        .rendezvous = place->rendezvous,
        .members = place->rank == 0 ? place->count : 0,
        .listen = place->listen,
        .insecure = place->insecure,
        .key = place->key,
        .no_shared_memory = place->no_shm,
        .ucx = place->ucx,
        .stripes = place->stripes,
    };
    return pl_team_open(engine, &options, team);
}

/* A socket that holds a port of this host's, or -1. It does not listen, and has SO_REUSEADDR: only
 * another socket with that option, such as rank 0's, can have the port until this one is closed,
 * and the kernel chooses the port for nobody. */
static int hold_port(struct ranks_place *place)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, (struct sockaddr *)&at, len) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &len) == 0) {
        snprintf(place->rendezvous, sizeof place->rendezvous, "127.0.0.1:%d", ntohs(at.sin_port));
        return fd;
    }
    fprintf(stderr, "paceline: no port of 127.0.0.1 for the processes: %s\n", strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

static int exit_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

/* Those that are stopped, too. */
static void end_ranks(const pid_t *pid, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (pid[i] > 0)
            kill(pid[i], SIGKILL);
}

/* A rank has ended. A rank that failed ends the others, which would wait for it in vain. */
static void take_end(pid_t ended, int status, pid_t *pid, uint32_t count, int *code)
{
    bool first = *code == EXIT_DONE;
    if (first)
        *code = exit_code(status);
    if (first && WIFSIGNALED(status) && WTERMSIG(status) != SIGPIPE) /* else it has said why */
        fprintf(stderr, "paceline: one of %u processes was ended by signal %d\n", count,
                WTERMSIG(status));
    for (uint32_t i = 0; i < count; i++)
        if (pid[i] == ended)
            pid[i] = 0; /* another process may have that number from now on */
    if (*code != EXIT_DONE)
        end_ranks(pid, count);
}

int ranks_start(const struct ranks_place *place, int (*fn)(const struct ranks_place *, void *),
                void *arg)
{
    pid_t pid[RANKS_MAX], command = getpid();
    struct ranks_place child = *place;
    uint32_t started = 0;
    int code = EXIT_DONE, status;
    if (place->count > RANKS_MAX) {
        fprintf(stderr, "paceline: %u ranks: there may be %d\n", place->count, RANKS_MAX);
        return EXIT_BAD_INPUT;
    }
    if (!child.key && key_option_draw("bench", &child.key) >= 0)
        return EXIT_FAILED;
    int port = hold_port(&child);
    if (port < 0)
        return EXIT_FAILED;
    signal(SIGCHLD, SIG_DFL); /* where it is ignored, no rank leaves a status */
    snprintf(child.listen, sizeof child.listen, "127.0.0.1:0");
    for (; started < place->count && code == EXIT_DONE; started++) {
        child.rank = started;
        pid[started] = fork();
        if (pid[started] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives the command */
            if (getppid() != command)         /* which has ended before that */
                _exit(EXIT_FAILED);
            exit(fn(&child, arg));
        }
        if (pid[started] < 0) {
            fprintf(stderr, "paceline: cannot start rank %u: %s\n", started, strerror(errno));
            code = EXIT_FAILED;
            end_ranks(pid, started);
            break;
        }
    }
    for (uint32_t left = started; left > 0;) {
        pid_t ended = wait(&status);
        if (ended < 0 && errno == EINTR)
            continue;
        left--;
        if (ended > 0)
            take_end(ended, status, pid, started, &code);
        else
            code = EXIT_FAILED;
    }
    close(port);
    return code;
}

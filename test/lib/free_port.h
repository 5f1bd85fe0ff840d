/* Addresses without a listener. */
#ifndef PL_LIB_FREE_PORT_H
#define PL_LIB_FREE_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PORT_TEXT = 32 };

/* A port of 127.0.0.1 that the returned socket holds, without a listener. */
static inline int port_take(char address[PORT_TEXT])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        abort();
    snprintf(address, PORT_TEXT, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

/* The same, but the system accepts connections, to which no process replies. */
static inline int port_mute(char address[PORT_TEXT])
{
    int fd = port_take(address);
    if (listen(fd, 64) != 0)
        abort();
    return fd;
}

enum { PORTS_FIRST = 20000, PORTS_OF_PROCESS = 200, PORT_BLOCKS = 60 };

/* Does no other test process use this block of ports? It is this one's until it ends, by a name in
 * the abstract namespace of Unix sockets. */
static inline bool port_claim_block(unsigned block)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int len = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "paceline-ports-%u", block);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        abort();
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    bool claimed = bind(fd, (struct sockaddr *)&name, size) == 0;
    if (!claimed)
        close(fd);
    return claimed;
}

static inline unsigned port_block(void)
{
    for (unsigned i = 0; i < PORT_BLOCKS; i++)
        if (port_claim_block(((unsigned)getpid() + i) % PORT_BLOCKS))
            return ((unsigned)getpid() + i) % PORT_BLOCKS;
    abort();
}

/* A port that was free a moment ago, and that no process gets by asking for any port: it is below
 * the range of ephemeral ports. No other test process has it. */
static inline void port_find(char address[PORT_TEXT])
{
    static unsigned block, found;
    if (found == 0)
        block = port_block();
    for (unsigned i = 0; i < PORTS_OF_PROCESS; i++) {
        unsigned port = PORTS_FIRST + block * PORTS_OF_PROCESS + found++ % PORTS_OF_PROCESS;
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0)
            abort();
        int rc = bind(fd, (struct sockaddr *)&at, sizeof at);
        close(fd);
        snprintf(address, PORT_TEXT, "127.0.0.1:%d", ntohs(at.sin_port));
        if (rc == 0)
            return;
    }
    abort();
}

#endif

/* Addresses without a listener. */
#ifndef PL_LIB_FREE_PORT_H
#define PL_LIB_FREE_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
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

/* A port that was free a moment ago, and that no process gets by asking for any port: it is below
 * the range of ephemeral ports. Test processes that run at the same time begin at ports of their
 * own. */
static inline void port_find(char address[PORT_TEXT])
{
    enum { FIRST = 20000, PORTS = 12000, PER_PROCESS = 37 };
    static unsigned found;
    for (unsigned i = 0; i < PORTS; i++) {
        unsigned turn = (unsigned)getpid() * PER_PROCESS + found++;
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)(FIRST + turn % PORTS)),
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

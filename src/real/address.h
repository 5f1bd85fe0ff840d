/* Internet addresses as text: "127.0.0.1:4000", "[::1]:4000", "localhost:4000". Numbers only, so
 * that nothing here asks a name server. */
#ifndef PL_REAL_ADDRESS_H
#define PL_REAL_ADDRESS_H

#include "base/err.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { ADDRESS_TEXT_MAX = 64 };

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } u;
    socklen_t len;
};

/* ERR_INPUT */
int address_parse(const char *text, struct address *out, struct err *err);
void address_print(const struct address *a, char *out, size_t size);

/* Only this host can reach it. */
bool address_is_loopback(const struct address *a);
/* 0.0.0.0 or ::, every address of this host: to listen at, not to connect to. */
bool address_is_wildcard(const struct address *a);

/* A hash of what one host cannot choose freely: an IPv4 address, the network of an IPv6 one. */
uint32_t address_network(const struct address *a);

uint16_t address_port(const struct address *a);
void address_set_port(struct address *a, uint16_t port);

#endif

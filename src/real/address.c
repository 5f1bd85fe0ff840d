#include "real/address.h"

#include "base/hash.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static bool parse_port(const char *text, uint16_t *out)
{
    uint32_t port = 0;
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 5 || text[n])
        return false;
    for (size_t i = 0; i < n; i++)
        port = port * 10 + (uint32_t)(text[i] - '0');
    *out = (uint16_t)port;
    return port <= UINT16_MAX;
}

static bool parse_host(const char *host, bool brackets, struct address *out)
{
    *out = (struct address){0};
    if (brackets) {
        out->u.v6.sin6_family = AF_INET6;
        out->len = sizeof out->u.v6;
        return inet_pton(AF_INET6, host, &out->u.v6.sin6_addr) == 1;
    }
    out->u.v4.sin_family = AF_INET;
    out->len = sizeof out->u.v4;
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    return inet_pton(AF_INET, host, &out->u.v4.sin_addr) == 1;
}

int address_parse(const char *text, struct address *out, struct err *err)
{
    char host[INET6_ADDRSTRLEN];
    struct address a;
    uint16_t port;
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;
    bool brackets = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    const char *from = brackets ? text + 1 : text;
    len -= brackets ? 2 : 0;
    if (!colon || len >= sizeof host || !parse_port(colon + 1, &port))
        return err_set(err, ERR_INPUT,
                       "address '%.80s': expected HOST:PORT, the port from 0 to 65535", text);
    memcpy(host, from, len);
    host[len] = 0;
    if (!parse_host(host, brackets, &a))
        return err_set(err, ERR_INPUT,
                       "address '%.80s': expected a numeric IPv4 address, an IPv6 address in "
                       "brackets, or localhost before the port",
                       text);
    address_set_port(&a, port);
    *out = a;
    return OK;
}

void address_print(const struct address *a, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (a->u.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->u.v6.sin6_addr, host, sizeof host);
        snprintf(out, size, "[%s]:%u", host, address_port(a));
    } else {
        inet_ntop(AF_INET, &a->u.v4.sin_addr, host, sizeof host);
        snprintf(out, size, "%s:%u", host, address_port(a));
    }
}

bool address_is_loopback(const struct address *a)
{
    if (a->u.any.sa_family == AF_INET)
        return ntohl(a->u.v4.sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &a->u.v6.sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

bool address_is_wildcard(const struct address *a)
{
    if (a->u.any.sa_family == AF_INET)
        return a->u.v4.sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&a->u.v6.sin6_addr);
}

uint32_t address_network(const struct address *a)
{
    enum { V6_NETWORK = 8 };
    const uint8_t *v6 = a->u.v6.sin6_addr.s6_addr;
    if (a->u.any.sa_family == AF_INET)
        return (uint32_t)hash_bytes(&a->u.v4.sin_addr, sizeof a->u.v4.sin_addr);
    if (IN6_IS_ADDR_V4MAPPED(&a->u.v6.sin6_addr))
        return (uint32_t)hash_bytes(v6 + 12, sizeof a->u.v4.sin_addr);
    return (uint32_t)hash_bytes(v6, V6_NETWORK);
}

uint16_t address_port(const struct address *a)
{
    return ntohs(a->u.any.sa_family == AF_INET ? a->u.v4.sin_port : a->u.v6.sin6_port);
}

void address_set_port(struct address *a, uint16_t port)
{
    if (a->u.any.sa_family == AF_INET)
        a->u.v4.sin_port = htons(port);
    else
        a->u.v6.sin6_port = htons(port);
}

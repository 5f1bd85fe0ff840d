#define _GNU_SOURCE
#include "real/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_host(const struct sockaddr *a, const struct address *b)
{
    if (!a || a->sa_family != b->u.any.sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               b->u.v4.sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, &b->u.v6.sin6_addr,
                  sizeof b->u.v6.sin6_addr) == 0;
}

/* One more of a list. */
static void add_interface(char out[INTERFACE_TEXT_MAX], const struct ifaddrs *i)
{
    char host[INET6_ADDRSTRLEN];
    size_t n = strlen(out);
    inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, host,
              sizeof host);
    snprintf(out + n, INTERFACE_TEXT_MAX - n, "%s%s %s", n > 0 ? ", " : "", i->ifa_name, host);
}

void interface_name(const struct address *a, char out[INTERFACE_TEXT_MAX])
{
    struct ifaddrs *all = NULL;
    bool any = address_is_wildcard(a);
    out[0] = '\0';
    if (getifaddrs(&all) != 0)
        all = NULL;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        bool wide = any && i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
                    (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK);
        if (wide)
            add_interface(out, i);
        else if (!any && out[0] == '\0' && is_host(i->ifa_addr, a))
            snprintf(out, INTERFACE_TEXT_MAX, "%s", i->ifa_name);
    }
    if (all)
        freeifaddrs(all);
    if (out[0] == '\0') /* 127.0.0.2 is loopback's too, and nobody has it */
        snprintf(out, INTERFACE_TEXT_MAX, "%s", address_is_loopback(a) ? "lo" : "no interface");
}

int interface_towards(const struct address *there, struct address *out, struct err *err)
{
    char text[ADDRESS_TEXT_MAX];
    struct address a = {.len = sizeof a.u};
    int fd = socket(there->u.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && connect(fd, &there->u.any, there->len) == 0 &&
                 getsockname(fd, &a.u.any, &a.len) == 0;
    int code = errno;
    if (fd >= 0)
        close(fd);
    if (!found) {
        address_print(there, text, sizeof text);
        return err_set(err, ERR_IO, "there is no route to %s: %s", text, strerror(code));
    }
    address_set_port(&a, 0);
    *out = a;
    return OK;
}

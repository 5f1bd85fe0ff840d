#define _GNU_SOURCE
#include "cli/host_address.h"

#include "cli/cli.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 255 };

static bool is_number(const char *host)
{
    struct in_addr v4;
    return host[0] == '[' || inet_pton(AF_INET, host, &v4) == 1 || strcmp(host, "localhost") == 0;
}

/* The first address of IPv4, or else the first. */
static const struct addrinfo *choose_address(const struct addrinfo *all)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next)
        if (a->ai_family == AF_INET)
            return a;
    return all;
}

static bool print_address(const struct addrinfo *a, const char *port, char out[HOST_ADDRESS_MAX])
{
    char host[INET6_ADDRSTRLEN];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
        return false;
    const char *form = a->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s";
    return snprintf(out, HOST_ADDRESS_MAX, form, host, port) < HOST_ADDRESS_MAX;
}

/* "host", "10.0.0.1" or "[::1]". */
static bool lacks_port(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n < NAME_MAX_BYTES && (!strchr(text, ':') || text[n - 1] == ']');
}

static int find_host(const char *command, const char *option, const char *text,
                     char out[HOST_ADDRESS_MAX], const char **at)
{
    char host[NAME_MAX_BYTES + 1];
    const char *colon = text ? strrchr(text, ':') : NULL;
    size_t n = colon ? (size_t)(colon - text) : 0;
    *at = text;
    if (!colon || n == 0 || n > NAME_MAX_BYTES || strchr(text, ':') != colon)
        return -1; /* the library reports any error in it */
    memcpy(host, text, n);
    host[n] = '\0';
    if (is_number(host))
        return -1;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    int why = getaddrinfo(host, NULL, &hints, &all);
    bool found = why == 0 && print_address(choose_address(all), colon + 1, out);
    if (!found)
        fprintf(stderr,
                "paceline %s: --%s %s: no address is known of host %s: %s; check its name\n",
                command, option, text, host, why ? gai_strerror(why) : "it does not fit");
    if (all)
        freeaddrinfo(all);
    *at = out;
    return found ? -1 : EXIT_BAD_INPUT;
}

int host_address(const char *command, const char *option, const char *text, const char *port,
                 char out[HOST_ADDRESS_MAX], const char **at)
{
    char whole[NAME_MAX_BYTES + 8];
    if (!text || !port || !lacks_port(text))
        return find_host(command, option, text, out, at);
    snprintf(whole, sizeof whole, "%s:%s", text, port);
    int end = find_host(command, option, whole, out, at);
    if (*at == whole) { /* a number already */
        snprintf(out, HOST_ADDRESS_MAX, "%.*s", HOST_ADDRESS_MAX - 1, whole);
        *at = out;
    }
    return end;
}

int host_addresses(const char *command, const char *option, const char *text,
                   char out[HOST_ADDRESSES_MAX], const char **at)
{
    size_t n = 0;
    out[0] = '\0';
    *at = text ? out : NULL;
    for (const char *part = text; part;) {
        char one[HOST_ADDRESSES_MAX], number[HOST_ADDRESS_MAX];
        const char *is;
        size_t len = strcspn(part, ",");
        snprintf(one, sizeof one, "%.*s", (int)len, part);
        int end = host_address(command, option, one, HOST_PORT, number, &is);
        if (end >= 0)
            return end;
        n += (size_t)snprintf(out + n, HOST_ADDRESSES_MAX - n, "%s%s", n > 0 ? "," : "", is);
        if (n >= HOST_ADDRESSES_MAX) {
            fprintf(stderr, "paceline %s: --%s: that is too long\n", command, option);
            return EXIT_BAD_INPUT;
        }
        part = part[len] ? part + len + 1 : NULL;
    }
    return -1;
}

bool host_address_is_any(const char *address)
{
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

bool host_address_is_far(const char *address)
{
    return strncmp(address, "127.", 4) != 0 && strncmp(address, "localhost:", 10) != 0 &&
           strncmp(address, "[::1]:", 6) != 0;
}

void host_address_each(const char *address, void (*report)(const char *address, const char *name))
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char host[INET_ADDRSTRLEN], text[HOST_ADDRESS_MAX];
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
            (i->ifa_flags & IFF_LOOPBACK))
            continue;
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, host,
                  sizeof host);
        snprintf(text, sizeof text, "%s%s", host, strrchr(address, ':'));
        report(text, i->ifa_name);
    }
    freeifaddrs(all);
}

/* The address of the interface by which packets leave for elsewhere, or else of the first one; none
 * is sent. */
bool host_address_own(char out[HOST_ADDRESS_MAX])
{
    struct sockaddr_in elsewhere = {.sin_family = AF_INET, .sin_port = htons(9)}, own;
    socklen_t len = sizeof own;
    inet_pton(AF_INET, "192.0.2.1", &elsewhere.sin_addr); /* no host has this address: RFC 5737 */
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 &&
                 connect(fd, (const struct sockaddr *)&elsewhere, sizeof elsewhere) == 0 &&
                 getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
                 inet_ntop(AF_INET, &own.sin_addr, out, HOST_ADDRESS_MAX);
    if (fd >= 0)
        close(fd);
    struct ifaddrs *all = NULL;
    if (found || getifaddrs(&all) != 0)
        return found;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next)
        found =
            i->ifa_addr && i->ifa_addr->sa_family == AF_INET && i->ifa_flags & IFF_UP &&
            !(i->ifa_flags & IFF_LOOPBACK) &&
            inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr,
                      out, HOST_ADDRESS_MAX);
    freeifaddrs(all);
    return found;
}

/* Is this entry, up to its comma, a name whose address is loopback? */
static bool is_own_name(const char *text, const char *number)
{
    bool named = text[0] != '[' && strncmp(text, "127.", 4) != 0 &&
                 (strncmp(text, "localhost", 9) != 0 || (text[9] && !strchr(":,", text[9])));
    return named && !host_address_is_far(number);
}

const char *host_addresses_beyond(const char *text, const char *numbers, const char *own,
                                  char out[HOST_ADDRESSES_MAX])
{
    size_t n = 0;
    bool beyond = false;
    while (text && numbers && *numbers) {
        int len = (int)strcspn(numbers, ",");
        const char *port = memrchr(numbers, ':', (size_t)len), *comma = n > 0 ? "," : "";
        bool first = port && is_own_name(text, numbers);
        beyond |= first;
        if (first)
            n += (size_t)snprintf(out + n, HOST_ADDRESSES_MAX - n, "%s%s%.*s,%.*s", comma, own,
                                  len - (int)(port - numbers), port, len, numbers);
        else
            n += (size_t)snprintf(out + n, HOST_ADDRESSES_MAX - n, "%s%.*s", comma, len, numbers);
        if (n >= HOST_ADDRESSES_MAX)
            return NULL;
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
        numbers += numbers[len] ? len + 1 : len;
    }
    return beyond ? out : NULL;
}

/* Addresses as a user types them: HOST:PORT, with names. The library takes numbers alone, so that
 * nothing in it asks a name server. */
#ifndef PL_CLI_HOST_ADDRESS_H
#define PL_CLI_HOST_ADDRESS_H

#include <stdbool.h>

enum { HOST_ADDRESS_MAX = 96 };

/* Where a driver listens, and workers look for it, when only a host is said. */
#define HOST_PORT "29500"

/* Write `text` with its host as a number; what has no name in it stays as it is, right or wrong. A
 * host alone gets `port` (NULL: it does not). NULL stays NULL. *at is then `out` or `text`. Returns
 * -1 to continue, or EXIT_BAD_INPUT after a message that names command, option and host. */
int host_address(const char *command, const char *option, const char *text, const char *port,
                 char out[HOST_ADDRESS_MAX], const char **at);

/* The same for several, with commas between; HOST_PORT where none is said. */
enum { HOST_ADDRESSES_MAX = 1024 };
int host_addresses(const char *command, const char *option, const char *text,
                   char out[HOST_ADDRESSES_MAX], const char **at);

/* This machine's address for others, as a number; false: it has none. */
bool host_address_own(char out[HOST_ADDRESS_MAX]);

/* Addresses to join by, as typed and as `numbers`, where a name in them is this machine's own and
 * leads to loopback (127.0.1.1 in Debian's /etc/hosts): then `own`, this machine's address for
 * others, comes before that one in `out`, so that a worker listens where other machines reach it.
 * NULL: there is no such name, or that is too long. */
const char *host_addresses_beyond(const char *text, const char *numbers, const char *own,
                                  char out[HOST_ADDRESSES_MAX]);

/* "10.0.0.1:29500" or "[::]:29500": can other hosts reach it; is it every address of this host? */
bool host_address_is_far(const char *address);
bool host_address_is_any(const char *address);

/* For an address that is every one of this host: call `tell` with each that others can reach, and
 * the port of `address`. */
void host_address_each(const char *address, void (*report)(const char *address, const char *name));

#endif

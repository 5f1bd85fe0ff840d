/* Addresses that a user types: HOST:PORT, with host names. The library takes numeric addresses
 * alone, so that it never queries a name server. */
#ifndef PL_CLI_HOST_ADDRESS_H
#define PL_CLI_HOST_ADDRESS_H

#include <stdbool.h>

enum { HOST_ADDRESS_MAX = 96 };

/* The port of a driver, if only a host is given. */
#define HOST_PORT "29500"

/* Write `text` with its host as a number; a text without a name is copied, valid or not. A host
 * alone gets `port` (NULL: none is added). NULL stays NULL. *at is then `out` or `text`. Returns -1
 * to continue, or EXIT_BAD_INPUT after a message that names command, option and host. */
int host_address(const char *command, const char *option, const char *text, const char *port,
                 char out[HOST_ADDRESS_MAX], const char **at);

/* The same for several, with commas between; HOST_PORT if an entry has no port. */
enum { HOST_ADDRESSES_MAX = 1024 };
int host_addresses(const char *command, const char *option, const char *text,
                   char out[HOST_ADDRESSES_MAX], const char **at);

/* This machine's address for others, as a number; false: it has none. */
bool host_address_own(char out[HOST_ADDRESS_MAX]);

/* Join addresses, as typed and as `numbers`. If a name in them is this machine's own and resolves
 * to loopback (127.0.1.1 in Debian's /etc/hosts), `own`, this machine's address for others,
 * precedes that one in `out`, so that a worker listens at an address that other machines reach.
 * NULL: there is no such name, or the result is too long. */
const char *host_addresses_beyond(const char *text, const char *numbers, const char *own,
                                  char out[HOST_ADDRESSES_MAX]);

/* "10.0.0.1:29500" or "[::]:29500": can other hosts reach it; is it every address of this host? */
bool host_address_is_far(const char *address);
bool host_address_is_any(const char *address);

/* For an address that stands for all of this host: call `report` with each address that others can
 * reach, and the port of `address`. */
void host_address_each(const char *address, void (*report)(const char *address, const char *name));

#endif

/* Where a driver listens for workers that are started by hand, and their key. */
#ifndef PL_CLI_DRIVER_ADDRESS_H
#define PL_CLI_DRIVER_ADDRESS_H

#include "cli/cli.h"
#include "cli/host_address.h"
#include "cli/key_option.h"

struct driver_address {
    char listen_text[HOST_ADDRESS_MAX];
    const char *listen; /* with its host as a number; NULL: none was given */
    const char *key;    /* NULL: none */
};

/* Read --listen and --key, each of which may be NULL. Beyond loopback there is a key only if its
 * file was named: the user's own is not on the other hosts. `key_file` is borrowed until the
 * command ends. -1 to continue, or EXIT_BAD_INPUT after a message. */
int driver_address_read(const struct command *command, const char *listen, const char *key_file,
                        struct driver_address *out);

/* pl_run_options.listens: print the command that starts a worker, one line to copy. */
void driver_address_print(void *user, const char *address);

#endif

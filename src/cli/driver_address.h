/* Where a driver listens for workers that are started by hand, and their token. */
#ifndef PL_CLI_DRIVER_ADDRESS_H
#define PL_CLI_DRIVER_ADDRESS_H

#include "cli/cli.h"
#include "cli/host_address.h"
#include "cli/token.h"

struct driver_address {
    char listen_text[HOST_ADDRESS_MAX], token_text[TOKEN_TEXT_MAX];
    const char *listen; /* with its host as a number; NULL: none was given */
    const char *token;  /* NULL: none is required */
};

/* Read --listen and --token-file, each of which may be NULL. Beyond loopback there is a token only
 * if it was named: the user's own is not on the other hosts. `token_file` is borrowed until the
 * command ends. -1 to continue, or EXIT_BAD_INPUT after a message. */
int driver_address_read(const struct command *command, const char *listen, const char *token_file,
                        struct driver_address *out);

/* pl_run_options.listens: print the command that starts a worker, one line to copy. */
void driver_address_print(void *user, const char *address);

#endif

/* The key of a run, for commands. Workers that `paceline train` starts are given one of their own
 * run through a pipe. Where others start the workers, both sides read it from a file: the one that
 * --key names, or, on loopback, the user's own (pl_key_own). */
#ifndef PL_CLI_KEY_OPTION_H
#define PL_CLI_KEY_OPTION_H

#include "paceline/key.h"

#define KEY_OPTION_HELP "file with the run's key, of `paceline keygen` (on loopback the user's own)"
#define INSECURE_HELP   "do not encrypt what is sent, if the other side does not either"

/* A new one, in *key. Like the others, returns -1 to continue, or an exit code after a message.
 * Keys lie in memory for secrets (cli/secret_heap.h) until the command ends. */
int key_option_draw(const char *command, const char **key);

/* The key of `file`. */
int key_option_read(const char *command, const char *file, const char **key);

/* The user's own. *key is NULL if there is no folder for the file: every user of this machine can
 * join then, which a message says. */
int key_option_own(const char *command, const char **key);

/* Its id; "" where there is none. */
void key_option_id(const char *key, char out[PL_KEY_ID_SIZE]);

#endif

/* The token of a run: every connecting worker must show it. Workers that `paceline train` starts
 * are given one of their own run through a pipe. Where others start the workers, both sides read it
 * from a file: the one that --token-file names, or, on loopback, the user's own, which is made when
 * it is first needed and which other users cannot read. */
#ifndef PL_CLI_TOKEN_H
#define PL_CLI_TOKEN_H

#include <stdbool.h>

enum { TOKEN_TEXT_MAX = 65 };

/* A new one, of 32 random characters. Returns -1 to continue, or EXIT_FAILED after a message. */
int token_draw(const char *command, char out[TOKEN_TEXT_MAX]);

/* The token of `file`; `makes`: a file that is not there is made, with a new one, for this user
 * alone. Returns -1 to continue, or EXIT_BAD_INPUT after a message: the file cannot be read or
 * made, others can read it, or it holds no token. */
int token_read(const char *command, const char *file, bool makes, char out[TOKEN_TEXT_MAX]);

/* The user's own, as token_read. *token is `out`, or NULL if there is no folder for the file; no
 * token is then required. */
int token_own(const char *command, char out[TOKEN_TEXT_MAX], const char **token);

#endif

/* The key of a run: a secret that the driver and its workers have, and nobody else. Each side of a
 * connection proves to the other that it has the key, and what they send is encrypted by TLS 1.3
 * (docs/PROTOCOL.md, Connections). The key itself never travels.
 *
 * A key is a text of 32 to 64 characters, which should come from pl_key_draw or pl_key_make: a key
 * that can be guessed protects nothing. Keep it out of arguments and environments, which other
 * users can read: give it in the options of a run, by a file, or through a pipe. The functions may
 * be called from any thread, each with an engine of its own. */
#ifndef PACELINE_KEY_H
#define PACELINE_KEY_H

#include "paceline/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_KEY_TEXT_SIZE 65
#define PL_KEY_ID_SIZE   17

/* A new key, of 256 random bits in hexadecimal digits. PL_ERR_IO */
int pl_key_draw(pl_engine *engine, char out[PL_KEY_TEXT_SIZE]);

/* Make a file with a new key, readable by its owner alone (mode 0600). PL_ERR_INPUT: the file
 * exists, or its folder does not; PL_ERR_IO */
int pl_key_make(pl_engine *engine, const char *file);

/* Read the key of a file, or of a pipe that this process has inherited ("/proc/self/fd/3").
 * PL_ERR_INPUT: the file is not there, other users can read it, it is another user's, or it has no
 * key */
int pl_key_read(pl_engine *engine, const char *file, char out[PL_KEY_TEXT_SIZE]);

/* The user's own key, of the file paceline/key below XDG_CONFIG_HOME or ~/.config, which is made
 * when it is first needed. Runs, workers and teams at loopback use it if they are given no key.
 * PL_ERR_UNSUPPORTED: neither variable names a folder; others as of pl_key_read */
int pl_key_own(pl_engine *engine, char out[PL_KEY_TEXT_SIZE]);

/* The id of a key, 16 hexadecimal digits: by it people and logs tell keys apart. It is sent in
 * plain, and tells nothing of the key. PL_ERR_INPUT: that is no key; PL_ERR_NOMEM */
int pl_key_id(pl_engine *engine, const char *key, char out[PL_KEY_ID_SIZE]);

#ifdef __cplusplus
}
#endif

#endif

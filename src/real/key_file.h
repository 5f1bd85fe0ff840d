/* Files with the key of a run: one line, readable by their owner alone. */
#ifndef PL_REAL_KEY_FILE_H
#define PL_REAL_KEY_FILE_H

#include "real/real.h"

enum { KEY_TEXT_SIZE = RUN_KEY_TEXT_MAX + 1 };

/* A new key: 256 random bits in hexadecimal digits. ERR_IO */
int key_draw(char out[KEY_TEXT_SIZE], struct err *err);

/* Make `file`, mode 0600, with a new key. Another process sees all of it, or none. ERR_INPUT: it
 * exists, or its folder does not; ERR_IO */
int key_file_make(const char *file, struct err *err);

/* Read the key of a file, or of a pipe that this process has inherited ("/proc/self/fd/3").
 * ERR_INPUT: it is not there, belongs to another user, has a mode by which others can read it, or
 * has no key */
int key_file_read(const char *file, char out[KEY_TEXT_SIZE], struct err *err);

/* The user's own, ~/.config/paceline/key, which is made when it is first needed: what processes of
 * one user have, and those of other users have not. ERR_UNSUPPORTED: neither XDG_CONFIG_HOME nor
 * HOME names a folder that can be written; others as above */
int key_file_own(char out[KEY_TEXT_SIZE], struct err *err);

#endif

/* The file of an LMDB, read and never trusted. It is a B+ tree of pages,
 *
 *   page 0, 1   which tree is the newest: the one with the higher transaction number counts
 *   branch      keys, and the pages below them
 *   leaf        keys and values
 *   overflow    a value too long for a leaf, over pages in a row
 *
 * each with a head of 16 bytes; numbers are those of the machine that wrote it, and 64-bit
 * little-endian is what we read. LMDB's own library maps the file and believes its numbers, so a
 * damaged one ends the process; here every number is checked, nothing is locked or written, and the
 * folder may be read-only. A program that writes to the database at the same time breaks the
 * reading. */
#ifndef PL_DATA_LMDB_FILE_H
#define PL_DATA_LMDB_FILE_H

#include "base/err.h"
#include "data/part.h"

struct lmdb_callback {
    /* An entry, in the order of keys; anything but OK ends the walk. The key is valid until it
     * returns, the value as long as the file. */
    int (*entry)(void *user, const uint8_t *key, size_t key_len, const struct part_of *value);
    void *user;
    const struct open_watch *watch; /* receives the progress in "records"; may be NULL */
};

/* Walk through all entries of the one unnamed database. Costs every branch and leaf page, and the
 * head of each overflow page; memory: a page for each level of the tree. ERR_INPUT naming the page,
 * ERR_NOMEM, ERR_CANCELLED, or what the worker returned */
int lmdb_walk(const struct file_open *file, const char *name, const struct lmdb_callback *callback,
              struct err *err);

#endif

/* The file of a ZIP archive, read and never trusted. It is a row of members, behind them a
 * directory with an entry for each, and behind that its end, which says where the directory is:
 *
 *   member     30 bytes, name, extra fields, then the bytes of its body, packed or not
 *   entry      46 bytes, name, extra fields, comment: method, sizes, CRC, where the member begins
 *   end        22 bytes, and a comment; in front of it, where 32 bits are too few, those of ZIP64
 *
 * Bodies that are stored or deflated can be read; encrypted ones and archives in several files are
 * refused. */
#ifndef PL_DATA_ZIP_FILE_H
#define PL_DATA_ZIP_FILE_H

#include "base/err.h"
#include "base/file.h"
#include "base/open_watch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zip_member {
    uint64_t body;   /* where its bytes begin in the file, */
    uint64_t packed; /* and how many there are: all of them lie within the file */
    uint64_t size;   /* so many when they are unpacked; the same if they are stored */
    uint32_t crc;
    bool deflated;
};

/* The last member of that name. `path` is for messages.
 * ERR_INPUT        not a ZIP archive, truncated, damaged, encrypted; no such member, and the
 *                  message has the names of those that there are
 * ERR_UNSUPPORTED  another method of compression; ERR_NOMEM */
int zip_find(const struct file_open *file, const char *path, const char *name,
             struct zip_member *out, struct err *err);

/* Unpack the first `n` bytes (1 to member->size) of a deflated member. Where these are all of them,
 * the CRC is checked, and that nothing follows. The watch (may be NULL) has stage "bytes".
 * ERR_INPUT: damaged, or another size than the directory says; ERR_IO; ERR_NOMEM; ERR_CANCELLED */
int zip_inflate(const struct file_open *file, const char *path, const struct zip_member *member,
                const struct open_watch *watch, uint8_t *out, size_t n, struct err *err);

#endif

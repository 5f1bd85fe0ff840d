#include "data/npy_array.h"

#include "base/bytes.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/minmax.h"
#include "data/zip_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read as they lie");

enum {
    PREFIX = 8,           /* the magic and the version */
    HEADER_MAX = 1 << 16, /* bytes of the text behind it; NumPy writes about 100 */
};

static const char magic[] = "\x93NUMPY", archive_end[] = ".npz:";

/* Bytes of an array that is unpacked into memory, as many as an IDX file may have. */
static const uint64_t UNPACKED_MAX = (uint64_t)1 << 32;

int npy_part(const struct npy *npy, uint64_t offset, void *out, size_t n)
{
    if (!npy->unpacked)
        return file_part(&npy->file, npy->start + offset, out, n);
    PL_ASSERT(offset <= npy->len && n <= npy->len - offset);
    memcpy(out, npy->unpacked + offset, n);
    return OK;
}

/* ---- a header: {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), } ---- */

/* Behind `key`'s colon and blanks; NULL: there is no such key. */
static const char *find_value(const char *text, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(text, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

/* '<f4', '|u1'; a byte has no order. */
static int parse_type(struct npy *npy, const char *text, struct err *err)
{
    const char *type = find_value(text, "descr");
    char order = 0, kind = 0;
    unsigned bytes = 0;
    if (!type || sscanf(type, "'%c%c%u'", &order, &kind, &bytes) != 3)
        return err_set(err, ERR_INPUT,
                       "%s: its values have several fields, or no type that can be read; save one "
                       "array of numbers",
                       npy->path);
    bool known = strchr("uifb", kind) && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
    if (!known || (bytes > 1 && order != '<' && order != '='))
        return err_set(err, ERR_INPUT,
                       "%s: values of type '%c%c%u' cannot be read; save them as uint8, int64 or "
                       "float32 in this machine's byte order",
                       npy->path, order, kind, bytes);
    npy->kind = kind;
    npy->bytes = bytes;
    return OK;
}

static int parse_shape(struct npy *npy, const char *text, struct err *err)
{
    const char *at = find_value(text, "shape");
    bool whole = at && *at == '(';
    for (at = whole ? at + 1 : at; whole && *at != ')';) {
        char *end;
        at += strspn(at, " ");
        unsigned long long dim = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : 0;
        if (dim == 0 || npy->dims == SHAPE_DIMS_MAX) {
            whole = false;
            break;
        }
        npy->dim[npy->dims++] = (size_t)dim;
        at = end + strspn(end, " ");
        whole = *at == ',' || *at == ')';
        at += *at == ',';
        at += strspn(at, " ");
    }
    return whole && npy->dims > 0
               ? OK
               : err_set(err, ERR_INPUT,
                         "%s: its shape has 1 to %d dimensions, each of 1 or more, and this one "
                         "has not",
                         npy->path, SHAPE_DIMS_MAX);
}

static int parse_text(struct npy *npy, const char *text, struct err *err)
{
    const char *fortran = find_value(text, "fortran_order");
    int rc = parse_type(npy, text, err);
    if (rc == OK && (!fortran || strncmp(fortran, "False", 5) != 0))
        rc = err_set(err, ERR_INPUT,
                     "%s: it is stored column by column (fortran_order); save "
                     "numpy.ascontiguousarray of it",
                     npy->path);
    return rc == OK ? parse_shape(npy, text, err) : rc;
}

/* The length of the text has two bytes in version 1, four in 2 and 3. */
static int read_header(struct npy *npy, struct err *err)
{
    uint8_t prefix[PREFIX + 4];
    uint64_t len = npy->len;
    if (len < sizeof prefix || npy_part(npy, 0, prefix, sizeof prefix) != OK ||
        memcmp(prefix, magic, sizeof magic - 1) != 0)
        return err_set(err, ERR_INPUT, "%s: not a .npy file of NumPy's", npy->path);
    uint8_t version = prefix[6];
    if (version < 1 || version > 3)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: version %u of the .npy format; 1 to 3 can be read", npy->path, version);
    size_t lengths = version == 1 ? 2 : 4;
    size_t n = bytes_le32(prefix + PREFIX) & (version == 1 ? 0xffff : UINT32_MAX);
    npy->begin = PREFIX + lengths + n;
    if (n == 0 || n > HEADER_MAX || npy->begin > len)
        return err_set(err, ERR_INPUT, "%s: truncated, or its header of %zu bytes is too long",
                       npy->path, n);
    char *text = malloc(n + 1);
    if (!text)
        return err_set(err, ERR_NOMEM, "%s: out of memory", npy->path);
    int rc = npy_part(npy, PREFIX + lengths, text, n);
    text[n] = '\0';
    if (rc == OK)
        rc = parse_text(npy, text, err);
    else
        err_set(err, rc, "%s: cannot be read", npy->path);
    npy->hash = hash_bytes(text, n);
    free(text);
    return rc;
}

/* The values fill the rest of the file. */
static int check_length(const struct npy *npy, struct err *err)
{
    uint64_t all = npy->bytes, left = npy->len - npy->begin;
    for (size_t i = 0; i < npy->dims; i++)
        if (__builtin_mul_overflow(all, npy->dim[i], &all))
            all = UINT64_MAX;
    if (all == left)
        return OK;
    return err_set(err, ERR_INPUT,
                   "%s: %s: its header promises %llu bytes of values, and it has %llu", npy->path,
                   all > left ? "truncated" : "longer than it should be", (unsigned long long)all,
                   (unsigned long long)left);
}

/* ---- where the array is: a file, or a member of an archive ---- */

/* The name in FILE.npz:NAME; "": an archive without one; NULL: a file of one array. */
static const char *array_name(const char *path)
{
    const char *name = NULL, *at = path;
    size_t n = strlen(path), end = sizeof archive_end - 2;
    while ((at = strstr(at, archive_end)))
        name = at += sizeof archive_end - 1;
    return !name && n >= end && strncmp(path + n - end, archive_end, end) == 0 ? path + n : name;
}

static int open_file(const struct source_config *config, struct npy *npy, const char *name,
                     struct err *err)
{
    size_t n = name ? (size_t)(name - npy->path) : strlen(npy->path);
    char *path = strndup(npy->path, name && name[-1] == ':' ? n - 1 : n);
    if (!path)
        return err_set(err, ERR_NOMEM, "%s: out of memory", npy->path);
    int rc = file_check_under(config->root, path, err);
    if (rc == OK)
        rc = file_open(path, &npy->file, err);
    npy->open = rc == OK;
    npy->len = npy->open ? npy->file.len : 0;
    free(path);
    return rc;
}

static int unpack_member(struct npy *npy, const struct zip_member *member,
                         const struct open_watch *watch, size_t n, struct err *err)
{
    free(npy->unpacked);
    npy->unpacked = malloc(n);
    if (!npy->unpacked)
        return err_set(err, ERR_NOMEM, "%s: out of memory for its %zu bytes", npy->path, n);
    return zip_inflate(&npy->file, npy->path, member, watch, npy->unpacked, n, err);
}

/* A compressed array is unpacked as far as its header may reach, and as a whole where that promises
 * as many bytes as the archive. */
static int open_member(const struct source_config *config, struct npy *npy, const char *name,
                       struct err *err)
{
    struct zip_member member;
    char file[256];
    size_t n = strlen(name), suffix = n > 4 && strcmp(name + n - 4, ".npy") == 0 ? 0 : 4;
    snprintf(file, sizeof file, "%s%s", name, suffix ? ".npy" : "");
    int rc = n + suffix < sizeof file
                 ? zip_find(&npy->file, npy->path, n > 0 ? file : "", &member, err)
                 : err_set(err, ERR_INPUT, "%s: a name of %zu bytes", npy->path, n);
    if (rc != OK)
        return rc;
    npy->start = member.body;
    npy->len = member.size;
    if (!member.deflated || member.size == 0)
        return OK;
    if (member.size > UNPACKED_MAX)
        return err_set(err, ERR_INPUT,
                       "%s: %llu bytes when unpacked; at most %llu are; numpy.savez writes arrays "
                       "that are not compressed and of any size",
                       npy->path, (unsigned long long)member.size,
                       (unsigned long long)UNPACKED_MAX);
    rc = unpack_member(npy, &member, NULL, min_size((size_t)member.size, PREFIX + 4 + HEADER_MAX),
                       err);
    if (rc == OK)
        rc = read_header(npy, err);
    if (rc == OK)
        rc = check_length(npy, err);
    return rc == OK ? unpack_member(npy, &member, config->watch, (size_t)member.size, err) : rc;
}

int npy_open(const struct source_config *config, const char *path, struct npy *npy, struct err *err)
{
    *npy = (struct npy){.path = path};
    const char *name = array_name(path);
    int rc = open_file(config, npy, name, err);
    if (rc == OK && name)
        rc = open_member(config, npy, name, err);
    if (rc == OK && !npy->unpacked)
        rc = read_header(npy, err);
    return rc == OK && !npy->unpacked ? check_length(npy, err) : rc;
}

void npy_close(struct npy *npy)
{
    if (npy->open)
        file_close(&npy->file);
    free(npy->unpacked);
    npy->unpacked = NULL;
    npy->open = false;
}

#include "data/lmdb_file.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    PAGE_HEAD = 16, /* u64 number · u16 · u16 flags · u16 lower, u16 upper, or u32 pages */
    META_BYTES = 136,
    NODE_HEAD = 8, /* u16 low, u16 high of size or page · u16 flags · u16 length of key */
    MAGIC = 0xBEEFC0DE,
    VERSION = 1,
    PAGE_MIN = 256,
    PAGE_MAX = 65536,
    DEPTH_MAX = 16,
};

enum page_flag { P_BRANCH = 1, P_LEAF = 2, P_OVERFLOW = 4, P_META = 8, P_LEAF2 = 0x20 };
enum node_flag { N_OVERFLOW = 1, N_DATABASE = 2, N_DUPLICATES = 4 };
enum { DUPLICATES = 0x74 }; /* flags of a database: some key may have several values */

static const uint64_t NO_PAGE = UINT64_MAX;

/* Of one of the two first pages. */
struct meta {
    uint64_t page_size, flags, depth, pages, entries, root, transaction;
};

struct walk {
    const struct file_open *file;
    const char *name;
    const struct lmdb_callback *callback;
    struct meta meta;
    uint8_t *page; /* one for each level */
    uint64_t pages, entries;
    struct err *err;
};

static uint16_t read_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static int bad_page(const struct walk *w, uint64_t number, const char *why)
{
    return err_set(w->err, ERR_INPUT, "%s: page %" PRIu64 ": %s", w->name, number, why);
}

/* `n` bytes from the beginning of a page on. */
static int read_page(const struct walk *w, uint64_t number, uint8_t *to, size_t n)
{
    uint64_t size = w->meta.page_size;
    if (number >= w->file->len / size)
        return err_set(w->err, ERR_INPUT, "%s: truncated: page %" PRIu64 " of a file of %" PRIu64,
                       w->name, number, w->file->len / size);
    if (file_part(w->file, number * size, to, n) != OK)
        return bad_page(w, number, "cannot be read");
    return bytes_le64(to) == number ? OK : bad_page(w, number, "does not bear its own number");
}

/* ---- the first pages ----
 *
 *   magic · version · u64 · u64 · database of free pages · main database · u64 last page
 *   · u64 transaction,  where a database is
 *   u32 page size · u16 flags · u16 depth · u64 branch pages, leaf pages, overflow pages, entries,
 *   root */
static int read_meta(const struct walk *w, uint64_t offset, struct meta *out)
{
    uint8_t page[PAGE_HEAD + META_BYTES];
    if (w->file->len < sizeof page || offset > w->file->len - sizeof page ||
        file_part(w->file, offset, page, sizeof page) != OK)
        return err_set(w->err, ERR_INPUT, "%s: %" PRIu64 " bytes, too short for an LMDB", w->name,
                       w->file->len);
    const uint8_t *meta = page + PAGE_HEAD, *free_pages = meta + 24, *tree = free_pages + 48;
    if (bytes_le32(meta) != MAGIC || !(read_u16(page + 10) & P_META))
        return err_set(w->err, ERR_INPUT,
                       "%s: not an LMDB of a 64-bit little-endian machine (no magic at byte "
                       "%" PRIu64 "); give the folder, or the data.mdb, of one",
                       w->name, offset + PAGE_HEAD);
    if (bytes_le32(meta + 4) != VERSION)
        return err_set(w->err, ERR_INPUT, "%s: LMDB of format %" PRIu32 ", expected %d", w->name,
                       bytes_le32(meta + 4), VERSION);
    *out = (struct meta){
        .page_size = bytes_le32(free_pages),
        .flags = read_u16(tree + 4),
        .depth = read_u16(tree + 6),
        .pages = bytes_le64(tree + 8) + bytes_le64(tree + 16),
        .entries = bytes_le64(tree + 32),
        .root = bytes_le64(tree + 40),
        .transaction = bytes_le64(meta + 128),
    };
    uint64_t size = out->page_size;
    if (size < PAGE_MIN || size > PAGE_MAX || (size & (size - 1)) != 0)
        return err_set(w->err, ERR_INPUT, "%s: pages of %" PRIu64 " bytes", w->name, size);
    return OK;
}

static int choose_meta(struct walk *w)
{
    struct meta first, second;
    int rc = read_meta(w, 0, &first);
    if (rc == OK)
        rc = read_meta(w, first.page_size, &second);
    if (rc != OK)
        return rc;
    w->meta = second.transaction > first.transaction ? second : first;
    if (first.page_size != second.page_size)
        return err_set(w->err, ERR_INPUT, "%s: its first pages do not agree", w->name);
    if (w->meta.flags & DUPLICATES)
        return err_set(w->err, ERR_INPUT, "%s: keys may have several values; expected one each",
                       w->name);
    if (w->meta.entries == 0 || w->meta.root == NO_PAGE)
        return err_set(w->err, ERR_INPUT, "%s: holds no records", w->name);
    if (w->meta.depth == 0 || w->meta.depth > DEPTH_MAX)
        return err_set(w->err, ERR_INPUT, "%s: a tree of %" PRIu64 " levels, expected 1 to %d",
                       w->name, w->meta.depth, DEPTH_MAX);
    return OK;
}

/* ---- the tree ---- */

/* Where a leaf's value lies. */
static int find_value(const struct walk *w, uint64_t number, const uint8_t *node, uint64_t room,
                      uint64_t at, struct part_of *out)
{
    uint64_t size = w->meta.page_size;
    uint64_t len = read_u16(node) | (uint64_t)read_u16(node + 2) << 16;
    size_t key = read_u16(node + 6);
    if (read_u16(node + 4) & (N_DATABASE | N_DUPLICATES))
        return bad_page(w, number, "holds a database within; expected records alone");
    if (!(read_u16(node + 4) & N_OVERFLOW)) {
        if (len > room)
            return bad_page(w, number, "a value goes beyond it");
        *out = (struct part_of){w->file, at, len, NULL};
        return OK;
    }
    if (room < 8)
        return bad_page(w, number, "a value goes beyond it");
    uint8_t head[PAGE_HEAD];
    uint64_t first = bytes_le64(node + NODE_HEAD + key);
    int rc = read_page(w, first, head, sizeof head);
    if (rc != OK)
        return rc;
    uint64_t pages = bytes_le32(head + 12);
    if (!(read_u16(head + 10) & P_OVERFLOW) || len > pages * size - PAGE_HEAD || pages == 0)
        return bad_page(w, first, "does not hold the value that should be here");
    if (pages > w->file->len / size - first)
        return bad_page(w, first, "truncated: its value goes beyond the end of the file");
    *out = (struct part_of){w->file, first * size + PAGE_HEAD, len, NULL};
    return OK;
}

static int visit_leaf_node(struct walk *w, uint64_t number, const uint8_t *page, size_t at)
{
    const uint8_t *node = page + at;
    size_t key_len = read_u16(node + 6), value_at = at + NODE_HEAD + key_len;
    struct part_of value;
    if (++w->entries > w->meta.entries)
        return bad_page(w, number, "more records than the database says it has");
    int rc = find_value(w, number, node, w->meta.page_size - value_at,
                        number * w->meta.page_size + value_at, &value);
    if (rc == OK)
        rc = w->callback->entry(w->callback->user, node + NODE_HEAD, key_len, &value);
    return rc == OK ? open_watch_report(w->callback->watch, "records", w->entries, w->meta.entries,
                                        w->err)
                    : rc;
}

static int walk_page(struct walk *w, uint64_t number, uint64_t level)
{
    size_t size = (size_t)w->meta.page_size;
    uint8_t *page = w->page + (level - 1) * size;
    if (level > w->meta.depth || ++w->pages > w->meta.pages || w->pages > w->file->len / size)
        return bad_page(w, number, "the tree has more pages than the database says");
    int rc = read_page(w, number, page, size);
    if (rc != OK)
        return rc;
    unsigned flags = read_u16(page + 10);
    bool leaf = flags & P_LEAF;
    if (leaf == (bool)(flags & P_BRANCH) || flags & (P_OVERFLOW | P_META | P_LEAF2))
        return bad_page(w, number, "is no page of the tree");
    size_t lower = read_u16(page + 12);
    if (lower < PAGE_HEAD || lower > size || lower % 2 != 0)
        return bad_page(w, number, "its list of entries goes beyond it");
    for (size_t i = PAGE_HEAD; rc == OK && i < lower; i += 2) {
        size_t at = read_u16(page + i);
        if (at < lower || at > size - NODE_HEAD || read_u16(page + at + 6) > size - NODE_HEAD - at)
            return bad_page(w, number, "an entry goes beyond it");
        uint64_t below = read_u16(page + at) | (uint64_t)read_u16(page + at + 2) << 16 |
                         (uint64_t)read_u16(page + at + 4) << 32;
        rc = leaf ? visit_leaf_node(w, number, page, at) : walk_page(w, below, level + 1);
    }
    return rc;
}

int lmdb_walk(const struct file_open *file, const char *name, const struct lmdb_callback *callback,
              struct err *err)
{
    struct walk w = {.file = file, .name = name, .callback = callback, .err = err};
    int rc = choose_meta(&w);
    if (rc != OK)
        return rc;
    w.page = malloc((size_t)(w.meta.depth * w.meta.page_size));
    if (!w.page)
        return err_set(err, ERR_NOMEM, "%s: out of memory", name);
    rc = walk_page(&w, w.meta.root, 1);
    free(w.page);
    if (rc == OK && w.entries != w.meta.entries)
        rc = err_set(err, ERR_INPUT, "%s: holds %" PRIu64 " records and says %" PRIu64, name,
                     w.entries, w.meta.entries);
    return rc;
}

/* A checkpoint: its header, and all of it into a small model, with the books of samples. Then once
 * more with right checksums, if the bytes are a file of tensors at all: else these alone would be
 * tried.
 *
 *   the file */
#include "support/fuzz.h"

#include "data/lease.h"
#include "model/safetensors.h"
#include "model/safetensors_format.h"
#include "tensor/segment.h"
#include "train/checkpoint.h"
#include "train/checkpoint_ranges.h"
#include "train/holdings.h"

#include <string.h>

#define NAME "in.safetensors"

enum { ROOM = 256, STREAMS = 2, ROW = 3, GRAIN = 8 };

static const char *const extra_name[] = {"own"};
static const struct optim_ops optim = {
    .type = "Two", .states = 2, .state_name = {"first", "second"}};

static struct model_layout make_layout(void)
{
    static struct arena arena;
    static struct segments x, s;
    const struct shape weights = {2, {2, 3}}, bias = {1, {2}}, mean = {1, {3}};
    if (x.count == 0)
        PL_ASSERT(segments_add(&x, &arena, "ip.0", &weights, 1, 1) &&
                  segments_add(&x, &arena, "ip.1", &bias, 1, 1) &&
                  segments_add(&s, &arena, "norm.0", &mean, 0, 0));
    return (struct model_layout){.x = &x,
                                 .s = &s,
                                 .optim = &optim,
                                 .extra_name = extra_name,
                                 .extras = 1,
                                 .streams = STREAMS,
                                 .row = ROW};
}

static void read_books(const struct book_texts *books)
{
    static struct lease_table leases;
    struct holdings holdings = {0};
    if (books->leases && lease_read(&leases, books->leases, GRAIN))
        PL_ASSERT(lease_adds_up(&leases));
    if (books->holdings) {
        int rc = holdings_read(&holdings, books->holdings);
        PL_ASSERT(rc == OK || rc == ERR_INPUT || rc == ERR_NOMEM);
        holdings_release(&holdings);
    }
}

static void load_both_ways(void)
{
    float model[ROOM];
    struct model_layout layout = make_layout();
    struct checkpoint_header header = {0};
    struct checkpoint_ranges *ranges = NULL;
    struct err err = {0};
    PL_ASSERT(model_floats_most(&layout) <= ROOM);
    fuzz_judge(checkpoint_read_header(NAME, &header, &err), &err, NAME);
    int rc = checkpoint_load_model(NAME, &layout, model, &header, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc == OK)
        read_books(&header.books);
    book_texts_release(&header.books);
    rc = checkpoint_open_model(NAME, &layout, &ranges, &header, &err);
    fuzz_judge(rc, &err, NAME);
    checkpoint_close(ranges);
    book_texts_release(&header.books);
}

/* The same texts and tensors, with checksums. */
static bool write_again(const struct safetensors *st, struct buf *out)
{
    struct safetensors_writer w;
    struct err err = {0};
    safetensors_begin(&w);
    for (size_t i = 0; i < st->meta_n; i++)
        if (strcmp(st->meta[i].key, SAFETENSORS_CHECK) != 0 &&
            strncmp(st->meta[i].key, SAFETENSORS_XXH3, strlen(SAFETENSORS_XXH3)) != 0)
            safetensors_meta(&w, st->meta[i].key, st->meta[i].value);
    for (size_t i = 0; i < st->n; i++)
        safetensors_tensor(&w, st->item[i].name, &st->item[i].shape, st->item[i].data);
    bool written = safetensors_image(&w, out, &err) == OK;
    safetensors_end(&w);
    return written;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct safetensors st;
    struct buf mended = {0};
    struct err err = {0};
    fuzz_files_clear();
    fuzz_file(NAME, bytes, n);
    load_both_ways();
    if (safetensors_parse(NAME, bytes, n, false, &st, &err) != OK)
        return 0;
    if (write_again(&st, &mended)) {
        fuzz_files_clear();
        fuzz_file(NAME, mended.data, mended.len);
        load_both_ways();
    }
    buf_release(&mended);
    safetensors_release(&st);
    return 0;
}

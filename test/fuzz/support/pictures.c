#include "fuzz.h"

#include "base/hash.h"
#include "data/picture.h"
#include "data/source.h"

#include <stdlib.h>
#include <string.h>

/* Larger ones are decoded by the same loops, only longer. */
enum { DECODED_PIXELS_MAX = 1 << 18, RECORDS_MAX = 64 };

static void sum_pixels(const struct raw *raw)
{
    size_t n = raw->C * raw->H * raw->W;
    float *x = malloc(n * sizeof *x);
    PL_ASSERT(x || n == 0);
    raw_floats(raw, x);
    free(x);
}

/* Of a picture that a part is wanted of: is it as good as the whole, and the part the same? */
static void check_part(const uint8_t *bytes, size_t n, Paceline__Data__Color color, int whole,
                       const struct raw *all)
{
    struct scratch scratch = {0};
    struct raw raw;
    struct err err = {0};
    uint64_t draw = hash_bytes(bytes, n);
    struct raw_want want = {.H = all->H, .W = all->W};
    want.top = draw % all->H;
    want.bottom = want.top + (draw >> 16) % (all->H - want.top) + 1;
    want.left = (draw >> 24) % all->W;
    want.right = want.left + (draw >> 40) % (all->W - want.left) + 1;
    scratch.want = &want;
    PL_ASSERT(picture_decode(bytes, n, color, &scratch, &raw, &err) == whole);
    size_t row = (want.right - want.left) * all->C;
    for (size_t y = want.top; whole == OK && y < want.bottom; y++) {
        size_t at = (y * all->W + want.left) * all->C;
        PL_ASSERT(memcmp((const uint8_t *)raw.at + at, (const uint8_t *)all->at + at, row) == 0);
    }
    want.shrink = 1 + (unsigned)(draw >> 60) % SHRINK_MAX;
    want.top = want.bottom = want.left = want.right = 0;
    PL_ASSERT(picture_decode(bytes, n, color, &scratch, &raw, &err) == whole);
    scratch_release(&scratch);
}

void fuzz_picture(const uint8_t *bytes, size_t n)
{
    static const Paceline__Data__Color colors[] = {
        PACELINE__DATA__COLOR__rgb, PACELINE__DATA__COLOR__bgr, PACELINE__DATA__COLOR__gray};
    struct file_open file;
    struct picture size;
    struct err err = {0};
    fuzz_files_clear();
    fuzz_file("in", bytes, n);
    PL_ASSERT(file_open("in", &file, NULL) == OK);
    const struct part_of part = {&file, 0, n, NULL};
    int rc = picture_probe(&part, bytes, n < PICTURE_HEAD ? n : PICTURE_HEAD, &size, &err);
    fuzz_judge(rc, &err, NULL);
    file_close(&file);
    if (rc == OK && size.H * size.W > DECODED_PIXELS_MAX)
        return;
    Paceline__Data__Color color = colors[n % 3];
    struct scratch scratch = {0};
    struct raw raw;
    int decoded = picture_decode(bytes, n, color, &scratch, &raw, &err);
    fuzz_judge(decoded, &err, NULL);
    if (decoded == OK) {
        PL_ASSERT(rc == OK && raw.H == size.H && raw.W == size.W);
        PL_ASSERT(raw.C == picture_channels(color));
        sum_pixels(&raw);
    }
    if (decoded != OK)
        raw = (struct raw){.H = size.H, .W = size.W};
    if (rc == OK && decoded != ERR_NOMEM)
        check_part(bytes, n, color, decoded, &raw);
    scratch_release(&scratch);
}

void fuzz_source(int rc, struct source *source)
{
    if (rc != OK)
        return;
    struct scratch scratch = {0};
    for (size_t i = 0; i < source->count && i < RECORDS_MAX; i++) {
        size_t H, W;
        char name[SOURCE_NAME_MAX];
        struct raw raw;
        struct err err = {0};
        source_size(source, i, &H, &W);
        (void)source_name(source, i, name);
        PL_ASSERT(source->classes == 0 || source->ops->label(source, i) < source->classes);
        if (H * W > DECODED_PIXELS_MAX)
            continue;
        int read = source->ops->read(source, i, &scratch, &raw, &err);
        fuzz_judge(read, &err, NULL);
        if (read == OK) {
            PL_ASSERT(raw.C == source->shape.dim[0] && raw.H == H && raw.W == W);
            sum_pixels(&raw);
        }
    }
    scratch_release(&scratch);
    source_close(source);
}

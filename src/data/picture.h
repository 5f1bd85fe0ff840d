/* Pictures as files hold them: JPEG through libjpeg-turbo, PNG through libpng. Which of them a file
 * is, its first bytes say and its name does not.
 *
 * The pixels are those that OpenCV reads, as Caffe did: eight bits a value, of sixteen the upper
 * ones; transparency is dropped; a palette is looked up; profiles, gamma and orientation are not
 * applied. Grey is 0.299 R + 0.587 G + 0.114 B.
 *
 * Headers bound everything: SIDE_MAX pixels a side, PIXELS_MAX in all. A JPEG whose data breaks off
 * or goes wrong is an error, though its decoder would fill in what is missing; what merely should
 * not be there is let pass. */
#ifndef PL_DATA_PICTURE_H
#define PL_DATA_PICTURE_H

#include "base/err.h"
#include "data/part.h"
#include "data/raw.h"
#include "job/job.pb-c.h"

enum { PICTURE_PIXELS_MAX = 1 << 26, PICTURE_BYTES_MAX = 1 << 28, PICTURE_HEAD = 4096 };

struct picture {
    size_t H, W;
};

/* Look at the headers of a picture, of whose bytes the first, PICTURE_HEAD at most, are `head`.
 * ERR_INPUT; ERR_IO when the rest cannot be read. Messages do not name it. */
int picture_probe(const struct part_of *part, const uint8_t *head, size_t head_len,
                  struct picture *out, struct err *err);

/* The picture in memory as RAW_INTERLEAVED values, C = picture_channels(color), in `scratch`
 * (PIXELS and ROWS). Of a JPEG of the size of scratch->want only what is wanted is made, and the
 * rest is looked through: whether a picture is broken does not depend on what is wanted of it.
 * ERR_INPUT, ERR_NOMEM; messages do not name it. */
int picture_decode(const uint8_t *bytes, size_t len, Paceline__Data__Color color,
                   struct scratch *scratch, struct raw *raw, struct err *err);

static inline size_t picture_channels(Paceline__Data__Color color)
{
    return color == PACELINE__DATA__COLOR__gray ? 1 : 3;
}

/* ---- of the two kinds; internal to pictures ---- */

int picture_jpeg_probe(const struct part_of *part, struct picture *out, struct err *err);
int picture_jpeg_decode(const uint8_t *bytes, size_t len, Paceline__Data__Color color,
                        struct scratch *scratch, struct raw *raw, struct err *err);
int picture_png_probe(const uint8_t *head, size_t head_len, struct picture *out, struct err *err);
int picture_png_decode(const uint8_t *bytes, size_t len, Paceline__Data__Color color,
                       struct scratch *scratch, struct raw *raw, struct err *err);

/* Are such sides within the limits? */
int picture_check_size(const char *kind, size_t H, size_t W, struct picture *out, struct err *err);

/* n pixels of red, green, blue to what `color` asks for; `to` may be `rgb`. */
void picture_from_rgb(const uint8_t *rgb, size_t n, Paceline__Data__Color color, uint8_t *to);

#endif

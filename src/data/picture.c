#include "data/picture.h"

#include <stdio.h>
#include <string.h>

enum kind { NEITHER, JPEG, PNG };

static enum kind kind_of(const uint8_t *bytes, size_t len)
{
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (len >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0)
        return JPEG;
    return len >= sizeof png && memcmp(bytes, png, sizeof png) == 0 ? PNG : NEITHER;
}

static int refuse_format(const uint8_t *bytes, size_t len, struct err *err)
{
    char found[32] = "";
    if (len == 0)
        return err_set(err, ERR_INPUT, "empty");
    for (size_t i = 0; i < len && i < 4; i++)
        snprintf(found + 3 * i, sizeof found - 3 * i, " %02x", bytes[i]);
    return err_set(err, ERR_INPUT, "neither JPEG nor PNG: begins with%s; convert it to one of them",
                   found);
}

int picture_probe(const struct part_of *part, const uint8_t *head, size_t head_len,
                  struct picture *out, struct err *err)
{
    switch (kind_of(head, head_len)) {
    case JPEG: return picture_jpeg_probe(part, out, err);
    case PNG: return picture_png_probe(head, head_len, out, err);
    default: return refuse_format(head, head_len, err);
    }
}

int picture_decode(const uint8_t *bytes, size_t len, Paceline__Data__Color color,
                   struct scratch *scratch, struct raw *raw, struct err *err)
{
    switch (kind_of(bytes, len)) {
    case JPEG: return picture_jpeg_decode(bytes, len, color, scratch, raw, err);
    case PNG: return picture_png_decode(bytes, len, color, scratch, raw, err);
    default: return refuse_format(bytes, len, err);
    }
}

int picture_check_size(const char *kind, size_t H, size_t W, struct picture *out, struct err *err)
{
    if (H == 0 || W == 0 || H > SIDE_MAX || W > SIDE_MAX || H > PICTURE_PIXELS_MAX / W)
        return err_set(err, ERR_INPUT,
                       "%s of %zu x %zu pixels, expected 1 to %d a side and at most %d in all",
                       kind, H, W, SIDE_MAX, PICTURE_PIXELS_MAX);
    *out = (struct picture){H, W};
    return OK;
}

/* Weights in units of 2^-16 that add up to one, as libjpeg's. */
static uint8_t luma_of(const uint8_t *p)
{
    return (uint8_t)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 32768u) >> 16);
}

void picture_from_rgb(const uint8_t *rgb, size_t n, Paceline__Data__Color color, uint8_t *to)
{
    for (size_t i = 0; i < n; i++, rgb += 3) {
        const uint8_t p[3] = {rgb[0], rgb[1], rgb[2]};
        if (color == PACELINE__DATA__COLOR__gray) {
            to[i] = luma_of(p);
        } else {
            bool swap = color == PACELINE__DATA__COLOR__bgr;
            to[3 * i] = p[swap ? 2 : 0];
            to[3 * i + 1] = p[1];
            to[3 * i + 2] = p[swap ? 0 : 2];
        }
    }
}

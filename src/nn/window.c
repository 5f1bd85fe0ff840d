#include "nn/window.h"

int window_read(const struct window_field *field, size_t *h, size_t *w, struct err *err)
{
    const char *name = field->name;
    if (field->n > 0 && (field->has_h || field->has_w))
        return err_set(err, ERR_INPUT, "%s is given in two forms", name);
    if (field->has_h != field->has_w && !field->halves)
        return err_set(err, ERR_INPUT, "%s: height and width go together", name);
    if (field->n > 2)
        return err_set(err, ERR_INPUT, "%s has %zu values, at most 2", name, field->n);
    size_t H = field->has_h ? field->h : field->fallback;
    size_t W = field->has_w ? field->w : field->fallback;
    if (field->n > 0) {
        H = field->both[0];
        W = field->both[field->n - 1];
    }
    if (H < field->min || W < field->min || H > WINDOW_MAX || W > WINDOW_MAX)
        return err_set(err, ERR_INPUT, "%s: %zux%zu is out of range, %u to %d", name, H, W,
                       (unsigned)field->min, WINDOW_MAX);
    *h = H;
    *w = W;
    return OK;
}

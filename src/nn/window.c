#include "nn/window.h"

int window_read(const struct window_field *field, size_t *h, size_t *w, struct err *err)
{
    const char *name = field->name;
    if (field->n > 0 && (field->has_h || field->has_w))
        return err_set(err, ERR_INPUT, "%s is given in two forms", name);
    if (field->has_h != field->has_w)
        return err_set(err, ERR_INPUT, "%s: height and width go together", name);
    if (field->n > 2)
        return err_set(err, ERR_INPUT, "%s has %zu values, at most 2", name, field->n);
    size_t H = field->fallback, W = field->fallback;
    if (field->n > 0) {
        H = field->both[0];
        W = field->both[field->n - 1];
    } else if (field->has_h) {
        H = field->h;
        W = field->w;
    }
    if (H < field->min || W < field->min)
        return err_set(err, ERR_INPUT, "%s: %zux%zu is out of range, at least %u", name, H, W,
                       (unsigned)field->min);
    *h = H;
    *w = W;
    return OK;
}

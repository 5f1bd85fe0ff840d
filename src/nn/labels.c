#include "nn/labels.h"

enum { CLASSES_MAX = 1 << 24 };

int labels_check(const struct layer *layer, struct err *err)
{
    const struct blob *x = layer->bottom[0].blob, *labels = layer->bottom[1].blob;
    if (!labels->is_labels)
        return err_set(err, ERR_UNSUPPORTED, "bottom \"%.64s\" is no label of the data layer",
                       labels->name);
    if (x->shape.dim[1] > CLASSES_MAX)
        return err_set(err, ERR_INPUT, "%zu classes, at most %d", x->shape.dim[1], CLASSES_MAX);
    return OK;
}

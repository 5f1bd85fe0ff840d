#include "nn/labels.h"

enum { CLASSES_MAX = 1 << 24 };

static int check_labels(const struct labels *labels, const struct layer *layer, struct err *err)
{
    const struct blob *scores = labels->scores.blob, *given = layer->bottom[1].blob;
    size_t positions = labels->scores.outer * labels->scores.inner;
    char a[128], b[128];
    if (given->shape.n == 0 || given->count != positions)
        return err_set(err, ERR_INPUT,
                       "bottom \"%.64s\" is %s: no label for each of the %zu places that bottom "
                       "\"%.64s\", %s, has scores for",
                       given->name, shape_text(&given->shape, a, sizeof a), positions, scores->name,
                       shape_text(&scores->shape, b, sizeof b));
    if (labels->scores.C > CLASSES_MAX)
        return err_set(err, ERR_INPUT, "%zu classes, at most %d", labels->scores.C, CLASSES_MAX);
    return OK;
}

int labels_init(struct labels *labels, struct layer *layer, const struct setup *setup, size_t axis,
                const int32_t *ignored, struct err *err)
{
    const struct blob *scores = layer->bottom[0].blob, *given = layer->bottom[1].blob;
    size_t N = setup->options->batch, *bytes = &layer->buffer_bytes;
    *labels = (struct labels){.ignores = ignored, .ignored = ignored ? *ignored : 0};
    int rc = axis == LABELS_RECORD
                 ? rows_init_records(&labels->scores, scores, setup->arena, bytes, err)
                 : rows_init(&labels->scores, scores, axis, setup->arena, bytes, err);
    if (rc == OK)
        rc = check_labels(labels, layer, err);
    if (rc == OK)
        rc = rows_init_records(&labels->given, given, setup->arena, bytes, err);
    if (rc != OK)
        return rc;
    bool writes = setup->options->phase == PHASE_TRAIN && layer->ops->backward;
    layer->reorders = rows_reorders(&labels->scores, writes) + rows_reorders(&labels->given, false);
    labels->outer = labels->scores.outer / N;
    labels->per = labels->outer * labels->scores.inner;
    labels->at = arena_array(setup->arena, given->count, int32_t);
    if (!labels->at)
        return err_set(err, ERR_NOMEM, "out of memory for %zu labels", given->count);
    *bytes += given->count * sizeof *labels->at;
    size_t classes = labels->scores.C;
    if (ignored && *ignored >= 0 && (size_t)*ignored >= classes)
        classes = (size_t)*ignored + 1;
    if (given->is_labels)
        layer->classes = classes;
    if (given->is_numbers && layer->ops->is_loss)
        layer->numbers = classes;
    return OK;
}

/* The value is truncated, as in Caffe; one outside of 32-bit integers is no label. */
static int32_t class_of(const struct labels *labels, float value)
{
    if (!(value > -2147483649.0f && value < 2147483648.0f))
        return LABEL_BAD;
    int32_t label = (int32_t)value;
    if (labels->ignores && label == labels->ignored)
        return LABEL_IGNORED;
    return label >= 0 && (size_t)label < labels->scores.C ? label : LABEL_BAD;
}

void labels_read(struct labels *labels, size_t records)
{
    const float *given = rows_read(&labels->given);
    labels->valid = 0;
    for (size_t i = 0; i < records * labels->per; i++) {
        labels->at[i] = class_of(labels, given[i]);
        labels->valid += labels->at[i] != LABEL_IGNORED;
    }
}

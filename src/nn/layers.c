#include "nn/layers.h"

#include <stdio.h>
#include <string.h>

/* By name, as error messages list them. */
static const struct layer_ops *const all[] = {
    &layer_abs,    &layer_accuracy,       &layer_batch_norm,   &layer_bias,
    &layer_clip,   &layer_concat,         &layer_conv,         &layer_input,
    &layer_deconv, &layer_dropout,        &layer_eltwise,      &layer_elu,
    &layer_embed,  &layer_euclidean_loss, &layer_exp,          &layer_flatten,
    &layer_gru,    &layer_hinge_loss,     &layer_inner,        &layer_log,
    &layer_lrn,    &layer_lstm,           &layer_pool,         &layer_power,
    &layer_prelu,  &layer_relu,           &layer_reshape,      &layer_rnn,
    &layer_scale,  &layer_sigmoid,        &layer_sigmoid_loss, &layer_silence,
    &layer_slice,  &layer_softmax,        &layer_softmax_loss, &layer_split,
    &layer_tanh,
};

enum { LAYERS = sizeof all / sizeof all[0] };

const struct layer_ops *layer_find(const char *type)
{
    for (size_t i = 0; i < LAYERS; i++)
        for (const char *const *name = all[i]->types; *name; name++)
            if (strcmp(type, *name) == 0)
                return all[i];
    return NULL;
}

char *layer_types_text(char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < LAYERS; i++)
        for (const char *const *name = all[i]->types; *name && used < size; name++)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", *name);
    return out;
}

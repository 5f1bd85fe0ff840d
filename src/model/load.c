#include "model/load.h"

#include "base/file.h"
#include "job/text.h"
#include "model/zoo.h"

#include <stdlib.h>

int model_load_prototxt(const char *path, Caffe__NetParameter **out, struct err *err)
{
    struct file_bytes text;
    int rc = file_read(path, TEXT_BYTES_MAX, &text, err);
    if (rc != OK)
        return rc;
    ProtobufCMessage *msg;
    rc =
        text_parse(&caffe__net_parameter__descriptor, path, (char *)text.data, text.len, &msg, err);
    file_release(&text);
    if (rc == OK)
        *out = (Caffe__NetParameter *)msg;
    return rc;
}

int model_copy_net(const Caffe__NetParameter *net, Caffe__NetParameter **out, struct err *err)
{
    size_t len = caffe__net_parameter__get_packed_size(net);
    uint8_t *bytes = malloc(len + 1);
    Caffe__NetParameter *copy = NULL;
    if (bytes) {
        caffe__net_parameter__pack(net, bytes);
        copy = caffe__net_parameter__unpack(NULL, len, bytes);
    }
    free(bytes);
    if (!copy)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    *out = copy;
    return OK;
}

int model_load_net(const Paceline__Net *spec, Caffe__NetParameter **out, struct err *err)
{
    switch (spec->source_case) {
    case PACELINE__NET__SOURCE_ZOO: return zoo_net(spec->zoo, out, err);
    case PACELINE__NET__SOURCE_FILE: return model_load_prototxt(spec->file, out, err);
    case PACELINE__NET__SOURCE_DEFINE: return model_copy_net(spec->define, out, err);
    default: return err_set(err, ERR_INPUT, "net: none of zoo, file and define is set");
    }
}

int model_define_net(Paceline__Net **spec, const Caffe__NetParameter *net, struct err *err)
{
    Caffe__NetParameter *copy;
    int rc = model_copy_net(net, &copy, err);
    if (rc != OK)
        return rc;
    Paceline__Net *fresh = malloc(sizeof *fresh);
    if (!fresh) {
        caffe__net_parameter__free_unpacked(copy, NULL);
        return err_set(err, ERR_NOMEM, "net: out of memory");
    }
    paceline__net__init(fresh);
    fresh->source_case = PACELINE__NET__SOURCE_DEFINE;
    fresh->define = copy;
    if (*spec)
        paceline__net__free_unpacked(*spec, NULL);
    *spec = fresh;
    return OK;
}

static struct shape record_shape(const Caffe__BlobShape *batch)
{
    struct shape record = {0}, none = {0};
    if (batch->n_dim < 2 || batch->n_dim > SHAPE_DIMS_MAX)
        return none;
    for (size_t i = 1; i < batch->n_dim; i++) {
        if (batch->dim[i] <= 0 || batch->dim[i] > INT32_MAX)
            return none;
        record.dim[record.n++] = (size_t)batch->dim[i];
    }
    return shape_count(&record) > 0 ? record : none;
}

struct shape model_record_shape(const Caffe__NetParameter *net)
{
    if (net->n_input_shape > 0)
        return record_shape(net->input_shape[0]);
    for (size_t i = 0; i < net->n_layer; i++) {
        const Caffe__LayerParameter *layer = net->layer[i];
        if (layer->n_bottom == 0 && layer->input_param && layer->input_param->n_shape > 0)
            return record_shape(layer->input_param->shape[0]);
    }
    return (struct shape){0};
}

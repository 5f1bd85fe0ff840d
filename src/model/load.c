#include "model/load.h"

#include "base/file.h"
#include "job/text.h"
#include "model/caffe_convert.h"
#include "model/caffe_upgrade.h"
#include "model/foreign.h"
#include "model/judge_net.h"
#include "model/weights_file.h"
#include "model/zoo.h"

#include <stdlib.h>

int model_load_prototxt(const char *path, Caffe__NetParameter **out, struct err *err)
{
    struct file_bytes text;
    ProtobufCMessage *msg = NULL;
    int rc = foreign_check_folder(path, err);
    if (rc == OK)
        rc = file_read(path, TEXT_BYTES_MAX, &text, err);
    if (rc != OK)
        return rc;
    rc = foreign_check(path, text.data, text.len, err);
    if (rc == OK)
        rc = text_parse(&caffe__net_parameter__descriptor, path, (char *)text.data, text.len, &msg,
                        err);
    file_release(&text);
    if (rc != OK)
        return rc;
    rc = caffe_upgrade((Caffe__NetParameter *)msg, err);
    if (rc != OK) {
        err_prefix(err, "%.200s", path);
        protobuf_c_message_free_unpacked(msg, NULL);
        return rc;
    }
    *out = (Caffe__NetParameter *)msg;
    return OK;
}

/* A net in the header of a safetensors file, whose tensors are not read. */
static int load_meta(const char *path, Caffe__NetParameter **out, struct err *err)
{
    struct safetensors st;
    int rc = safetensors_read_meta(path, &st, err);
    if (rc != OK)
        return rc;
    rc = caffe_convert_net(path, &st, out, err);
    safetensors_release(&st);
    return rc;
}

int model_load_file(const char *path, Caffe__NetParameter **out, struct err *err)
{
    struct weights_file file;
    if (!weights_file_called(path, "caffemodel") && !weights_file_called(path, "safetensors") &&
        !weights_file_called(path, "onnx"))
        return model_load_prototxt(path, out, err);
    bool ours;
    if (weights_file_is_ours(path, &ours, NULL) == OK && ours)
        return load_meta(path, out, err);
    int rc = weights_file_open(path, WEIGHTS_FOREIGN, &file, err);
    if (rc != OK)
        return rc;
    rc = file.is_caffe ? caffe_model_net(&file.caffe, out, err)
                       : caffe_convert_net(path, &file.st, out, err);
    weights_file_close(&file);
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

/* A graph in ONNX scores and does not train: it gets labels, a loss and an accuracy. */
static int load_to_train(const char *path, Caffe__NetParameter **out, struct err *err)
{
    bool lossless;
    int rc = model_load_file(path, out, err);
    if (rc != OK || !weights_file_called(path, "onnx"))
        return rc;
    rc = model_judge(*out, &lossless, err);
    if (rc != OK) {
        err_prefix(err, "%.200s", path);
        caffe__net_parameter__free_unpacked(*out, NULL);
        *out = NULL;
    }
    return rc;
}

int model_load_net(const Paceline__Net *spec, Caffe__NetParameter **out, struct err *err)
{
    switch (spec->source_case) {
    case PACELINE__NET__SOURCE_ZOO: return zoo_net(spec->zoo, out, err);
    case PACELINE__NET__SOURCE_FILE: return load_to_train(spec->file, out, err);
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

/* Of a batch's shape, the first dimension apart. */
static struct shape record_shape(const int64_t *dim, size_t n)
{
    struct shape record = {0}, none = {0};
    if (n < 2 || n > SHAPE_DIMS_MAX)
        return none;
    for (size_t i = 1; i < n; i++) {
        if (dim[i] <= 0 || dim[i] > INT32_MAX)
            return none;
        record.dim[record.n++] = (size_t)dim[i];
    }
    return shape_count(&record) > 0 ? record : none;
}

struct shape model_record_shape(const Caffe__NetParameter *net)
{
    if (net->n_input_shape > 0)
        return record_shape(net->input_shape[0]->dim, net->input_shape[0]->n_dim);
    if (net->n_input_dim >= 4) {
        const int32_t *dim = net->input_dim;
        return record_shape((const int64_t[]){1, dim[1], dim[2], dim[3]}, 4);
    }
    for (size_t i = 0; i < net->n_layer; i++) {
        const Caffe__LayerParameter *layer = net->layer[i];
        const Caffe__InputParameter *input = layer->input_param;
        const Caffe__MemoryDataParameter *memory = layer->memory_data_param;
        if (layer->n_bottom == 0 && input && input->n_shape > 0)
            return record_shape(input->shape[0]->dim, input->shape[0]->n_dim);
        if (layer->n_bottom == 0 && memory)
            return record_shape(
                (const int64_t[]){1, memory->channels, memory->height, memory->width}, 4);
    }
    return (struct shape){0};
}

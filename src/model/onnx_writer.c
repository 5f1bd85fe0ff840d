#include "model/onnx_writer.h"

#include "model/caffe_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie");

enum { TYPE_FLOAT = 1, TYPE_INT64 = 7 };
enum {
    ATTRIBUTE_FLOAT = 1,
    ATTRIBUTE_INT = 2,
    ATTRIBUTE_STRING = 3,
    ATTRIBUTE_INTS = 7,
    ATTRIBUTES_MAX = 8
};

static void *make_message(struct onnx_writer *w, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *msg = w->failed ? NULL : arena_alloc(&w->arena, 1, type->sizeof_message);
    if (!msg) {
        w->failed = true;
        return NULL;
    }
    protobuf_c_message_init(type, msg);
    return msg;
}

static void *make_list(struct onnx_writer *w, size_t n, size_t size)
{
    void *list = w->failed ? NULL : arena_alloc(&w->arena, n, size);
    w->failed |= !list;
    return list;
}

static char *copy_text(struct onnx_writer *w, const char *text)
{
    char *copy = w->failed ? NULL : arena_strdup(&w->arena, text);
    w->failed |= !copy;
    return copy;
}

const char *onnx_join(struct onnx_writer *w, const char *a, const char *b)
{
    size_t size = strlen(a) + strlen(b) + 2;
    char *name = make_list(w, size, 1);
    if (!name)
        return "";
    snprintf(name, size, "%s/%s", a, b);
    return name;
}

void onnx_begin(struct onnx_writer *w, const char *name, size_t nodes, size_t tensors)
{
    *w = (struct onnx_writer){.nodes = nodes, .tensors = tensors};
    arena_init(&w->arena);
    onnx__model_proto__init(&w->model);
    onnx__graph_proto__init(&w->graph);
    w->model.graph = &w->graph;
    w->model.has_ir_version = true;
    w->model.ir_version = ONNX_WRITTEN_IR;
    w->model.producer_name = copy_text(w, "paceline");
    w->graph.name = copy_text(w, name);
    w->graph.node = make_list(w, nodes, sizeof *w->graph.node);
    w->graph.initializer = make_list(w, tensors, sizeof *w->graph.initializer);
    w->model.opset_import = make_list(w, 1, sizeof *w->model.opset_import);
    Onnx__OperatorSetIdProto *set = make_message(w, &onnx__operator_set_id_proto__descriptor);
    if (!set)
        return;
    set->domain = copy_text(w, "");
    set->has_version = true;
    set->version = ONNX_WRITTEN_OPSET;
    w->model.opset_import[w->model.n_opset_import++] = set;
}

void onnx_end(struct onnx_writer *w)
{
    arena_release(&w->arena);
}

Onnx__NodeProto *onnx_put_node(struct onnx_writer *w, const char *type, const char *name,
                               const char *const *in, size_t n, const char *out)
{
    Onnx__NodeProto *node = make_message(w, &onnx__node_proto__descriptor);
    if (!node || w->graph.n_node == w->nodes) {
        w->failed = true;
        return NULL;
    }
    node->op_type = copy_text(w, type);
    node->name = copy_text(w, name);
    node->input = make_list(w, n, sizeof *node->input);
    node->attribute = make_list(w, ATTRIBUTES_MAX, sizeof *node->attribute);
    for (size_t k = 0; k < n && !w->failed; k++)
        node->input[node->n_input++] = copy_text(w, in[k]);
    onnx_put_result(w, node, out);
    if (w->failed)
        return NULL;
    w->graph.node[w->graph.n_node++] = node;
    return node;
}

void onnx_put_result(struct onnx_writer *w, Onnx__NodeProto *node, const char *out)
{
    size_t n = node ? node->n_output : 0;
    char **more = node ? make_list(w, n + 1, sizeof *more) : NULL;
    if (!more)
        return;
    if (n > 0)
        memcpy(more, node->output, n * sizeof *more);
    more[n] = copy_text(w, out);
    node->output = more;
    node->n_output = n + 1;
}

/* ---- attributes ---- */

static Onnx__AttributeProto *add_attribute(struct onnx_writer *w, Onnx__NodeProto *node,
                                           const char *name, int32_t type)
{
    Onnx__AttributeProto *a = node ? make_message(w, &onnx__attribute_proto__descriptor) : NULL;
    if (!a || node->n_attribute == ATTRIBUTES_MAX) {
        w->failed = true;
        return NULL;
    }
    a->name = copy_text(w, name);
    a->has_type = true;
    a->type = type;
    node->attribute[node->n_attribute++] = a;
    return w->failed ? NULL : a;
}

void onnx_put_int(struct onnx_writer *w, Onnx__NodeProto *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *a = add_attribute(w, node, name, ATTRIBUTE_INT);
    if (!a)
        return;
    a->has_i = true;
    a->i = value;
}

void onnx_put_text(struct onnx_writer *w, Onnx__NodeProto *node, const char *name, const char *text)
{
    Onnx__AttributeProto *a = add_attribute(w, node, name, ATTRIBUTE_STRING);
    char *copy = a ? copy_text(w, text) : NULL;
    if (!copy)
        return;
    a->has_s = true;
    a->s = (ProtobufCBinaryData){strlen(copy), (uint8_t *)copy};
}

void onnx_put_float(struct onnx_writer *w, Onnx__NodeProto *node, const char *name, float value)
{
    Onnx__AttributeProto *a = add_attribute(w, node, name, ATTRIBUTE_FLOAT);
    if (!a)
        return;
    a->has_f = true;
    a->f = value;
}

void onnx_put_ints(struct onnx_writer *w, Onnx__NodeProto *node, const char *name,
                   const int64_t *value, size_t n)
{
    Onnx__AttributeProto *a = add_attribute(w, node, name, ATTRIBUTE_INTS);
    int64_t *list = a ? make_list(w, n, sizeof *list) : NULL;
    if (!list)
        return;
    memcpy(list, value, n * sizeof *list);
    a->ints = list;
    a->n_ints = n;
}

/* ---- constants ---- */

static Onnx__TensorProto *add_tensor(struct onnx_writer *w, const char *name,
                                     const struct shape *shape, int32_t type)
{
    Onnx__TensorProto *tensor = make_message(w, &onnx__tensor_proto__descriptor);
    if (!tensor || w->graph.n_initializer == w->tensors) {
        w->failed = true;
        return NULL;
    }
    tensor->name = copy_text(w, name);
    tensor->has_data_type = true;
    tensor->data_type = type;
    tensor->dims = make_list(w, shape->n, sizeof *tensor->dims);
    if (w->failed)
        return NULL;
    tensor->n_dims = shape->n;
    for (size_t k = 0; k < shape->n; k++)
        tensor->dims[k] = (int64_t)shape->dim[k];
    tensor->has_raw_data = true;
    w->graph.initializer[w->graph.n_initializer++] = tensor;
    return tensor;
}

const char *onnx_put_floats(struct onnx_writer *w, const char *name, const struct shape *shape,
                            const float *at)
{
    Onnx__TensorProto *tensor = add_tensor(w, name, shape, TYPE_FLOAT);
    if (!tensor)
        return "";
    tensor->raw_data.len = shape_count(shape) * sizeof *at;
    tensor->raw_data.data = (uint8_t *)(uintptr_t)at; /* is only read */
    return tensor->name;
}

const char *onnx_put_list(struct onnx_writer *w, const char *name, const int64_t *at, size_t n)
{
    Onnx__TensorProto *tensor = add_tensor(w, name, &(struct shape){1, {n}}, TYPE_INT64);
    int64_t *copy = tensor ? make_list(w, n, sizeof *copy) : NULL;
    if (!copy)
        return "";
    memcpy(copy, at, n * sizeof *copy);
    tensor->raw_data.len = n * sizeof *copy;
    tensor->raw_data.data = (uint8_t *)copy;
    return tensor->name;
}

const char *onnx_put_number(struct onnx_writer *w, const char *name, float value)
{
    float *copy = make_list(w, 1, sizeof *copy);
    if (!copy)
        return "";
    *copy = value;
    return onnx_put_floats(w, name, &(struct shape){0}, copy);
}

/* ---- the graph's ends ---- */

static Onnx__ValueInfoProto *make_value(struct onnx_writer *w, const char *name,
                                        const struct shape *shape)
{
    Onnx__ValueInfoProto *value = make_message(w, &onnx__value_info_proto__descriptor);
    Onnx__TypeProto *type = make_message(w, &onnx__type_proto__descriptor);
    Onnx__TypeProto__Tensor *tensor = make_message(w, &onnx__type_proto__tensor__descriptor);
    Onnx__TensorShapeProto *dims = make_message(w, &onnx__tensor_shape_proto__descriptor);
    if (!value || !type || !tensor || !dims)
        return NULL;
    value->name = copy_text(w, name);
    value->type = type;
    type->tensor_type = tensor;
    tensor->has_elem_type = true;
    tensor->elem_type = TYPE_FLOAT;
    tensor->shape = dims;
    dims->dim = make_list(w, shape->n, sizeof *dims->dim);
    for (size_t k = 0; k < shape->n && !w->failed; k++) {
        Onnx__TensorShapeProto__Dimension *dim =
            make_message(w, &onnx__tensor_shape_proto__dimension__descriptor);
        if (!dim)
            return NULL;
        dim->has_dim_value = k > 0;
        dim->dim_value = (int64_t)shape->dim[k];
        dim->dim_param = k > 0 ? NULL : copy_text(w, "N");
        dims->dim[dims->n_dim++] = dim;
    }
    return w->failed ? NULL : value;
}

static void add_end(struct onnx_writer *w, Onnx__ValueInfoProto ***list, size_t *n,
                    Onnx__ValueInfoProto *value)
{
    Onnx__ValueInfoProto **more = value ? make_list(w, *n + 1, sizeof *more) : NULL;
    if (!more)
        return;
    if (*n > 0)
        memcpy(more, *list, *n * sizeof *more);
    more[(*n)++] = value;
    *list = more;
}

void onnx_put_input(struct onnx_writer *w, const char *name, const struct shape *shape)
{
    add_end(w, &w->graph.input, &w->graph.n_input, make_value(w, name, shape));
}

void onnx_put_output(struct onnx_writer *w, const char *name, const struct shape *shape)
{
    add_end(w, &w->graph.output, &w->graph.n_output, make_value(w, name, shape));
}

int onnx_write(struct onnx_writer *w, struct disk *disk, const char *path, struct err *err)
{
    if (w->failed)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", path);
    size_t len = onnx__model_proto__get_packed_size(&w->model);
    if (len > CAFFE_MODEL_BYTES_MAX)
        return err_set(err, ERR_INPUT, "%.200s: %zu bytes, more than ONNX's limit of %zu", path,
                       len, CAFFE_MODEL_BYTES_MAX);
    uint8_t *bytes = malloc(len + 1);
    if (!bytes)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", path);
    onnx__model_proto__pack(&w->model, bytes);
    int rc = disk_replace(disk, path, bytes, len, err);
    free(bytes);
    return rc;
}

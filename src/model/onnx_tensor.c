/* The numbers of ONNX's tensors: any type of theirs, in any of the lists that they may be in. */
#include "base/bytes.h"
#include "model/onnx_graph.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they lie");

enum tensor_type {
    TENSOR_FLOAT = 1,
    TENSOR_UINT8 = 2,
    TENSOR_INT8 = 3,
    TENSOR_UINT16 = 4,
    TENSOR_INT16 = 5,
    TENSOR_INT32 = 6,
    TENSOR_INT64 = 7,
    TENSOR_BOOL = 9,
    TENSOR_FLOAT16 = 10,
    TENSOR_DOUBLE = 11,
    TENSOR_BFLOAT16 = 16,
};

/* Bytes of a number; 0: a type that is not read. */
static size_t size_of_type(int32_t type)
{
    switch (type) {
    case TENSOR_UINT8:
    case TENSOR_INT8:
    case TENSOR_BOOL: return 1;
    case TENSOR_UINT16:
    case TENSOR_INT16:
    case TENSOR_FLOAT16:
    case TENSOR_BFLOAT16: return 2;
    case TENSOR_FLOAT:
    case TENSOR_INT32: return 4;
    case TENSOR_INT64:
    case TENSOR_DOUBLE: return 8;
    default: return 0;
    }
}

static bool is_float(int32_t type)
{
    return type == TENSOR_FLOAT || type == TENSOR_DOUBLE || type == TENSOR_FLOAT16 ||
           type == TENSOR_BFLOAT16;
}

static const char *name_of(const Onnx__TensorProto *tensor)
{
    return tensor->name ? tensor->name : "";
}

int onnx_tensor_shape(const struct onnx_graph *g, const Onnx__TensorProto *tensor,
                      struct shape *out, struct err *err)
{
    bool empty = false;
    *out = (struct shape){.n = tensor->n_dims};
    if (tensor->n_dims > SHAPE_DIMS_MAX)
        return err_set(err, ERR_UNSUPPORTED,
                       "%.200s: tensor \"%.100s\": %zu dimensions, at most %d", g->path,
                       name_of(tensor), tensor->n_dims, SHAPE_DIMS_MAX);
    for (size_t k = 0; k < tensor->n_dims; k++) {
        if (tensor->dims[k] < 0 || tensor->dims[k] > INT32_MAX)
            return err_set(err, ERR_INPUT, "%.200s: tensor \"%.100s\": dimension %lld", g->path,
                           name_of(tensor), (long long)tensor->dims[k]);
        out->dim[k] = (size_t)tensor->dims[k];
        empty |= tensor->dims[k] == 0;
    }
    if (!empty && shape_count(out) == 0)
        return err_set(err, ERR_INPUT, "%.200s: tensor \"%.100s\": too large", g->path,
                       name_of(tensor));
    return OK;
}

/* ---- numbers ---- */

static float float_of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, bits;
    uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    float value;
    if (exponent == 0x1f) {
        bits = sign | 0x7f800000 | fraction << 13;
    } else if (exponent > 0) {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    } else {
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float_at(int32_t type, const uint8_t *at)
{
    float value = 0;
    double wide = 0;
    uint16_t half;
    uint32_t bits;
    switch (type) {
    case TENSOR_FLOAT: memcpy(&value, at, sizeof value); return value;
    case TENSOR_DOUBLE: memcpy(&wide, at, sizeof wide); return (float)wide;
    case TENSOR_FLOAT16: memcpy(&half, at, sizeof half); return float_of_half(half);
    default:
        memcpy(&half, at, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
}

static int64_t integer_at(int32_t type, const uint8_t *at)
{
    uint64_t bits = 0;
    memcpy(&bits, at, size_of_type(type));
    switch (type) {
    case TENSOR_INT8: return (int8_t)bits;
    case TENSOR_INT16: return (int16_t)bits;
    case TENSOR_INT32: return (int32_t)bits;
    default: return (int64_t)bits;
    }
}

/* How many numbers the tensor's lists have; only one list is used for a type. */
static size_t count_listed(const Onnx__TensorProto *tensor)
{
    switch (tensor->data_type) {
    case TENSOR_FLOAT: return tensor->n_float_data;
    case TENSOR_DOUBLE: return tensor->n_double_data;
    case TENSOR_INT64: return tensor->n_int64_data;
    default: return tensor->n_int32_data;
    }
}

static float listed_float(const Onnx__TensorProto *tensor, size_t k)
{
    if (tensor->data_type == TENSOR_FLOAT)
        return tensor->float_data[k];
    if (tensor->data_type == TENSOR_DOUBLE)
        return (float)tensor->double_data[k];
    uint16_t half = (uint16_t)tensor->int32_data[k];
    return float_at(tensor->data_type, (const uint8_t *)&half);
}

static int64_t listed_integer(const Onnx__TensorProto *tensor, size_t k)
{
    return tensor->data_type == TENSOR_INT64 ? tensor->int64_data[k] : tensor->int32_data[k];
}

static bool is_elsewhere(const Onnx__TensorProto *tensor)
{
    return tensor->data_location != 0 || tensor->n_external_data > 0;
}

static int check_tensor(const struct onnx_graph *g, const Onnx__TensorProto *tensor, size_t count,
                        struct err *err)
{
    size_t size = size_of_type(tensor->data_type);
    bool raw = tensor->has_raw_data;
    size_t has = raw ? (size ? tensor->raw_data.len / size : 0) : count_listed(tensor);
    if (size == 0)
        return err_set(err, ERR_UNSUPPORTED, "%.200s: tensor \"%.100s\": type %d is not read",
                       g->path, name_of(tensor), (int)tensor->data_type);
    if (is_elsewhere(tensor))
        return count <= SIZE_MAX / size ? OK : onnx_no_memory(g, err);
    if (has != count || (raw && tensor->raw_data.len % size != 0))
        return err_set(err, ERR_INPUT,
                       "%.200s: tensor \"%.100s\" has %zu numbers, by its shape %zu", g->path,
                       name_of(tensor), has, count);
    return OK;
}

static int read_tensor(struct onnx_graph *g, struct onnx_value *value, struct err *err)
{
    const Onnx__TensorProto *tensor = value->tensor;
    size_t count = shape_count(&value->shape), size = size_of_type(tensor->data_type);
    int rc = check_tensor(g, tensor, count, err);
    if (rc != OK)
        return rc;
    bool floats = is_float(tensor->data_type);
    uint8_t *elsewhere = NULL;
    if (is_elsewhere(tensor))
        rc = onnx_external_read(g, tensor, count * size, &elsewhere, err);
    if (rc != OK)
        return rc;
    float *f = floats ? arena_array(&g->arena, count, float) : NULL;
    int64_t *i = floats ? NULL : arena_array(&g->arena, count, int64_t);
    if (!f && !i) {
        free(elsewhere);
        return onnx_no_memory(g, err);
    }
    const uint8_t *raw = elsewhere              ? elsewhere
                         : tensor->has_raw_data ? tensor->raw_data.data
                                                : NULL;
    if (raw && tensor->data_type == TENSOR_FLOAT)
        memcpy(f, raw, count * sizeof *f);
    else
        for (size_t k = 0; k < count; k++) {
            if (floats)
                f[k] = raw ? float_at(tensor->data_type, raw + k * size) : listed_float(tensor, k);
            else
                i[k] =
                    raw ? integer_at(tensor->data_type, raw + k * size) : listed_integer(tensor, k);
        }
    free(elsewhere);
    value->f = f;
    value->i = i;
    return OK;
}

int onnx_read(struct onnx_graph *g, struct onnx_value *value, struct err *err)
{
    return value->f || value->i || !value->tensor ? OK : read_tensor(g, value, err);
}

/* ---- as an operator wants them ---- */

static int find_constant(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                         struct onnx_value **out, struct err *err)
{
    int rc = onnx_input(g, node, k, out, err);
    if (rc != OK)
        return rc;
    if ((*out)->is_blob)
        return onnx_refuse(g, node, err, "input %zu, \"%.100s\", is computed, not a constant", k,
                           (*out)->name);
    return onnx_read(g, *out, err);
}

int onnx_floats(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                struct onnx_value **out, struct err *err)
{
    int rc = find_constant(g, node, k, out, err);
    if (rc != OK || (*out)->f)
        return rc;
    size_t count = shape_count(&(*out)->shape);
    float *f = arena_array(&g->arena, count, float);
    if (!f)
        return onnx_no_memory(g, err);
    for (size_t j = 0; j < count; j++) {
        if ((*out)->i[j] == ONNX_RECORDS)
            return onnx_refuse(g, node, err, "the number of records in arithmetic");
        f[j] = (float)(*out)->i[j];
    }
    (*out)->f = f;
    return OK;
}

int onnx_integers(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                  struct onnx_value **out, struct err *err)
{
    int rc = find_constant(g, node, k, out, err);
    if (rc != OK || (*out)->i)
        return rc;
    size_t count = shape_count(&(*out)->shape);
    int64_t *i = arena_array(&g->arena, count, int64_t);
    if (!i)
        return onnx_no_memory(g, err);
    for (size_t j = 0; j < count; j++) {
        float f = (*out)->f[j];
        if (!(f >= -1e18f && f <= 1e18f))
            return onnx_broken(g, node, err, "input %zu, \"%.100s\": %g is no integer", k,
                               (*out)->name, (double)f);
        i[j] = (int64_t)f;
    }
    (*out)->i = i;
    return OK;
}

/* A graph in ONNX, built node by node and written as one file. After memory runs out, calls do
 * nothing, so a writer checks only once, at the end. Texts are copied. */
#ifndef PL_MODEL_ONNX_WRITER_H
#define PL_MODEL_ONNX_WRITER_H

#include "base/arena.h"
#include "base/err.h"
#include "job/onnx.pb-c.h"
#include "tensor/shape.h"
#include "world/disk.h"

#include <stdbool.h>
#include <stdint.h>

/* The version that is written. */
enum { ONNX_WRITTEN_OPSET = 17, ONNX_WRITTEN_IR = 8 };

struct onnx_writer {
    struct arena arena;
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    size_t nodes, tensors; /* room */
    bool failed;
};

/* Room for so many nodes and constants. */
void onnx_begin(struct onnx_writer *w, const char *name, size_t nodes, size_t tensors);
void onnx_end(struct onnx_writer *w);

/* A node from the values `in`, n of them, to `out`; NULL: out of memory. */
Onnx__NodeProto *onnx_put_node(struct onnx_writer *w, const char *type, const char *name,
                               const char *const *in, size_t n, const char *out);

/* One more output of the node, which may be NULL. */
void onnx_put_result(struct onnx_writer *w, Onnx__NodeProto *node, const char *out);

/* Attributes of the node, which may be NULL. */
void onnx_put_int(struct onnx_writer *w, Onnx__NodeProto *node, const char *name, int64_t value);
void onnx_put_ints(struct onnx_writer *w, Onnx__NodeProto *node, const char *name,
                   const int64_t *value, size_t n);
void onnx_put_text(struct onnx_writer *w, Onnx__NodeProto *node, const char *name,
                   const char *text);
void onnx_put_float(struct onnx_writer *w, Onnx__NodeProto *node, const char *name, float value);

/* A constant of that name, which is returned; numbers are borrowed until the file is written. */
const char *onnx_put_floats(struct onnx_writer *w, const char *name, const struct shape *shape,
                            const float *at);
/* The same of a list of integers, and of one number; they are copied. */
const char *onnx_put_list(struct onnx_writer *w, const char *name, const int64_t *at, size_t n);
const char *onnx_put_number(struct onnx_writer *w, const char *name, float value);

/* An input or output of the graph, of floats; its first dimension is the number of records, "N". */
void onnx_put_input(struct onnx_writer *w, const char *name, const struct shape *shape);
void onnx_put_output(struct onnx_writer *w, const char *name, const struct shape *shape);

/* "A/b" in the writer's memory. */
const char *onnx_join(struct onnx_writer *w, const char *a, const char *b);

/* Write the file, whole or not at all. ERR_INPUT: more than the format's 2 GiB; ERR_NOMEM, ERR_IO
 */
int onnx_write(struct onnx_writer *w, struct disk *disk, const char *path, struct err *err);

#endif

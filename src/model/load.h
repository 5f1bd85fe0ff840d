/* The net of a job: a name of the zoo, a file, or a definition in the job. */
#ifndef PL_MODEL_LOAD_H
#define PL_MODEL_LOAD_H

#include "base/err.h"
#include "job/job.pb-c.h"
#include "tensor/shape.h"

/* Nets are returned owned: caffe__net_parameter__free_unpacked(net, NULL). */

/* A model in ONNX, which only scores, gets labels, a loss and an accuracy (judge_net.h). ERR_INPUT,
 * ERR_UNSUPPORTED, ERR_NOMEM */
int model_load_net(const Paceline__Net *spec, Caffe__NetParameter **out, struct err *err);

/* A net in Caffe's protobuf text, upgraded (caffe_upgrade.h). ERR_INPUT with file:line:column, or
 * the layer; ERR_UNSUPPORTED; ERR_NOMEM */
int model_load_prototxt(const char *path, Caffe__NetParameter **out, struct err *err);

/* The same from any file that describes a net: a .caffemodel, an .onnx, or a .safetensors that was
 * converted from one, brings its net along; all else is text. As above, and as
 * weights_file_open. */
int model_load_file(const char *path, Caffe__NetParameter **out, struct err *err);

/* ERR_NOMEM */
int model_copy_net(const Caffe__NetParameter *net, Caffe__NetParameter **out, struct err *err);

/* Replace *spec by a copy of `net` as a definition. ERR_NOMEM */
int model_define_net(Paceline__Net **spec, const Caffe__NetParameter *net, struct err *err);

/* The shape of one record as the net's first data layer states it; n = 0 when it states none that
 * makes sense. */
struct shape model_record_shape(const Caffe__NetParameter *net);

#endif

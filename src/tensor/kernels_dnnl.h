/* Parts of the dnnl set that have files of their own. Private to the set. */
#ifndef PL_TENSOR_KERNELS_DNNL_H
#define PL_TENSOR_KERNELS_DNNL_H

#include "tensor/kernels.h"

int dnnl_set_lrn(const struct lrn_spec *spec, bool training, struct arena *arena, struct op **op,
                 struct err *err);
int dnnl_set_pool(const struct pool_spec *spec, bool training, struct arena *arena, struct op **op,
                  struct err *err);
int dnnl_set_inner(const struct inner_spec *spec, enum layout x_layout, bool training,
                   struct arena *arena, struct op **op, struct err *err);
int dnnl_set_sigmoid(const struct shape *x, enum layout layout, bool training, struct arena *arena,
                     struct op **op, struct err *err);

#endif

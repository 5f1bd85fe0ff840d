/* Parts of the reference set that have files of their own. Private to the set. */
#ifndef PL_TENSOR_KERNELS_REF_H
#define PL_TENSOR_KERNELS_REF_H

#include "tensor/kernels.h"

int ref_plan_pool(const struct pool_spec *spec, bool training, struct arena *arena, struct op **op,
                  struct err *err);
int ref_plan_sigmoid(const struct shape *x, enum layout layout, bool training, struct arena *arena,
                     struct op **op, struct err *err);

#endif

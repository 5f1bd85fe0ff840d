/* Parts of the reference set that have files of their own. Private to the set. */
#ifndef PL_TENSOR_KERNELS_REF_H
#define PL_TENSOR_KERNELS_REF_H

#include "tensor/kernels.h"

int ref_plan_conv(const struct conv_spec *spec, const struct plan_options *options, struct op **op,
                  struct err *err);
int ref_plan_deconv(const struct conv_spec *spec, const struct plan_options *options,
                    struct op **op, struct err *err);
int ref_plan_pool(const struct pool_spec *spec, bool training, struct arena *arena, struct op **op,
                  struct err *err);
int ref_plan_lrn(const struct lrn_spec *spec, bool training, struct arena *arena, struct op **op,
                 struct err *err);
int ref_plan_sigmoid(const struct shape *x, enum layout layout, bool training, struct arena *arena,
                     struct op **op, struct err *err);
int ref_plan_softmax(const struct shape *x, struct arena *arena, struct op **op, struct err *err);
int ref_plan_recurrence(const struct recurrence_spec *spec, bool training, struct arena *arena,
                        struct recurrence **out, struct err *err);

/* y (M, P) += a (M, K) · bᵀ, b being (P, K). */
void ref_add_product_of_rows(size_t M, size_t K, size_t P, const float *a, const float *b,
                             float *y);

/* y (M, P) += a (M, K) · b (K, P); a[m][k] stands at a + m * row + k * step. */
void ref_add_product(size_t M, size_t K, size_t P, const float *a, size_t row, size_t step,
                     const float *b, float *y);

#endif

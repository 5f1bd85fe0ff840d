/* The inner loops of vec: plain loops over raw floats, one table for each instruction set they are
 * compiled for. All tables give the same bits, since each element is computed on its own by IEEE
 * operations in the order written (dot_block fixes its order by lanes).
 *
 * vec_loops.c is the only source: compiled plainly it is vec_kernels_base, and with -m flags,
 * -DVEC_KERNELS=NAME and -DVEC_KERNELS_ISA="TEXT" one more table (cmake/layers.cmake lists them).
 *
 * n may be 0. The output overlaps no other argument. No alignment is asked for. */
#ifndef PL_TENSOR_VEC_KERNELS_H
#define PL_TENSOR_VEC_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

/* The scalars of an optimizer's step, those of the segment multiplied in. */
struct vec_sgd_step {
    float rate, momentum, decay;
};

struct vec_adagrad_step {
    float rate, delta, decay;
};

struct vec_rmsprop_step {
    float rate, rms_decay, delta, decay;
};

struct vec_adadelta_step {
    float rate, momentum, delta, decay;
};

struct vec_adam_step {
    float rate, beta1, beta2, delta, decay;
    float keep; /* the factor of x: less than 1 with decoupled decay */
};

struct vec_kernels {
    const char *isa;
    void (*fill)(float *y, float value, size_t n);                  /* y ← value */
    void (*scale)(float *y, float a, size_t n);                     /* y ← a·y */
    void (*add)(float *y, const float *x, size_t n);                /* y ← y + x */
    void (*axpy)(float *y, float a, const float *x, size_t n);      /* y ← y + a·x */
    void (*lerp)(float *y, float t, const float *x, size_t n);      /* y ← (1−t)·y + t·x */
    void (*axpy_sign)(float *y, float a, const float *x, size_t n); /* y ← y + a·sign(x) */
    void (*penalise)(float *x, float alpha, const float *joint, size_t n);
    void (*extrapolate)(float *out, float *v, const float *x, const float *x_prev, float delta,
                        float fresh, float gamma, size_t n);
    void (*product)(float *y, float a, const float *x, size_t n); /* y ← a·x */
    void (*sgd)(float *x, const float *dx, float *m, struct vec_sgd_step rule, size_t n);
    void (*nesterov)(float *x, const float *dx, float *m, struct vec_sgd_step rule, size_t n);
    void (*adagrad)(float *x, const float *dx, float *h, struct vec_adagrad_step rule, size_t n);
    void (*rmsprop)(float *x, const float *dx, float *h, struct vec_rmsprop_step rule, size_t n);
    void (*adadelta)(float *x, const float *dx, float *h, float *u, struct vec_adadelta_step rule,
                     size_t n);
    void (*adam)(float *x, const float *dx, float *m, float *v, struct vec_adam_step rule,
                 size_t n);
    bool (*finite)(const float *x, size_t n);
    double (*dot_block)(const float *a, const float *b, size_t n);
};

extern const struct vec_kernels vec_kernels_base;

/* The tables of this build, the narrowest first, vec_kernels_base at 0; NULL from the end on. */
const struct vec_kernels *vec_kernels_at(size_t i);

/* Does this processor have the instructions of table i, which must exist? (isa_runs) */
bool vec_kernels_runs(size_t i);

/* The widest that runs here. Call it for a block, not an element. */
const struct vec_kernels *vec_kernels_best(void);

#endif

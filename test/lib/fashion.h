/* The example of LeNet on Fashion-MNIST, made quick to judge: a few records of noise stand in for
 * its test set. */
#ifndef PL_LIB_FASHION_H
#define PL_LIB_FASHION_H

#include "tiny_job.h"

#include <stdbool.h>

#define FASHION_JOB TEST_ROOT "/examples/fashion-lenet.job"

enum { FASHION_SIDE = 28, FASHION_TEST = 20 };

struct fashion {
    char images[256], labels[256]; /* assignments to the job's test_data */
};

static inline bool fashion_installed(void)
{
    return access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) == 0;
}

static inline void fashion_create(struct fashion *f, const struct tiny *t)
{
    FILE *images = tiny_open(t, "noise-images"), *labels = tiny_open(t, "noise-labels");
    const uint32_t head[] = {0x803, FASHION_TEST, FASHION_SIDE, FASHION_SIDE};
    for (int i = 0; i < 4; i++)
        tiny_put_be32(images, head[i]);
    tiny_put_be32(labels, 0x801);
    tiny_put_be32(labels, FASHION_TEST);
    for (uint32_t i = 0; i < FASHION_TEST; i++) {
        fputc((int)(i % 10), labels);
        for (uint32_t k = 0; k < FASHION_SIDE * FASHION_SIDE; k++)
            fputc((int)rng_below(12, i, k, 256), images);
    }
    fclose(images);
    fclose(labels);
    snprintf(f->images, sizeof f->images, "test_data.idx.images='%s/noise-images'", t->folder);
    snprintf(f->labels, sizeof f->labels, "test_data.idx.labels='%s/noise-labels'", t->folder);
}

#endif

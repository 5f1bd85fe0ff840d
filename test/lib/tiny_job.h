/* A job that trains in a blink: a few hundred 12×12 images of three classes, drawn from a seed, and
 * a net of one convolution and one inner product, all in a folder of its own. */
#ifndef PL_LIB_TINY_JOB_H
#define PL_LIB_TINY_JOB_H

#include "base/rng.h"
#include "folder.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TINY_SIDE = 12, TINY_TRAIN = 600, TINY_TEST = 120, TINY_CLASSES = 3 };

struct tiny {
    char folder[64];
    char job[128];     /* path of the job file */
    char cluster[128]; /* path of the cluster file, once written */
    int runs;          /* of tiny_out */
};

static void tiny_put_be32(FILE *f, uint32_t v)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        fputc((int)(v >> shift & 0xff), f);
}

static FILE *tiny_open(const struct tiny *t, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", t->folder, name);
    FILE *f = fopen(path, "wb");
    if (!f)
        abort();
    return f;
}

/* Class c is a bright bar: lying, standing, slanting; the rest is noise. */
static uint8_t tiny_pixel(uint64_t set, uint32_t i, uint32_t c, int row, int col)
{
    uint64_t key = (uint64_t)i << 16 | (uint64_t)(row * TINY_SIDE + col);
    int at = 3 + (int)rng_below(9, set, (uint64_t)i << 16 | 0xffff, 6);
    int on = c == 0 ? row == at : c == 1 ? col == at : row + col == 2 * at;
    return (uint8_t)(rng_below(7, set, key, 100) + (on ? 150 : 0));
}

static void tiny_write_set(const struct tiny *t, const char *name, uint64_t set, uint32_t count)
{
    char file[64];
    snprintf(file, sizeof file, "%s-images", name);
    FILE *images = tiny_open(t, file);
    snprintf(file, sizeof file, "%s-labels", name);
    FILE *labels = tiny_open(t, file);
    tiny_put_be32(images, 0x803);
    tiny_put_be32(images, count);
    tiny_put_be32(images, TINY_SIDE);
    tiny_put_be32(images, TINY_SIDE);
    tiny_put_be32(labels, 0x801);
    tiny_put_be32(labels, count);
    for (uint32_t i = 0; i < count; i++) {
        fputc((int)(i % TINY_CLASSES), labels);
        for (int row = 0; row < TINY_SIDE; row++)
            for (int col = 0; col < TINY_SIDE; col++)
                fputc(tiny_pixel(set, i, i % TINY_CLASSES, row, col), images);
    }
    fclose(images);
    fclose(labels);
}

static const char tiny_net[] =
    "name: 'tiny'\n"
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"
    "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'pool' top: 'pool' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

static const char tiny_job[] =
    "name: 'tiny'\n"
    "net { file: 'net.prototxt' }\n"
    "train_data { idx { images: 'train-images' labels: 'train-labels' } scale: 0.00390625 }\n"
    "test_data { idx { images: 'test-images' labels: 'test-labels' } scale: 0.00390625 }\n"
    "batch: 16\n"
    "validation: 60\n"
    "solver { base_lr: 0.05 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'inv' gamma: 0.001\n"
    "  power: 0.75 }\n"
    "strategy { sync { tau: 4 } }\n"
    "workers: 4\n"
    "threads: 1\n"
    "kernels: ref\n"
    "collective { chunk_kb: 1 }\n"
    "stop { epochs: 3 }\n";

static inline void tiny_write(struct tiny *t, const char *name, const char *text)
{
    FILE *f = tiny_open(t, name);
    fputs(text, f);
    fclose(f);
}

/* A file with a key of this test alone, in its folder. */
static inline void tiny_key(struct tiny *t, char path[160])
{
    static const char key[] = "6b6579206f66206120746573742c206e6f74206120736563726574206174206c\n";
    tiny_write(t, "tiny.key", key);
    snprintf(path, 160, "%s/tiny.key", t->folder);
    assert_int_equal(chmod(path, S_IRUSR | S_IWUSR), 0);
}

/* Remove the number of workers from its job. */
static inline void tiny_elastic(struct tiny *t)
{
    char text[sizeof tiny_job];
    const char *workers = strstr(tiny_job, "workers: 4\n");
    snprintf(text, sizeof text, "%.*s%s", (int)(workers - tiny_job), tiny_job,
             strchr(workers, '\n') + 1);
    tiny_write(t, "tiny.job", text);
}

static inline void tiny_create(struct tiny *t)
{
    *t = (struct tiny){0};
    if (!folder_create("paceline-tiny", t->folder))
        abort();
    snprintf(t->job, sizeof t->job, "%s/tiny.job", t->folder);
    tiny_write_set(t, "train", 1, TINY_TRAIN);
    tiny_write_set(t, "test", 2, TINY_TEST);
    tiny_write(t, "net.prototxt", tiny_net);
    tiny_write(t, "tiny.job", tiny_job);
}

static inline void tiny_cluster(struct tiny *t, const char *text)
{
    tiny_write(t, "a.cluster", text);
    snprintf(t->cluster, sizeof t->cluster, "%s/a.cluster", t->folder);
}

/* A path for a new run directory. */
static inline const char *tiny_out(struct tiny *t, char path[128])
{
    snprintf(path, 128, "%s/run-%d", t->folder, ++t->runs);
    return path;
}

static inline void tiny_remove(struct tiny *t)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", t->folder);
    if (system(command) != 0)
        abort();
}

/* Setup of a group of tests; the tiny job is its state. */
static inline int tiny_setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    *state = &tiny;
    return 0;
}

static inline int tiny_setup_elastic(void **state)
{
    tiny_setup(state);
    tiny_elastic(*state);
    return 0;
}

static inline int tiny_teardown(void **state)
{
    tiny_remove(*state);
    return 0;
}

#endif

/* A small model with everything that a checkpoint may contain, in a folder of its own; its contents
 * at exchange n are known, so that tests compare loaded checkpoints to the bit. */
#ifndef PL_LIB_CHECKPOINT_SAMPLE_H
#define PL_LIB_CHECKPOINT_SAMPLE_H

#include "base/rng.h"
#include "folder.h"
#include "real/disk.h"
#include "train/checkpoint.h"

#include <math.h>

enum { SAMPLE_ROOM = 512 };

/* A small model: two segments, one of state, an optimizer with two vectors. */
struct sample {
    struct folder folder;
    struct arena arena;
    struct segments x, s;
    struct optim_ops optim;
    struct rundir dir;
    struct model_layout layout;
    char log[4096];
    struct logger logger;
};

static inline void sample_line(void *user, enum log_level level, const char *line)
{
    struct sample *sample = user;
    size_t n = strlen(sample->log);
    (void)level;
    snprintf(sample->log + n, sizeof sample->log - n, "%s\n", line);
}

static inline int sample_setup(void **state)
{
    struct sample *m = calloc(1, sizeof *m);
    assert_non_null(m);
    folder_make(&m->folder);
    arena_init(&m->arena);
    const struct shape weights = {4, {2, 1, 3, 3}}, bias = {1, {2}}, mean = {1, {3}};
    assert_non_null(segments_add(&m->x, &m->arena, "conv.0", &weights, 1, 1));
    assert_non_null(segments_add(&m->x, &m->arena, "conv.1", &bias, 1, 1));
    assert_non_null(segments_add(&m->s, &m->arena, "norm.0", &mean, 0, 0));
    static const char *const extra_name[] = {"own"};
    m->optim = (struct optim_ops){.type = "Two", .states = 2, .state_name = {"first", "second"}};
    m->layout = (struct model_layout){
        .x = &m->x, .s = &m->s, .optim = &m->optim, .has_state = true, .extra_name = extra_name};
    m->dir.disk = real_disk();
    snprintf(m->dir.path, sizeof m->dir.path, "%s", m->folder.path);
    m->logger = (struct logger){sample_line, m, LOG_DEBUG};
    assert_true(model_floats_most(&m->layout) <= SAMPLE_ROOM);
    *state = m;
    return 0;
}

static inline int sample_teardown(void **state)
{
    struct sample *m = *state;
    folder_remove(&m->folder);
    arena_release(&m->arena);
    free(m);
    return 0;
}

/* Values of the model of exchange n, the odd ones among them; padding is zero. */
static inline void sample_fill(const struct sample *m, uint64_t n, float model[SAMPLE_ROOM])
{
    memset(model, 0, SAMPLE_ROOM * sizeof *model);
    const struct segments *part[] = {&m->x, &m->s, &m->x, &m->x};
    static const float odd[] = {-0.0f, INFINITY, NAN, 1e-42f, -3.4e38f};
    for (size_t p = 0, at = 0; p < 4; at += part[p++]->total)
        for (size_t i = 0; i < part[p]->count; i++)
            for (size_t k = 0; k < part[p]->at[i].len; k++) {
                uint64_t draw = rng_below(5, n, p * 1000 + i * 100 + k, 1000);
                model[at + part[p]->at[i].offset + k] =
                    draw < 50 ? odd[draw % 5] : (float)draw * 0.37f - 100;
            }
    size_t carried = carried_state_floats(m->layout.streams, m->layout.row);
    float *end = model + model_floats(&m->layout);
    for (size_t i = 1; m->layout.has_carried && i <= carried; i++)
        *(end - i) = (float)(n * 100 + i);
}

static inline struct checkpoint_header sample_header_of(uint64_t n)
{
    return (struct checkpoint_header){
        .progress = {.sample_offset = n * 64, .steps = n * 4, .exchanges = n},
        .updates = n + 5,
        .used = n * 64 - 3,
        .missed = 3,
        .seed = UINT64_MAX,
        .job_hash = 0xfedcba9876543210,
        .data_hash = n,
        .records = 540,
        .best_score = 0.1 + (double)n,
        .incarnation = UINT32_MAX,
    };
}

static inline int sample_save_to(const struct sample *m, struct disk *disk, uint64_t n,
                                 uint32_t keep, struct err *err)
{
    float model[SAMPLE_ROOM];
    uint64_t bytes;
    struct rundir dir = m->dir;
    struct checkpoint_header header = sample_header_of(n);
    dir.disk = disk;
    sample_fill(m, n, model);
    return checkpoint_save(&dir, &header, &m->layout, model, keep, &bytes, err);
}

static inline void sample_save(const struct sample *m, uint64_t n, uint32_t keep)
{
    struct err err = {0};
    if (sample_save_to(m, real_disk(), n, keep, &err) != OK)
        fail_msg("%s", err.text);
}

static inline int sample_load(struct sample *m, float model[SAMPLE_ROOM],
                              struct checkpoint_header *header, struct err *err)
{
    memset(model, 0, SAMPLE_ROOM * sizeof *model);
    m->log[0] = '\0';
    return checkpoint_load(&m->dir, &m->logger, &m->layout, model, header, err);
}

/* The newest that can be loaded is that of exchange n, whole. */
static inline void sample_expect_loaded(struct sample *m, uint64_t n)
{
    float model[SAMPLE_ROOM], want[SAMPLE_ROOM];
    struct err err = {0};
    struct checkpoint_header header, wrote = sample_header_of(n);
    if (sample_load(m, model, &header, &err) != OK)
        fail_msg("%s", err.text);
    sample_fill(m, n, want);
    assert_int_equal(header.progress.exchanges, n);
    assert_int_equal(header.progress.sample_offset, wrote.progress.sample_offset);
    assert_int_equal(header.progress.steps, wrote.progress.steps);
    assert_true(header.used == wrote.used && header.missed == wrote.missed);
    assert_int_equal(header.updates, m->layout.has_state ? wrote.updates : 0);
    assert_true(header.seed == wrote.seed && header.incarnation == wrote.incarnation);
    assert_true(header.job_hash == wrote.job_hash && header.data_hash == wrote.data_hash);
    size_t floats = model_floats(&m->layout);
    assert_memory_equal(model, want, floats * sizeof *model);
}

#endif

#include "tensor/kernels_onednn.h"

#include "base/fault.h"
#include "tensor/isa.h"

#include <string.h>

void onednn_limit_isa(void)
{
    static const dnnl_cpu_isa_t limits[ISAS] = {
        [ISA_PLAIN] = dnnl_cpu_isa_sse41, [ISA_AVX2] = dnnl_cpu_isa_avx2};
    if (isa_is_limited())
        (void)dnnl_set_max_cpu_isa(limits[isa_best()]);
}

/* Add `by` to the number of callers that need an empty cache. The capacity belongs to the process,
 * and several engines may tune at once: the first saves it, and the last restores it. */
static dnnl_status_t count_keepers_of_none(int by)
{
    static int wanting, capacity;
    dnnl_status_t status = dnnl_success;
#pragma omp critical(onednn_primitives)
    {
        if (by > 0 && wanting == 0)
            status = dnnl_get_primitive_cache_capacity(&capacity);
        if (!status && wanting == (by > 0 ? 0 : 1))
            status = dnnl_set_primitive_cache_capacity(by > 0 ? 0 : capacity);
        wanting += status ? 0 : by;
    }
    return status;
}

dnnl_status_t onednn_keep_no_primitives(void)
{
    return count_keepers_of_none(1);
}

void onednn_keep_primitives(void)
{
    dnnl_status_t status = count_keepers_of_none(-1);
    PL_ASSERT(status == dnnl_success);
}

int onednn_init(struct onednn *dnn, struct err *err)
{
    onednn_limit_isa();
    dnnl_status_t status = dnnl_engine_create(&dnn->engine, dnnl_cpu, 0);
    if (!status)
        status = dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags);
    if (!status)
        status = dnnl_primitive_attr_create(&dnn->attr);
    if (!status)
        status = dnnl_primitive_attr_set_scratchpad_mode(dnn->attr, dnnl_scratchpad_mode_user);
    return status ? onednn_fail(status, NULL, "an engine", err) : OK;
}

void onednn_cut(struct onednn *dnn, size_t steps, size_t memories)
{
    while (dnn->n_steps > steps) {
        dnn->n_steps--;
        dnnl_primitive_destroy(dnn->steps[dnn->n_steps].primitive);
        dnn->scratch[dnn->n_steps] = NULL;
    }
    while (dnn->n_memories > memories)
        dnnl_memory_destroy(dnn->memories[--dnn->n_memories]);
}

void onednn_release(struct onednn *dnn)
{
    onednn_cut(dnn, 0, 0);
    if (dnn->attr)
        dnnl_primitive_attr_destroy(dnn->attr);
    if (dnn->stream)
        dnnl_stream_destroy(dnn->stream);
    if (dnn->engine)
        dnnl_engine_destroy(dnn->engine);
    *dnn = (struct onednn){0};
}

int onednn_fail(dnnl_status_t status, const char *slow, const char *what, struct err *err)
{
    if (slow)
        return err_set(err, ERR_UNSUPPORTED, "oneDNN has no fast code for %s: only %s", what, slow);
    if (status == dnnl_out_of_memory)
        return err_set(err, ERR_NOMEM, "oneDNN: no memory for %s", what);
    return err_set(err, ERR_UNSUPPORTED, "oneDNN: cannot make %s (its status %d)", what,
                   (int)status);
}

dnnl_status_t onednn_memory(struct onednn *dnn, onednn_desc desc, void *data, dnnl_memory_t *out)
{
    PL_ASSERT(dnn->n_memories < ONEDNN_MEMORIES_MAX);
    dnnl_memory_t memory;
    dnnl_status_t status =
        dnnl_memory_create(&memory, desc, dnn->engine, data ? data : DNNL_MEMORY_NONE);
    if (!status)
        *out = dnn->memories[dnn->n_memories++] = memory;
    return status;
}

dnnl_status_t onednn_memory_own(struct onednn *dnn, onednn_desc desc, struct arena *arena,
                                size_t *bytes, dnnl_memory_t *out, void **data)
{
    size_t size = dnnl_memory_desc_get_size(desc);
    *data = arena_alloc(arena, 1, size);
    if (!*data)
        return dnnl_out_of_memory;
    *bytes += size;
    return onednn_memory(dnn, desc, *data, out);
}

static onednn_desc desc_of(dnnl_memory_t memory)
{
    onednn_desc desc = NULL;
    dnnl_status_t status = dnnl_memory_get_memory_desc(memory, &desc);
    PL_ASSERT(status == dnnl_success);
    return desc;
}

dnnl_status_t onednn_memory_like(struct onednn *dnn, dnnl_memory_t like, dnnl_memory_t *out)
{
    return onednn_memory(dnn, desc_of(like), NULL, out);
}

bool onednn_has_form(dnnl_memory_t memory, onednn_desc desc)
{
    return dnnl_memory_desc_equal(desc_of(memory), desc);
}

const char *onednn_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return name ? name : "";
}

const char *onednn_slow(const_dnnl_primitive_desc_t pd)
{
    const char *name = onednn_name(pd);
    bool slow = strstr(name, "ref:") || strstr(name, ":ref") || !strncmp(name, "simple", 6);
    return slow ? name : NULL;
}

dnnl_status_t onednn_step(struct onednn *dnn, const_dnnl_primitive_desc_t pd,
                          struct onednn_step **out)
{
    PL_ASSERT(dnn->n_steps < ONEDNN_STEPS_MAX);
    struct onednn_step *step = &dnn->steps[dnn->n_steps];
    *step = (struct onednn_step){0};
    dnnl_status_t status = dnnl_primitive_create(&step->primitive, pd);
    if (status)
        return status;
    size_t index = dnn->n_steps++;
    onednn_desc desc = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    size_t bytes = desc ? dnnl_memory_desc_get_size(desc) : 0;
    if (bytes) {
        status = onednn_memory(dnn, desc, NULL, &dnn->scratch[index]);
        if (status)
            return status;
        onednn_step_arg(step, DNNL_ARG_SCRATCHPAD, dnn->scratch[index]);
        dnn->scratch_bytes = bytes > dnn->scratch_bytes ? bytes : dnn->scratch_bytes;
    }
    *out = step;
    return dnnl_success;
}

void onednn_step_arg(struct onednn_step *step, int arg, dnnl_memory_t memory)
{
    PL_ASSERT(step->n_args < ONEDNN_ARGS_MAX);
    step->args[step->n_args++] = (dnnl_exec_arg_t){arg, memory};
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(ops, 1);
#endif
}

static dnnl_status_t attr_with_sum(const struct onednn *dnn, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_clone(out, dnn->attr);
    if (status)
        return status;
    status = dnnl_post_ops_create(&ops);
    if (!status)
        status = append_sum(ops);
    if (!status)
        status = dnnl_primitive_attr_set_post_ops(*out, ops);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (status)
        dnnl_primitive_attr_destroy(*out);
    return status;
}

dnnl_status_t onednn_step_reorder(struct onednn *dnn, dnnl_memory_t from, dnnl_memory_t to,
                                  bool add, struct onednn_step **out)
{
    dnnl_primitive_attr_t attr = dnn->attr;
    dnnl_status_t status = add ? attr_with_sum(dnn, &attr) : dnnl_success;
    if (status)
        return status;
    dnnl_primitive_desc_t pd;
    status = dnnl_reorder_primitive_desc_create(&pd, desc_of(from), dnn->engine, desc_of(to),
                                                dnn->engine, attr);
    if (add)
        dnnl_primitive_attr_destroy(attr);
    if (status)
        return status;
    status = onednn_step(dnn, pd, out);
    dnnl_primitive_desc_destroy(pd);
    if (status)
        return status;
    onednn_step_arg(*out, DNNL_ARG_FROM, from);
    onednn_step_arg(*out, DNNL_ARG_TO, to);
    return dnnl_success;
}

int onednn_plan_scratch(struct onednn *dnn, struct arena *arena, struct err *err)
{
    void *scratch = arena_alloc(arena, 1, dnn->scratch_bytes);
    if (!scratch)
        return onednn_fail(dnnl_out_of_memory, NULL, "scratch", err);
    for (size_t i = 0; i < dnn->n_steps; i++)
        if (dnn->scratch[i])
            onednn_bind(dnn->scratch[i], scratch);
    return OK;
}

size_t onednn_scratch_of(const struct onednn *dnn, size_t first)
{
    size_t most = 0;
    for (size_t i = first; i < dnn->n_steps; i++) {
        size_t bytes = dnn->scratch[i] ? dnnl_memory_desc_get_size(desc_of(dnn->scratch[i])) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

void onednn_scratch_bind(struct onednn *dnn, size_t first, size_t end, void *at)
{
    for (size_t i = first; i < end; i++)
        if (dnn->scratch[i])
            onednn_bind(dnn->scratch[i], at);
}

void onednn_bind(dnnl_memory_t memory, const void *data)
{
    /* oneDNN has one handle for inputs and outputs, hence not const. */
    dnnl_status_t status = dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data);
    PL_ASSERT(status == dnnl_success);
}

void onednn_run(const struct onednn *dnn, const struct onednn_step *step)
{
    dnnl_status_t status =
        dnnl_primitive_execute(step->primitive, dnn->stream, step->n_args, step->args);
    PL_ASSERT(status == dnnl_success);
}

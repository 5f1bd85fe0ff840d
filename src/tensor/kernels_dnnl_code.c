/* oneDNN's convolutions, and the list of all codes. A primitive that wants its images in another
 * form than theirs is given copies, made by reorders in scratch; its weights it gets in the form it
 * chose, once a pass. */
#include "tensor/kernels_dnnl_code.h"

#include "base/fault.h"
#include "tensor/isa.h"
#include "tensor/kernels_common.h"
#include "tensor/winograd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An argument: the caller's array, and where the primitive wants another form, a copy in it. */
struct port {
    dnnl_memory_t user, own;   /* own == user: there is no copy */
    struct onednn_step *order; /* between them; NULL: none */
    size_t at;                 /* the copy's offset in scratch; SIZE_MAX: there is none */
};

struct library_code {
    struct conv_code code;
    struct onednn *dnn;
    struct op_scratch *scratch;
    enum onednn_pass pass;
    struct port in, out, w; /* weights' gradient: in and out are x and dy, w is dw */
    dnnl_memory_t b;        /* or db, in scratch; NULL: there is none */
    size_t b_at, channels;
    struct onednn_step *run;
    size_t first_step, end_step, steps_at; /* the steps whose scratch is there */
    void *bound;                           /* the scratch that the offsets were bound to */
};

/* ---- running ---- */

static void bind_place(const struct port *port, char *base)
{
    if (port->own != port->user && port->at != SIZE_MAX)
        onednn_bind(port->own, base + port->at);
}

/* Binding may cost more than setting a pointer (padding is zeroed), so it is done once. */
static void bind_scratch(struct library_code *c)
{
    char *base = c->scratch->at;
    if (c->bound == base)
        return;
    bind_place(&c->in, base);
    bind_place(&c->out, base);
    bind_place(&c->w, base);
    if (c->b && c->b_at != SIZE_MAX)
        onednn_bind(c->b, base + c->b_at);
    onednn_scratch_bind(c->dnn, c->first_step, c->end_step, base + c->steps_at);
    c->bound = base;
}

static void order_codes(const struct library_code *c, const struct port *port)
{
    if (port->order)
        onednn_run(c->dnn, port->order);
}

static void run_values(struct conv_code *code, const struct op_args *args)
{
    struct library_code *c = (struct library_code *)code;
    bool forward = c->pass == ONEDNN_FORWARD;
    bind_scratch(c);
    onednn_bind(c->in.user, forward ? args->x : args->dy);
    onednn_bind(c->out.user, forward ? args->y : args->dx);
    onednn_bind(c->w.user, args->w);
    if (c->b)
        onednn_bind(c->b, args->b);
    order_codes(c, &c->in);
    order_codes(c, &c->w);
    onednn_run(c->dnn, c->run);
    order_codes(c, &c->out);
}

static void run_weights(struct conv_code *code, const struct op_args *args)
{
    struct library_code *c = (struct library_code *)code;
    bind_scratch(c);
    onednn_bind(c->in.user, args->x);
    onednn_bind(c->out.user, args->dy);
    onednn_bind(c->w.user, args->dw);
    order_codes(c, &c->in);
    order_codes(c, &c->out);
    onednn_run(c->dnn, c->run);
    order_codes(c, &c->w); /* adds */
    if (c->b)
        add_floats(c->channels, (const float *)((char *)c->scratch->at + c->b_at), args->db);
}

/* ---- planning ---- */

/* The offset of `bytes` more, after *end. */
static size_t take_code(size_t *end, size_t bytes)
{
    size_t at = *end;
    *end += (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    return at;
}

/* The copy, unless the caller's array will do. An array that is added to always has a reorder. */
static dnnl_status_t plan_port(struct onednn *dnn, struct port *port, onednn_desc form, bool adds,
                               size_t *end)
{
    port->own = port->user;
    port->at = SIZE_MAX;
    if (!adds && onednn_has_form(port->user, form))
        return dnnl_success;
    port->at = take_code(end, dnnl_memory_desc_get_size(form));
    return onednn_memory(dnn, form, NULL, &port->own);
}

/* The other direction may have reordered the weights into this form already: they then get their
 * own memory, and stay there. */
static dnnl_status_t share_weights(const struct conv_site *site, struct port *w, onednn_desc form,
                                   bool *shared)
{
    struct library_code *first = site->first ? site->first->library : NULL;
    *shared = first && first->w.own != first->w.user && onednn_has_form(first->w.own, form);
    if (!*shared)
        return dnnl_success;
    if (first->w.at != SIZE_MAX) {
        size_t bytes = dnnl_memory_desc_get_size(form);
        void *kept = arena_alloc(site->arena, 1, bytes);
        if (!kept)
            return dnnl_out_of_memory;
        *site->bytes += bytes;
        onednn_bind(first->w.own, kept);
        first->w.at = SIZE_MAX;
    }
    w->own = first->w.own;
    w->at = SIZE_MAX;
    return dnnl_success;
}

struct names {
    dnnl_query_t in, out, w, b;
    int in_arg, out_arg, w_arg, b_arg;
};

static const struct names names_of[] = {
    [ONEDNN_FORWARD] = {dnnl_query_src_md, dnnl_query_dst_md, dnnl_query_weights_md,
                        dnnl_query_weights_md, DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS,
                        DNNL_ARG_BIAS},
    [ONEDNN_BACKWARD_DATA] = {dnnl_query_diff_dst_md, dnnl_query_diff_src_md, dnnl_query_weights_md,
                              dnnl_query_weights_md, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC,
                              DNNL_ARG_WEIGHTS, 0},
    [ONEDNN_BACKWARD_WEIGHTS] = {dnnl_query_src_md, dnnl_query_diff_dst_md,
                                 dnnl_query_diff_weights_md, dnnl_query_diff_weights_md,
                                 DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                 DNNL_ARG_DIFF_BIAS},
};

static dnnl_status_t plan_ports(const struct conv_site *site, const_dnnl_primitive_desc_t pd,
                                struct library_code *c, size_t *end)
{
    const struct names *n = &names_of[c->pass];
    const struct conv_spec *s = site->spec;
    struct onednn *dnn = site->dnn;
    bool data = c->pass == ONEDNN_BACKWARD_DATA, weights = c->pass == ONEDNN_BACKWARD_WEIGHTS;
    bool shared = false;
    onednn_desc form = dnnl_primitive_desc_query_md(pd, n->w, 0);
    dnnl_status_t status = onednn_memory_image(dnn, s, data ? &s->y : &s->x, &c->in.user);
    if (!status)
        status = onednn_memory_image(dnn, s, data ? &s->x : &s->y, &c->out.user);
    if (!status)
        status = onednn_memory_weights(dnn, s, &c->w.user);
    if (!status)
        status = plan_port(dnn, &c->in, dnnl_primitive_desc_query_md(pd, n->in, 0), false, end);
    if (!status)
        status = plan_port(dnn, &c->out, dnnl_primitive_desc_query_md(pd, n->out, 0), false, end);
    if (!status && !weights)
        status = share_weights(site, &c->w, form, &shared);
    if (!status && !shared)
        status = plan_port(dnn, &c->w, form, weights, end);
    if (!status && s->bias && !data)
        status = onednn_memory(dnn, dnnl_primitive_desc_query_md(pd, n->b, 1), NULL, &c->b);
    c->b_at = weights && c->b ? take_code(end, s->y.dim[1] * sizeof(float)) : SIZE_MAX;
    if (status || shared)
        return status;
    if (weights)
        return onednn_step_reorder(dnn, c->w.own, c->w.user, true, &c->w.order);
    return c->w.own == c->w.user
               ? dnnl_success
               : onednn_step_reorder(dnn, c->w.user, c->w.own, false, &c->w.order);
}

static dnnl_status_t plan_orders(const struct conv_site *site, struct library_code *c)
{
    dnnl_status_t status = dnnl_success;
    bool weights = c->pass == ONEDNN_BACKWARD_WEIGHTS;
    if (c->in.own != c->in.user)
        status = onednn_step_reorder(site->dnn, c->in.user, c->in.own, false, &c->in.order);
    if (status || c->out.own == c->out.user)
        return status;
    dnnl_memory_t from = weights ? c->out.user : c->out.own;
    dnnl_memory_t to = weights ? c->out.own : c->out.user;
    return onednn_step_reorder(site->dnn, from, to, false, &c->out.order);
}

static dnnl_status_t plan_primitive(const struct conv_site *site, const_dnnl_primitive_desc_t pd,
                                    struct library_code *c)
{
    const struct names *n = &names_of[c->pass];
    size_t end = 0;
    c->first_step = site->dnn->n_steps;
    dnnl_status_t status = plan_ports(site, pd, c, &end);
    if (!status)
        status = plan_orders(site, c);
    if (!status)
        status = onednn_step(site->dnn, pd, &c->run);
    if (status)
        return status;
    onednn_step_arg(c->run, n->in_arg, c->in.own);
    onednn_step_arg(c->run, n->out_arg, c->out.own);
    onednn_step_arg(c->run, n->w_arg, c->w.own);
    if (c->b)
        onednn_step_arg(c->run, n->b_arg, c->b);
    c->end_step = site->dnn->n_steps;
    c->steps_at = take_code(&end, onednn_scratch_of(site->dnn, c->first_step));
    if (end > site->scratch->bytes)
        site->scratch->bytes = end;
    return dnnl_success;
}

/* ---- finding ---- */

/* Its name in a table: oneDNN's, and whether images are reordered. Winograd, which has only one
 * form, may get images that have it already. */
static void name_library(const_dnnl_primitive_desc_t pd, bool reordered, char *out)
{
    snprintf(out, TUNER_NAME_MAX + 1, "%.48s%s", onednn_name(pd), reordered ? " reordered" : "");
}

static struct onednn_conv conv_of(const struct conv_site *site,
                                  const struct conv_candidate *candidate)
{
    return (struct onednn_conv){
        .spec = site->spec,
        .pass = site->pass,
        .training = site->training,
        .winograd = candidate->winograd,
        .any_form = candidate->any_form,
    };
}

static bool see_named(void *user, const_dnnl_primitive_desc_t pd)
{
    const struct conv_candidate *want = user;
    char name[TUNER_NAME_MAX + 1];
    name_library(pd, want->reordered, name);
    return strcmp(name, want->name) == 0;
}

static dnnl_status_t plan_library(const struct conv_site *site,
                                  const struct conv_candidate *candidate, struct conv_code **out)
{
    struct conv_candidate want = *candidate;
    struct onednn_conv conv = conv_of(site, candidate);
    dnnl_primitive_desc_t pd;
    struct library_code *c = arena_new(site->arena, struct library_code);
    if (!c)
        return dnnl_out_of_memory;
    dnnl_status_t status = onednn_conv_find(site->dnn, &conv, see_named, &want, &pd);
    if (status)
        return status;
    *c = (struct library_code){
        .code = {.run = site->pass == ONEDNN_BACKWARD_WEIGHTS ? run_weights : run_values,
                 .library = c},
        .dnn = site->dnn,
        .scratch = site->scratch,
        .pass = site->pass,
        .channels = site->spec->y.dim[1],
    };
    status = plan_primitive(site, pd, c);
    c->code.reorders = (struct op_reorders){
        .images = (c->in.order ? 1u : 0u) + (c->out.order ? 1u : 0u),
        .weights = c->w.order != NULL,
    };
    dnnl_primitive_desc_destroy(pd);
    *out = &c->code;
    return status;
}

/* Codes that were seen for one question to oneDNN. */
struct seen {
    struct conv_candidate *out;
    size_t count, here;
    bool winograd, any_form;
    const struct conv_site *site;
    dnnl_memory_t x, y; /* as they lie */
};

/* At most this many candidates of one query: later ones in oneDNN's order were never the
 * fastest. */
enum { SEEN_MAX = 3, SEEN_REORDERED_MAX = 1 };

/* Is it written for narrower vectors than the processor has? Not applied to the first of a
 * query. */
static bool narrow_codes(const char *name)
{
    return (isa_best() > ISA_PLAIN && strstr(name, ":sse41")) ||
           (isa_best() > ISA_AVX2 && strstr(name, ":avx2"));
}

/* Does it want its images as they are? */
static bool takes_as_is(const struct seen *seen, const_dnnl_primitive_desc_t pd)
{
    const struct names *n = &names_of[seen->site->pass];
    bool data = seen->site->pass == ONEDNN_BACKWARD_DATA;
    return onednn_has_form(data ? seen->y : seen->x, dnnl_primitive_desc_query_md(pd, n->in, 0)) &&
           onednn_has_form(data ? seen->x : seen->y, dnnl_primitive_desc_query_md(pd, n->out, 0));
}

enum { AMX_WIDTH_MAX = 512 };

/* Kernels of oneDNN 2.6 with wrong results. With AMX its code generation for the gradient of
 * weights never ends if windows of three pixels slide over images wider than 736. For windows of
 * one pixel, with a stride, if channels do not fill its vectors, it writes past the scratch that it
 * requested: of floats, in the gradient of weights. Of bf16 it multiplies channels in pairs, the
 * last of an odd number with what comes after it. */
static bool is_known_wrong(const struct conv_spec *s, enum onednn_pass pass, const char *name)
{
    size_t C = s->x.dim[1] / s->groups, O = s->y.dim[1] / s->groups;
    bool strided = s->stride_h > 1 || s->stride_w > 1;
    if (pass == ONEDNN_BACKWARD_WEIGHTS && s->x.dim[3] > AMX_WIDTH_MAX && strstr(name, "amx"))
        return true;
    if (strncmp(name, "jit_bf16_1x1", 12) == 0)
        return C % 2 != 0 || O % 2 != 0 || (strided && C % 16 != 0);
    return pass == ONEDNN_BACKWARD_WEIGHTS && strided && C % 8 != 0 &&
           strncmp(name, "jit_1x1", 7) == 0;
}

static bool see_all(void *user, const_dnnl_primitive_desc_t pd)
{
    struct seen *seen = user;
    bool reordered = seen->any_form && !takes_as_is(seen, pd);
    bool seen_before = seen->any_form && !seen->winograd && !reordered;
    if (onednn_slow(pd) || is_known_wrong(seen->site->spec, seen->site->pass, onednn_name(pd)) ||
        seen_before)
        return false;
    struct conv_candidate *c = &seen->out[seen->count];
    *c = (struct conv_candidate){
        .winograd = seen->winograd, .any_form = seen->any_form, .reordered = reordered};
    name_library(pd, reordered, c->name);
    if (seen->here > 0 && narrow_codes(c->name))
        return false;
    for (size_t i = 0; i < seen->count; i++)
        if (strcmp(seen->out[i].name, c->name) == 0)
            return false;
    seen->count++;
    return ++seen->here == (seen->any_form ? SEEN_REORDERED_MAX : SEEN_MAX) ||
           seen->count == CONV_CANDIDATES_MAX;
}

static void query_code(struct seen *seen, bool winograd, bool any_form)
{
    dnnl_primitive_desc_t pd;
    seen->winograd = winograd;
    seen->any_form = any_form;
    seen->here = 0;
    if (seen->count == CONV_CANDIDATES_MAX)
        return;
    struct conv_candidate kind = {.winograd = winograd, .any_form = any_form};
    struct onednn_conv conv = conv_of(seen->site, &kind);
    if (onednn_conv_find(seen->site->dnn, &conv, see_all, seen, &pd) == dnnl_success)
        dnnl_primitive_desc_destroy(pd);
}

/* PACELINE_WINOGRAD=off: the library's kernels alone, to measure the benefit of Paceline's own. */
static bool own_winograd(const struct conv_spec *spec)
{
    const char *text = getenv("PACELINE_WINOGRAD");
    return !spec->blocks && winograd_fits(spec) && !(text && strcmp(text, "off") == 0);
}

size_t conv_candidates(const struct conv_site *site, struct conv_candidate *out)
{
    const struct conv_spec *s = site->spec;
    struct seen seen = {.out = out, .site = site};
    if (!s->blocks && code_product_fits(s))
        out[seen.count++] = (struct conv_candidate){.name = "product", .kind = CODE_PRODUCT};
    if (own_winograd(s))
        out[seen.count++] = (struct conv_candidate){.name = "winograd", .kind = CODE_WINOGRAD};
    if (onednn_memory_image(site->dnn, s, &s->x, &seen.x) != dnnl_success ||
        onednn_memory_image(site->dnn, s, &s->y, &seen.y) != dnnl_success)
        return seen.count;
    query_code(&seen, false, false);
    query_code(&seen, false, true);
    query_code(&seen, true, true);
    return seen.count;
}

/* oneDNN's first choice is a product of matrices over the input channels, which has next to nothing
 * to sum over when these are fewer than this; its second choice is faster then. */
enum { BRGCONV_CHANNELS_MIN = 4 };

bool conv_see_allowed(void *user, const_dnnl_primitive_desc_t pd)
{
    const struct onednn_conv *conv = user;
    const struct conv_spec *spec = conv->spec;
    const char *name = onednn_name(pd);
    bool few = spec->x.dim[1] / spec->groups < BRGCONV_CHANNELS_MIN;
    return (!few || strncmp(name, "brgconv", 7) != 0) && !is_known_wrong(spec, conv->pass, name);
}

dnnl_status_t conv_rule(const struct conv_site *site, struct conv_candidate *out)
{
    dnnl_primitive_desc_t pd;
    *out = (struct conv_candidate){.kind = CODE_LIBRARY};
    struct onednn_conv conv = conv_of(site, out);
    dnnl_status_t status = onednn_conv_find(site->dnn, &conv, conv_see_allowed, &conv, &pd);
    if (status)
        return status;
    bool slow = onednn_slow(pd);
    name_library(pd, false, out->name);
    dnnl_primitive_desc_destroy(pd);
    if (slow)
        return dnnl_unimplemented;
    if (site->pass == ONEDNN_BACKWARD_WEIGHTS && !site->spec->blocks) {
        out->kind = CODE_SLICES;
        strncat(out->name, " in slices", TUNER_NAME_MAX - strlen(out->name));
    }
    return dnnl_success;
}

static dnnl_status_t plan_kind(const struct conv_site *site, const struct conv_candidate *candidate,
                               struct conv_code **out)
{
    switch (candidate->kind) {
    case CODE_LIBRARY: return plan_library(site, candidate, out);
    case CODE_SLICES: return code_plan_slices(site, out);
    case CODE_PRODUCT: return code_plan_product(site, out);
    case CODE_WINOGRAD: return code_plan_winograd(site, out);
    }
    return dnnl_unimplemented;
}

dnnl_status_t conv_code_plan(const struct conv_site *site, const struct conv_candidate *candidate,
                             struct conv_code **out)
{
    struct library_code *first = site->first ? site->first->library : NULL;
    struct arena_mark mark = arena_mark(site->arena);
    size_t steps = site->dnn->n_steps, memories = site->dnn->n_memories, bytes = *site->bytes;
    size_t w_at = first ? first->w.at : SIZE_MAX;
    dnnl_status_t status = plan_kind(site, candidate, out);
    if (!status)
        return status;
    if (first)
        first->w.at = w_at; /* share_weights had moved it */
    onednn_cut(site->dnn, steps, memories);
    arena_rewind(site->arena, &mark);
    *site->bytes = bytes;
    *out = NULL;
    return status;
}

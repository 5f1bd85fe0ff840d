/* Structs of options of other sizes than this library's, as programs have them that were built with
 * older or newer headers; and of none. */
#include "free_port.h"
#include "paceline/bench.h"
#include "paceline/data.h"
#include "paceline/kv.h"
#include "paceline/lr_range.h"
#include "paceline/plan.h"
#include "paceline/shared.h"
#include "paceline/team.h"
#include "tiny_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct stage {
    struct tiny tiny;
    pl_engine *engine;
    pl_job *job;
    pl_cluster *cluster;
};

static int setup(void **state)
{
    static struct stage s;
    void *tiny = NULL;
    if (tiny_setup(&tiny) != 0)
        return -1;
    s.tiny = *(struct tiny *)tiny;
    *state = &s;
    tiny_cluster(&s.tiny, "node { count: 2 } step_seconds: 0.004\n");
    return pl_engine_create(NULL, &s.engine) == PL_OK &&
                   pl_job_load(s.engine, s.tiny.job, &s.job) == PL_OK &&
                   pl_cluster_load(s.engine, s.tiny.cluster, &s.cluster) == PL_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    struct stage *s = *state;
    void *tiny = &s->tiny;
    pl_cluster_free(s->cluster);
    pl_job_free(s->job);
    pl_engine_destroy(s->engine);
    return tiny_teardown(&tiny);
}

static void expect_status(struct stage *s, int is, int status, const char *phrase)
{
    const char *text = is == PL_OK ? "" : pl_engine_error(s->engine);
    if (is != status || !strstr(text, phrase))
        fail_msg("ended with %d: %s; expected %d, and '%s'", is, text, status, phrase);
}

static pl_net_spec *load_net(struct stage *s)
{
    pl_net_spec *spec = NULL;
    assert_int_equal(pl_net_spec_job(s->job, &spec), PL_OK);
    return spec;
}

/* ---- older programs ---- */

/* The options of a program whose pl_net_options ended before `kernels`; there is no byte behind. */
static pl_net_options *older_options(uint32_t batch)
{
    const size_t size = offsetof(pl_net_options, kernels);
    pl_net_options *options = calloc(1, size);
    assert_non_null(options);
    options->size = size;
    options->batch = batch;
    options->threads = 1;
    return options;
}

static void test_an_older_struct_has_its_fields_and_defaults(void **state)
{
    struct stage *s = *state;
    pl_net_spec *spec = load_net(s);
    pl_net *net = NULL;
    pl_net_options *options = older_options(65537);
    expect_status(s, pl_net_create(s->engine, spec, options, &net), PL_ERR_INPUT, "batch");
    free(options);
    options = older_options(16);
    expect_status(s, pl_net_create(s->engine, spec, options, &net), PL_OK, "");
    free(options);
    pl_net_free(net);
    pl_net_spec_free(spec);
}

/* The bytes behind the struct name a kernel set that there is not. */
static void test_bytes_behind_an_older_struct_are_not_read(void **state)
{
    struct stage *s = *state;
    pl_net_spec *spec = load_net(s);
    pl_net *net = NULL;
    pl_net_options options = {.size = sizeof options, .batch = 16, .kernels = "abacus"};
    expect_status(s, pl_net_create(s->engine, spec, &options, &net), PL_ERR_USAGE, "abacus");
    options.size = offsetof(pl_net_options, kernels);
    expect_status(s, pl_net_create(s->engine, spec, &options, &net), PL_OK, "");
    pl_net_free(net);
    pl_net_spec_free(spec);
}

/* ---- newer programs ---- */

static void test_a_newer_struct_may_not_set_a_new_field(void **state)
{
    struct stage *s = *state;
    struct {
        pl_net_options known;
        double added;
    } options = {.known = {.size = sizeof options, .batch = 16, .threads = 1}};
    pl_net_spec *spec = load_net(s);
    pl_net *net = NULL;
    expect_status(s, pl_net_create(s->engine, spec, &options.known, &net), PL_OK, "");
    pl_net_free(net);
    options.added = 0.5;
    expect_status(s, pl_net_create(s->engine, spec, &options.known, &net), PL_ERR_UNSUPPORTED,
                  "pl_net_options: a field is set that this library lacks");
    pl_net_spec_free(spec);
}

/* ---- programs that set no size ---- */

static void test_engines_and_data_need_a_size(void **state)
{
    struct stage *s = *state;
    pl_engine *engine = NULL;
    pl_stream *stream = NULL;
    pl_data_verified verified;
    pl_bench_data_report bench;
    const uint8_t value = 1;
    const pl_records records = {
        .count = 1, .channels = 1, .height = 1, .width = 1, .type = PL_U8, .values = &value};
    assert_int_equal(pl_engine_create(&(pl_engine_options){0}, &engine), PL_ERR_USAGE);
    expect_status(s, pl_data_bind(s->engine, "a", &records), PL_ERR_USAGE,
                  "pl_records: size is 0: set it to sizeof(pl_records)");
    expect_status(s, pl_data_map(s->engine, "a", "memory:b", &(pl_map){0}), PL_ERR_USAGE, "pl_map");
    expect_status(s, pl_stream_open(s->engine, "a", &(pl_stream_options){0}, &stream), PL_ERR_USAGE,
                  "pl_stream_options");
    expect_status(s, pl_data_verify(s->engine, "memory:b", false, &(pl_data_check){0}, &verified),
                  PL_ERR_USAGE, "pl_data_check");
    expect_status(s, pl_bench_data(s->engine, "memory:b", &(pl_bench_data_options){0}, &bench),
                  PL_ERR_USAGE, "pl_bench_data_options");
    pl_records sized = records;
    sized.size = sizeof sized;
    expect_status(s, pl_data_bind(s->engine, "a", &sized), PL_OK, "");
    expect_status(s, pl_data_sample(s->engine, "c", "memory:a", &(pl_sample_options){0}),
                  PL_ERR_USAGE, "pl_sample_options");
    pl_data *data = NULL;
    pl_data_packed packed;
    expect_status(s, pl_data_open(s->engine, "memory:a", false, &data), PL_OK, "");
    expect_status(s, pl_data_pack(data, &(pl_data_packing){0}, &packed), PL_ERR_USAGE,
                  "pl_data_packing");
    pl_data_close(data);
}

static void test_runs_and_nets_need_a_size(void **state)
{
    struct stage *s = *state;
    pl_run_report run;
    pl_plan_report plan;
    pl_lr_range_report range;
    pl_bench_step_report bench;
    pl_cluster *cluster = NULL;
    pl_net *net = NULL;
    pl_net_spec *spec = load_net(s);
    const pl_run_options none = {0};
    const pl_sim_options sim = {.size = sizeof sim, .run = &none};
    const uint32_t record[3] = {1, TINY_SIDE, TINY_SIDE};
    expect_status(s, pl_run(s->engine, s->job, &none, &run), PL_ERR_USAGE, "pl_run_options");
    expect_status(s, pl_work(s->engine, &(pl_work_options){0}), PL_ERR_USAGE, "pl_work_options");
    expect_status(s, pl_sim(s->engine, s->job, s->cluster, &(pl_sim_options){0}, &run),
                  PL_ERR_USAGE, "pl_sim_options");
    expect_status(s, pl_sim(s->engine, s->job, s->cluster, &sim, &run), PL_ERR_USAGE,
                  "pl_run_options");
    expect_status(s, pl_survey(s->engine, s->job, 1, &none, &cluster), PL_ERR_USAGE,
                  "pl_run_options");
    expect_status(s, pl_plan(s->engine, s->job, s->cluster, &(pl_plan_options){0}, &plan),
                  PL_ERR_USAGE, "pl_plan_options");
    expect_status(s, pl_lr_range(s->engine, s->job, &(pl_lr_range_options){0}, &range),
                  PL_ERR_USAGE, "pl_lr_range_options");
    expect_status(s, pl_bench_step(s->engine, s->job, &(pl_bench_options){0}, &bench), PL_ERR_USAGE,
                  "pl_bench_options");
    expect_status(s, pl_net_create(s->engine, spec, &(pl_net_options){0}, &net), PL_ERR_USAGE,
                  "pl_net_options");
    expect_status(s, pl_bench_net(s->engine, spec, &(pl_net_options){0}, record, NULL, &bench),
                  PL_ERR_USAGE, "pl_net_options");
    pl_net_spec_free(spec);
}

/* A layer's options; the error is that of the specification. */
static void expect_layer_refusal(struct stage *s, int layer)
{
    static const char *const names[] = {"pl_convolution_options", "pl_weight_options",
                                        "pl_lrn_options", "pl_batch_norm_options",
                                        "pl_weight_options"};
    const pl_weight_options weights = {0};
    pl_convolution_options of_weights = PL_CONVOLUTION_DEFAULTS;
    pl_net_spec *spec = NULL;
    const char *text;
    of_weights.weights = &weights;
    assert_int_equal(pl_net_spec_create(s->engine, "n", &spec), PL_OK);
    pl_spec_input(spec, "data", "label", 1, 8, 8);
    switch (layer) {
    case 0: pl_spec_convolution(spec, "a", "data", 2, 3, &(pl_convolution_options){0}); break;
    case 1: pl_spec_inner_product(spec, "a", "data", 2, &weights); break;
    case 2: pl_spec_lrn(spec, "a", "data", &(pl_lrn_options){0}); break;
    case 3: pl_spec_batch_norm(spec, "a", "data", &(pl_batch_norm_options){0}); break;
    case 4: pl_spec_convolution(spec, "a", "data", 2, 3, &of_weights); break;
    }
    expect_status(s, pl_net_spec_text(spec, &text), PL_ERR_USAGE, names[layer]);
    pl_net_spec_free(spec);
}

static void test_layers_need_a_size(void **state)
{
    for (int layer = 0; layer < 5; layer++)
        expect_layer_refusal(*state, layer);
}

static void test_teams_need_a_size(void **state)
{
    struct stage *s = *state;
    char rendezvous[32];
    port_find(rendezvous);
    const pl_team_options options = {
        .size = sizeof options, .rendezvous = rendezvous, .members = 1};
    pl_team *team = NULL;
    pl_kv *kv = NULL;
    pl_kv_value *value = NULL;
    pl_kv_fetch *fetch = NULL;
    pl_shared *shared = NULL;
    char text[256];
    float x = 1;
    expect_status(s,
                  pl_team_open(s->engine, &(pl_team_options){.rendezvous = "127.0.0.1:0"}, &team),
                  PL_ERR_USAGE, "pl_team_options");
    expect_status(s, pl_team_open(s->engine, &options, &team), PL_OK, "");
    assert_int_equal(pl_team_allreduce(team, &x, 1, &(pl_reduction){0}, NULL), PL_ERR_USAGE);
    assert_non_null(strstr(pl_team_error(team, 0), "pl_reduction"));
    assert_int_equal(pl_team_allreduce(team, &x, 1, NULL, &(pl_call_options){0}), PL_ERR_USAGE);
    assert_non_null(strstr(pl_team_error(team, 0), "pl_call_options"));
    expect_status(s, pl_shared_init(team, "v", 1, 1, &(pl_shared_reduction){0}, &shared),
                  PL_ERR_USAGE, "pl_shared_reduction");
    assert_int_equal(pl_kv_open(team, &kv), PL_OK);
    assert_int_equal(pl_kv_get(kv, &(pl_kv_want){.key = "x"}, &value), PL_ERR_USAGE);
    pl_kv_error(kv, text, sizeof text);
    assert_non_null(strstr(text, "pl_kv_want"));
    assert_int_equal(pl_kv_begin(kv, &(pl_kv_want){.key = "x"}, &fetch), PL_ERR_USAGE);
    pl_team_close(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_older_struct_has_its_fields_and_defaults),
        cmocka_unit_test(test_bytes_behind_an_older_struct_are_not_read),
        cmocka_unit_test(test_a_newer_struct_may_not_set_a_new_field),
        cmocka_unit_test(test_engines_and_data_need_a_size),
        cmocka_unit_test(test_runs_and_nets_need_a_size),
        cmocka_unit_test(test_layers_need_a_size),
        cmocka_unit_test(test_teams_need_a_size),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

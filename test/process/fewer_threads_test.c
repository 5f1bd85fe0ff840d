/* A worker whose two threads spin while busy processes take both processors: it computes with one,
 * and reports this on the terminal of the run. */
#include "crowd.h"
#include "process.h"
#include "tiny_job.h"

enum { LIMIT_S = 140 };

/* Large enough for two threads. */
static const char wide_net[] =
    "name: 'wide'\n"
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'\n"
    "  convolution_param { num_output: 32 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'conv1' top: 'conv1' }\n"
    "layer { name: 'conv2' type: 'Convolution' bottom: 'conv1' top: 'conv2'\n"
    "  convolution_param { num_output: 32 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'conv2' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

static bool output_has(const struct process *p, const char *text)
{
    char *output = process_output(p->err_fd);
    bool found = strstr(output, text) != NULL;
    free(output);
    return found;
}

static void test_preempted_worker_takes_fewer_threads(void **state)
{
    struct tiny t;
    struct process p;
    (void)state;
    tiny_create(&t);
    tiny_write(&t, "net.prototxt", wide_net);
    process_start(&p, t.folder, (const char *const[]){"train",     "tiny.job",
                                                      "--workers", "1",
                                                      "--threads", "2",
                                                      "--kernels", "dnnl",
                                                      "--set",     "batch=128",
                                                      "--set",     "validation=0",
                                                      "--unset",   "test_data",
                                                      "--unset",   "stop.epochs",
                                                      "--set",     "stop.seconds=150",
                                                      "--set",     "solver.base_lr=0.001",
                                                      "--out",     "run",
                                                      NULL});
    double end = process_now() + LIMIT_S;
    while (!process_poll(&p) && !output_has(&p, "1 of 2 threads compute now") &&
           process_now() < end)
        process_nap(0.05);
    if (!output_has(&p, "1 of 2 threads compute now"))
        fail_msg("%s", process_output(p.err_fd));
    assert_false(process_poll(&p));
    kill(p.pid, SIGINT);
    process_wait(&p, LIMIT_S);
    assert_int_equal(p.code, 130);
    process_release(&p);
    tiny_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_preempted_worker_takes_fewer_threads),
    };
    setenv("PACELINE_TUNER", "off", 1);
    setenv("OMP_WAIT_POLICY", "active", 1);
    return cmocka_run_group_tests(tests, crowd_start, crowd_end);
}

#define _GNU_SOURCE
/* All packets of a run, as another machine of its network sees them: of a run with a key they tell
 * neither the model nor a name of the job, of one that does not encrypt they tell both. */
#include "machines.h"
#include "own_network.h"

#include <arpa/inet.h>
#include <math.h>
#include <net/ethernet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { CAPTURE_MAX = 256 << 20, PACKET_MAX = 1 << 18, BUFFER = 64 << 20 };

static struct {
    int fd;
    uint8_t *bytes;
    size_t used;
    atomic_bool over;
    pthread_t thread;
} capture;

static bool has_network; /* of its own */

static const char job_name[] = "job-that-nobody-may-see",
                  layer_name[] = "layer-that-nobody-may-see";

static void *read_packets(void *arg)
{
    (void)arg;
    struct pollfd ready = {.fd = capture.fd, .events = POLLIN};
    while (poll(&ready, 1, 200) > 0 || !atomic_load(&capture.over)) {
        size_t room = CAPTURE_MAX - capture.used;
        ssize_t n = recv(capture.fd, capture.bytes + capture.used,
                         room < PACKET_MAX ? room : PACKET_MAX, MSG_DONTWAIT);
        capture.used += n > 0 ? (size_t)n : 0;
    }
    return NULL;
}

static void begin_capture(void)
{
    const int size = BUFFER;
    capture.fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    assert_true(capture.fd >= 0);
    (void)setsockopt(capture.fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    capture.bytes = malloc(CAPTURE_MAX); /* as much of it as is used */
    assert_non_null(capture.bytes);
    capture.used = 0;
    atomic_store(&capture.over, false);
    assert_int_equal(pthread_create(&capture.thread, NULL, read_packets, NULL), 0);
}

static void end_capture(void)
{
    atomic_store(&capture.over, true);
    pthread_join(capture.thread, NULL);
    close(capture.fd);
    assert_true(capture.used < CAPTURE_MAX);
}

static bool is_captured(const void *bytes, size_t n)
{
    return memmem(capture.bytes, capture.used, bytes, n) != NULL;
}

/* Eight floats in a row that are equal and neither zero nor text: weights of the layer that does
 * not learn, in whatever scale an exchange has them. */
static bool has_planted_weights(void)
{
    enum { ROW = 8 * sizeof(float) };
    for (size_t at = 0; at + ROW <= capture.used; at++) {
        const uint8_t *bytes = capture.bytes + at;
        float value;
        memcpy(&value, bytes, sizeof value);
        if (fabsf(value) > 1e-3f && fabsf(value) < 1e3f && bytes[0] != bytes[1] &&
            memcmp(bytes, bytes + sizeof value, ROW - sizeof value) == 0)
            return true;
    }
    return false;
}

/* A driver and two workers, each of which shares no memory, in a network of their own. */
static void run_captured(struct tiny *t, struct machines *m, bool insecure)
{
    char path[160];
    if (!has_network) {
        print_message("no network of its own can be made here\n");
        skip();
    }
    tiny_key(t, path);
    begin_capture();
    DRIVE(t, m, "--key", path, "--set", "workers=2", "--set", "stop.epochs=2",
          insecure ? "--insecure" : NULL);
    for (int i = 0; i < 2; i++)
        WORKER(m, t->folder, "--key", path, "--max-mbit", "5000", insecure ? "--insecure" : NULL);
    real_end(&m->run, 0, "epochs");
    machines_end(m, 0);
    end_capture();
}

/* Names that the job of the run has, and the file with its key. */
static bool is_name_captured(void)
{
    return is_captured(job_name, strlen(job_name)) || is_captured(layer_name, strlen(layer_name)) ||
           is_captured("train-images", strlen("train-images")) ||
           is_captured("SoftmaxWithLoss", strlen("SoftmaxWithLoss"));
}

static void test_a_keyed_run_shows_nothing(void **state)
{
    struct machines m;
    run_captured(*state, &m, false);
    assert_true(capture.used > 100 * 1000);
    assert_false(has_planted_weights());
    assert_false(is_name_captured());
    assert_false(is_captured("6b6579206f66206120746573", 24)); /* of its key */
    machines_release(&m);
    free(capture.bytes);
}

static void test_a_run_in_plain_shows_all(void **state)
{
    struct machines m;
    run_captured(*state, &m, true);
    assert_true(has_planted_weights());
    assert_true(is_captured(job_name, strlen(job_name)));
    assert_true(is_captured(layer_name, strlen(layer_name)));
    assert_true(is_captured("train-images", strlen("train-images")));
    assert_false(is_captured("6b6579206f66206120746573", 24)); /* the key does not travel at all */
    machines_release(&m);
    free(capture.bytes);
}

/* The tiny job, with names and weights that are found at a glance. */
static int plant_job(void **state)
{
    static struct tiny tiny;
    char text[sizeof tiny_net + 512];
    const char *layer = strstr(tiny_net, "layer { name: 'conv'"),
               *loss = strstr(tiny_net, "layer { name: 'accuracy'");
    tiny_create(&tiny);
    snprintf(text, sizeof text,
             "%.*slayer { name: '%s' %.*s"
             "layer { name: 'fixed' type: 'InnerProduct' bottom: 'ip' top: 'fixed'\n"
             "  param { lr_mult: 0 decay_mult: 0 } param { lr_mult: 0 decay_mult: 0 }\n"
             "  inner_product_param { num_output: 64 weight_filler { type: 'constant'\n"
             "    value: 0.7310586 } } }\n%s",
             (int)(layer - tiny_net), tiny_net, layer_name, (int)(loss - strstr(layer, "type:")),
             strstr(layer, "type:"), loss);
    tiny_write(&tiny, "net.prototxt", text);
    snprintf(text, sizeof text, "name: '%s'\n%s", job_name, strchr(tiny_job, '\n') + 1);
    tiny_write(&tiny, "tiny.job", text);
    has_network = network_enter();
    *state = &tiny;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_keyed_run_shows_nothing),
        cmocka_unit_test(test_a_run_in_plain_shows_all),
    };
    return cmocka_run_group_tests(tests, plant_job, tiny_teardown);
}

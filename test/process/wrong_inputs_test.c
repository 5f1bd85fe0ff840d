/* For every wrong input the command names the error and its place on stderr, ends with 2, prints
 * nothing on stdout, and leaves no files. */
#include "refusal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { RANDOM_TEXTS = 200 };

static void put_file(const struct tiny *t, const char *name, const void *bytes, size_t n)
{
    FILE *f = tiny_open(t, name);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static size_t get_file(const struct tiny *t, const char *name, uint8_t *into, size_t max)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", t->folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(into, 1, max, f);
    fclose(f);
    return n;
}

static void bad_job(struct tiny *t, const char *phrase, const char *what, const char *by)
{
    tiny_write_changed(t, "bad.job", tiny_job, what, by);
    REFUSED(t, phrase, "train", "bad.job", "--out", "run");
}

static void test_images_and_labels(void **state)
{
    struct tiny *t = *state;
    static uint8_t bytes[1 << 18];
    size_t n = get_file(t, "train-images", bytes, sizeof bytes - 1);
    const size_t kept[] = {0, 1, 3, 4, 15, 16, 17, n / 2, n - 1, n + 1};
    REFUSED(t, "nowhere", "train", t->job, "--out", "run", "--data", "idx:nowhere,train-labels");
    REFUSED(t, "nowhere", "train", t->job, "--out", "run", "--data", "idx:train-images,nowhere");
    REFUSED(t, ".", "train", t->job, "--out", "run", "--data", "idx:.,train-labels");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        put_file(t, "bad-file", bytes, kept[i]);
        REFUSED(t, "bad-file", "train", t->job, "--out", "run", "--data",
                "idx:bad-file,train-labels?scale=0.004");
    }
    n = get_file(t, "test-labels", bytes, sizeof bytes - 1);
    for (size_t len = n - 1; len <= n + 1; len += 2) {
        put_file(t, "bad-file", bytes, len);
        REFUSED(t, "bad-file", "train", t->job, "--out", "run", "--test-data",
                "idx:test-images,bad-file");
    }
    for (uint64_t k = 0; k < 5; k++) {
        for (size_t i = 0; i < 4000; i++)
            bytes[i] = (uint8_t)rng_below(11, k, i, 256);
        put_file(t, "bad-file", bytes, 4000);
        REFUSED(t, "bad-file", "train", t->job, "--data", "idx:bad-file,train-labels");
        REFUSED(t, "bad-file", "train", t->job, "--data", "idx:train-images,bad-file");
    }
    REFUSED(t, "120", "train", t->job, "--data", "idx:train-images,test-labels");
    REFUSED(t, "120", "train", t->job, "--test-data", "idx:test-images,train-labels");
}

static void test_labels_that_the_net_does_not_know(void **state)
{
    struct tiny *t = *state;
    uint8_t labels[256];
    tiny_write_changed(t, "two.prototxt", tiny_net, "num_output: 3", "num_output: 2");
    REFUSED(t, "label", "train", t->job, "--out", "run", "--set", "net.file=two.prototxt");
    size_t n = get_file(t, "test-labels", labels, sizeof labels);
    labels[n - 1] = TINY_CLASSES;
    put_file(t, "strange-labels", labels, n);
    REFUSED(t, "label", "train", t->job, "--out", "run", "--test-data",
            "idx:test-images,strange-labels");
}

static void test_jobs(void **state)
{
    struct tiny *t = *state;
    bad_job(t, "bad.job:5:1", "batch: 16", "botch: 16");
    bad_job(t, "botch", "batch: 16", "botch: 16");
    bad_job(t, "bad.job:5:8", "batch: 16", "batch: 'many'");
    bad_job(t, "bad.job:5:8", "batch: 16", "batch: 1x6");
    bad_job(t, "bad.job:5:8", "batch: 16", "batch: -16");
    bad_job(t, "bad.job:5:8", "batch: 16", "batch: 99999999999");
    bad_job(t, "did you mean `batch`?", "batch: 16", "batchsize: 16");
    bad_job(t, "did you mean `solver { base_lr: ... }`?", "batch: 16", "lr: 0.1");
    bad_job(t, "did you mean `stop { epochs: ... }`?", "batch: 16", "epochs: 3");
    bad_job(t, "`=` is not allowed here; write `:`", "base_lr: 0.05", "base_lr = 0.05");
    bad_job(t, "`/` is not allowed here; nothing is computed here", "0.00390625", "1/255");
    bad_job(t, "is the `}` of `solver`, which begins in line 7, missing?", "0.75 }", "0.75");
    bad_job(t, "base_lr: must be > 0, is -0.01", "base_lr: 0.05", "base_lr: -0.01");
    bad_job(t, "or --lr 0.01", "base_lr: 0.05", "");
    bad_job(t, "stop.steps: must be > 0, is 0; --unset stop.steps", "epochs: 3", "steps: 0");
    bad_job(t, "workers: not allowed with workers_min; --unset workers_min", "workers: 4",
            "workers: 4 workers_min: 1 workers_max: 4");
    bad_job(t, "the rule is solver.type", "sync { tau: 4 }",
            "downpour { learning_rule: server server_adagrad: true }");
    bad_job(t, "batch", "batch: 16", "batch: 0");
    bad_job(t, "base_lr", "base_lr: 0.05", "base_lr: nan");
    bad_job(t, "base_lr", "base_lr: 0.05", "");
    bad_job(t, "momentum", "momentum: 0.9", "momentum: 1.5");
    bad_job(t, "lr_policy", "'inv'", "'sometimes'");
    bad_job(t, "type", "base_lr: 0.05", "base_lr: 0.05 type: 'Guess'");
    bad_job(t, "given twice", "train_data", "test_data");
    bad_job(t, "labels", "labels: 'train-labels'", "");
    bad_job(t, "net", "net { file: 'net.prototxt' }", "");
    bad_job(t, "nowhere.prototxt", "net.prototxt", "nowhere.prototxt");
    bad_job(t, "validation", "validation: 60", "validation: 600");
    bad_job(t, "epochs", "epochs: 3", "epochs: -3");
    bad_job(t, "kernels", "kernels: ref", "kernels: fast");
    bad_job(t, "tau", "tau: 4", "tau: 0");
    bad_job(t, "bad.job", "stop { epochs: 3 }", "stop { epochs: 3");
    REFUSED(t, "nowhere.job", "train", "nowhere.job");
    REFUSED(t, t->folder, "train", t->folder);
    tiny_write(t, "solverless.job",
               "net { zoo: 'lenet' } train_data { idx { images: 'train-images'"
               " labels: 'train-labels' } }");
    REFUSED(t, "solver", "train", "solverless.job");
    tiny_write(t, "dataless.job", "net { zoo: 'lenet' } solver { base_lr: 0.1 }");
    REFUSED(t, "train_data", "train", "dataless.job");
    REFUSED(t, "train_data", "bench", "step", "dataless.job");
}

static void test_nets(void **state)
{
    struct tiny *t = *state;
    tiny_write_changed(t, "odd.prototxt", tiny_net, "'ReLU'", "'Reorg'");
    REFUSED(t, "Reorg", "train", t->job, "--out", "run", "--set", "net.file=odd.prototxt");
    tiny_write_changed(t, "odd.prototxt", tiny_net, "bottom: 'pool' top: 'ip'",
                       "bottom: 'pond' top: 'ip'");
    REFUSED(t, "pond", "train", t->job, "--out", "run", "--set", "net.file=odd.prototxt");
    tiny_write_changed(t, "odd.prototxt", tiny_net, "kernel_size: 3", "kernel_size: 13");
    REFUSED(t, "conv", "train", t->job, "--out", "run", "--set", "net.file=odd.prototxt");
    tiny_write_changed(t, "odd.prototxt", tiny_net, "kernel_size: 3", "kernel_sized: 3");
    REFUSED(t, "kernel_sized", "train", t->job, "--out", "run", "--set", "net.file=odd.prototxt");
    REFUSED(t, "alexnot", "train", t->job, "--out", "run", "--set", "net.zoo=alexnot");
}

static void test_nets_of_other_tools(void **state)
{
    struct tiny *t = *state;
    static const struct {
        const char *name, *bytes, *phrase;
    } files[] = {
        {"model.onnx", "\x08\x07\x12\x07pytorch", "ONNX"},
        {"strange", "\x08\x07\x12\x07pytorch", "ONNX"},
        {"model.h5", "\x89HDF\r\n\x1a\n", "HDF5"},
        {"model.pt", "PK\x03\x04 and so on", "PyTorch"},
        {"model.caffemodel", "\x89HDF\r\n\x1a\n", "HDF5"},
    };
    char set[64], phrase[64];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tiny_write(t, files[i].name, files[i].bytes);
        snprintf(set, sizeof set, "net.file=%s", files[i].name);
        snprintf(phrase, sizeof phrase, "%s: this is ", files[i].name);
        REFUSED(t, phrase, "train", t->job, "--out", "run", "--set", set);
        REFUSED(t, files[i].phrase, "train", t->job, "--out", "run", "--weights", files[i].name);
    }
    char path[128];
    snprintf(path, sizeof path, "%s/level", t->folder);
    assert_int_equal(mkdir(path, 0700), 0);
    tiny_write(t, "level/CURRENT", "MANIFEST-000001\n");
    REFUSED(t, "LevelDB", "train", t->job, "--out", "run", "--set", "net.file=level");
    REFUSED(t, "LevelDB", "train", t->job, "--out", "run", "--weights", "level");
}

static void test_recurrent_layers(void **state)
{
    struct tiny *t = *state;
    tiny_write_changed(t, "odd.prototxt", tiny_net,
                       "'InnerProduct' bottom: 'pool' top: 'ip'\n"
                       "  inner_product_param",
                       "'LSTM' bottom: 'pool' top: 'ip'\n  recurrent_param");
    REFUSED(t, "is an image; Reshape makes vectors of it", "train", t->job, "--out", "run", "--set",
            "net.file=odd.prototxt");
}

static void test_commands_and_options(void **state)
{
    struct tiny *t = *state;
    refusal_expect(t, "usage", (const char *const[]){NULL});
    REFUSED(t, "fly", "fly", t->job);
    REFUSED(t, "did you mean train?", "trian", t->job);
    REFUSED(t, "did you mean worker?", "help", "wroker");
    REFUSED(t, "did you mean --strategy?", "train", t->job, "--stratgey", "sync");
    REFUSED(t, "did you mean --batch?", "train", t->job, "--batch-size", "8");
    REFUSED(t, "did you mean --lr?", "train", t->job, "--learning-rate=8");
    REFUSED(t, "stop.step", "train", t->job, "--unset", "stop.step");
    REFUSED(t, "--epochs and --steps", "train", t->job, "--epochs", "2", "--steps", "8");
    REFUSED(t, "stop.epochs: must be > 0, is -1", "train", t->job, "--epochs", "-1");
    REFUSED(t, "solver.base_lr", "train", t->job, "--lr", "fast");
    REFUSED(t, "batch: must be from 1", "train", t->job, "--batch", "0");
    REFUSED(t, "job", "train");
    REFUSED(t, "other", "train", t->job, "other");
    REFUSED(t, "--fast", "train", t->job, "--fast");
    REFUSED(t, "-j", "train", t->job, "-j");
    REFUSED(t, "--json=yes", "train", t->job, "--json=yes");
    REFUSED(t, "--out", "train", t->job, "--out");
    REFUSED(t, "--workers", "train", t->job, "--workers");
    REFUSED(t, "workers", "train", t->job, "--workers", "-3");
    REFUSED(t, "workers", "train", t->job, "--workers", "0");
    REFUSED(t, "workers", "train", t->job, "--workers", "100000");
    REFUSED(t, "workers", "train", t->job, "--workers", "four");
    REFUSED(t, "workers", "train", t->job, "--workers", "");
    REFUSED(t, "threads", "train", t->job, "--threads", "0");
    REFUSED(t, "threads", "train", t->job, "--threads", "2.5");
    REFUSED(t, "seed", "train", t->job, "--seed", "99999999999999999999");
    REFUSED(t, "psync", "train", t->job, "--strategy", "psync");
    REFUSED(t, "write --strategy sync", "train", t->job, "--strategy",
            "single"); /* of four workers */
    REFUSED(t, "kernels", "train", t->job, "--kernels", "avx1024");
    REFUSED(t, "nonsense", "train", t->job, "--set", "nonsense");
    REFUSED(t, "colour", "train", t->job, "--set", "colour=red");
    REFUSED(t, "batch", "train", t->job, "--set", "batch=");
    REFUSED(t, "here: cannot open", "train", t->job, "--data", "csv:here");
    REFUSED(t, "idx:", "train", t->job, "--data", "idx:only-one");
    REFUSED(t, "size", "train", t->job, "--data", "idx:train-images,train-labels?size=3");
    REFUSED(t, "--join", "worker");
    REFUSED(t, "bench", "bench");
    REFUSED(t, "bench", "bench", "sleep", t->job);
    REFUSED(t, "steps", "bench", "step", t->job, "--steps", "0");
    REFUSED(t, "abc", "bench", "step", t->job, "--steps", "abc");
    REFUSED(t, "-20", "bench", "step", t->job, "--steps", "-20");
    REFUSED(t, "4294967316", "bench", "step", t->job, "--steps", "4294967316"); /* 2^32 + 20 */
    REFUSED(t, "batch", "bench", "step", t->job, "--batch", "0");
}

static void bad_allreduce(struct tiny *t, const char *option, const char *value)
{
    char dashed[32];
    snprintf(dashed, sizeof dashed, "--%s", option);
    REFUSED(t, dashed, "bench", "allreduce", dashed, value);
}

static void test_benches_of_ranks(void **state)
{
    struct tiny *t = *state;
    static const struct {
        const char *option, *values[8];
    } wrong[] = {
        {"ranks", {"0", "1025", "-1", "four", "", "2.5"}},
        {"floats", {"", "0", "1,", ",1", "1;2", "1.5", "2e9", "1,nan"}},
        {"algorithm", {"", "trie", "tree,", "tree, ring", "rin"}},
        {"wire", {"", "f16", "bf"}},
        {"chunk-kb", {"0", "4097", "x"}},
        {"stripes", {"0", "17", "x", "-1"}},
        {"reps", {"0", "10001", "x", "4294967297"}},
        {"warmup", {"-1", "x", "10001", ""}},
        {"spin", {"-1", "x", "5us", "nan", "inf", ""}},
        {"link-mbit", {"0", "-5", "fast", "1000M", "inf", "nan"}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t k = 0; k < 8 && wrong[i].values[k]; k++)
            bad_allreduce(t, wrong[i].option, wrong[i].values[k]);
    REFUSED(t, "f32", "bench", "allreduce", "--wire", "bf16", "--algorithm", "ring");
    REFUSED(t, "f32", "bench", "allreduce", "--algorithm=butterfly", "--wire=int8");
    REFUSED(t, "--fast", "bench", "allreduce", "--fast");
    REFUSED(t, "three", "bench", "allreduce", "three");
    REFUSED(t, "--stripes", "bench", "wire", "--stripes", "x");
    REFUSED(t, "--stripes", "bench", "wire", "--stripes", "17");
    REFUSED(t, "--spin", "bench", "wire", "--spin", "soon");
    REFUSED(t, "--spin", "bench", "wire", "--spin", "-1");
    REFUSED(t, "--ranks", "bench", "wire", "--ranks", "2");
    REFUSED(t, "--rank R", "bench", "wire", "--rank", "2", "--rendezvous", "127.0.0.1:9");
    REFUSED(t, "--rank R", "bench", "wire", "--rank", "0");
    REFUSED(t, "--rank R", "bench", "allreduce", "--rank", "0", "--rendezvous", "127.0.0.1:9");
    REFUSED(t, "a key is required", "bench", "wire", "--rank", "1", "--rendezvous", "192.0.2.1");
}

static void test_run_directories(void **state)
{
    struct tiny *t = *state;
    tiny_write(t, "plain", "a file\n");
    REFUSED(t, "plain", "train", t->job, "--out", "plain");
    REFUSED(t, "plain/run", "train", t->job, "--out", "plain/run");
    REFUSED(t, "/proc/run", "train", t->job, "--out", "/proc/run");
    REFUSED(t, "missing/run", "train", t->job, "--out", "missing/run");
    REFUSED(t, "directory", "train", t->job, "--out", "");
    REFUSED(t, ".: is not empty; give another directory (--out)", "train", t->job, "--out", ".");
    char earlier[256];
    snprintf(earlier, sizeof earlier, "%s/earlier", t->folder);
    assert_int_equal(mkdir(earlier, 0777), 0);
    tiny_write(t, "earlier/job.prototxt", "");
    REFUSED(t, "earlier: is not empty; --resume resumes the run in it; give another directory",
            "train", t->job, "--out", "earlier");
    REFUSED(t, "run", "train", t->job, "--resume", "--out", "run");
    REFUSED(t, "no run", "train", t->job, "--resume", "--out", ".");
    REFUSED(t, "plain", "train", t->job, "--resume", "--out", "plain");
    REFUSED(t, "no run", "train", t->job, "--resume");
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.004\n");
    REFUSED(t, "plain/run", "sim", t->job, "--cluster", t->cluster, "--out", "plain/run");
    REFUSED(t, "no run", "sim", t->job, "--cluster", t->cluster, "--resume");
}

/* A loopback port that is in use, or with `listens` false, one without a listener. */
static int take_port(bool listens, char address[32])
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listens ? listen(fd, 1) : 0, 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(address, 32, "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

static void test_addresses(void **state)
{
    struct tiny *t = *state;
    char address[32], key[160];
    int fd = take_port(true, address);
    tiny_key(t, key);
    REFUSED(t, address, "train", t->job, "--out", "run", "--listen", address);
    REFUSED(t, "give another port", "driver", t->job, "--out", "run", "--listen", address);
    REFUSED(t, "no address of this host", "driver", t->job, "--out", "run", "--listen",
            "192.0.2.1:0", "--key", key);
    close(fd);
    REFUSED(t, "a key is required", "train", t->job, "--out", "run", "--listen", "0.0.0.0:0");
    REFUSED(t, "127.0.0.1:x", "train", t->job, "--out", "run", "--listen", "127.0.0.1:x");
    REFUSED(t, "127.0.0.1:70000", "train", t->job, "--out", "run", "--listen", "127.0.0.1:70000");
    REFUSED(t, "non..sense", "worker", "--join", "non..sense");
    REFUSED(t, "a key is required", "worker", "--join", "192.0.2.1:9");
    fd = take_port(false, address);
    struct process p;
    process_start(&p, t->folder,
                  (const char *const[]){"worker", "--join", address, "--retry", "0", NULL});
    process_wait(&p, 30);
    assert_int_equal(p.code, 1); /* the input is valid */
    assert_non_null(strstr(p.err, address));
    assert_string_equal(p.out, "");
    process_release(&p);
    close(fd);
}

/* A process that gets one option of its rank must get all of them, and right. */
static void bad_position(struct tiny *t, const char *phrase, const char *rank, const char *ranks,
                         const char *rendezvous)
{
    setenv("PACELINE_RANKS", ranks, 1);
    if (rank)
        setenv("PACELINE_RANK", rank, 1);
    if (rendezvous)
        setenv("PACELINE_RENDEZVOUS", rendezvous, 1);
    REFUSED(t, phrase, "bench", "allreduce", "--ranks", "2");
    REFUSED(t, strcmp(ranks, "3") ? phrase : "3", "bench", "wire");
    unsetenv("PACELINE_RANKS");
    unsetenv("PACELINE_RANK");
    unsetenv("PACELINE_RENDEZVOUS");
}

static void test_places_among_ranks(void **state)
{
    struct tiny *t = *state;
    char taken[32];
    int fd = take_port(true, taken);
    bad_position(t, "PACELINE_RANK", NULL, "2", "127.0.0.1:7000");
    bad_position(t, "PACELINE_RENDEZVOUS", "0", "2", NULL);
    bad_position(t, "PACELINE_RANK", "2", "2", "127.0.0.1:7000");
    bad_position(t, "PACELINE_RANK", "-1", "2", "127.0.0.1:7000");
    bad_position(t, "PACELINE_RANK", "", "2", "127.0.0.1:7000");
    bad_position(t, "PACELINE_RANKS", "0", "two", "127.0.0.1:7000");
    bad_position(t, "PACELINE_RANKS", "0", "0", "127.0.0.1:7000");
    bad_position(t, "PACELINE_RANKS", "0", "3", "127.0.0.1:7000"); /* and --ranks 2 */
    bad_position(t, "nowhere", "0", "2", "nowhere");
    bad_position(t, "127.0.0.1", "0", "2", "127.0.0.1");
    bad_position(t, "127.0.0.1:70000", "1", "2", "127.0.0.1:70000");
    bad_position(t, taken, "0", "2", taken);
    close(fd);
    setenv("PACELINE_LINK_MBIT", "fast", 1);
    REFUSED(t, "fast", "bench", "allreduce");
    unsetenv("PACELINE_LINK_MBIT");
}

static void bad_cluster(struct tiny *t, const char *phrase, const char *text)
{
    tiny_cluster(t, text);
    REFUSED(t, phrase, "sim", t->job, "--cluster", t->cluster, "--out", "run");
}

static void test_simulations(void **state)
{
    struct tiny *t = *state;
    REFUSED(t, "--cluster", "sim", t->job);
    REFUSED(t, "nowhere.cluster", "sim", t->job, "--cluster", "nowhere.cluster");
    bad_cluster(t, "node", "step_seconds: 0.004");
    bad_cluster(t, "step_seconds", "node { count: 4 }");
    bad_cluster(t, "step_seconds", "node { count: 4 } step_seconds: -1");
    bad_cluster(t, "a.cluster:1:19", "node { count: 4 } nodes: 4");
    bad_cluster(t, "a.cluster:1:", "node { count: 4");
    bad_cluster(t, "speed", "node { count: 4 speed: 0 } step_seconds: 0.004");
    bad_cluster(t, "loss", "node { count: 4 } step_seconds: 0.004 link { loss: 1 }");
    bad_cluster(t, "3", "node { count: 3 } step_seconds: 0.004");
    bad_cluster(t, "pigeon",
                "node { count: 4 } step_seconds: 0.004\n"
                "delay { tag: 'pigeon' seconds: 1 }");
    bad_cluster(t, "delay[0].to",
                "node { count: 4 } step_seconds: 0.004\n"
                "delay { to: 4 seconds: 1 }");
    bad_cluster(t, "fault[0].kill",
                "node { count: 4 } step_seconds: 0.004\n"
                "fault { at: 1 kill: 9 }");
    bad_cluster(t, "fault[0]", "node { count: 4 } step_seconds: 0.004 fault { at: 1 }");
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.004");
    REFUSED(t, "needs 5", "sim", t->job, "--cluster", t->cluster, "--workers", "5");
    REFUSED(t, "nowhere", "sim", t->job, "--cluster", t->cluster, "--data", "idx:nowhere,x");
    REFUSED(t, "Guess", "sim", t->job, "--cluster", t->cluster, "--set", "solver.type=Guess");
}

/* Half of the texts are random bytes, half are tokens of the format in random order. */
static size_t random_text(uint64_t k, char *text, size_t max)
{
    static const char *const words[] = {"{", "}", ":",      " ",    "\n",  "'",  "\"", "#",
                                        "1", "-", "0.5e",   "node", "net", "[",  "]",  ",",
                                        ";", "<", "solver", "idx",  "\\x", "nan"};
    size_t len = 0, pieces = rng_below(21, k, 0, 120);
    for (size_t i = 1; i <= pieces && len + 16 < max; i++) {
        const char *word = words[rng_below(22, k, i, sizeof words / sizeof *words)];
        if (k % 2 == 0)
            text[len++] = (char)rng_below(23, k, i, 256);
        else
            len += (size_t)sprintf(text + len, "%s%s", word, i % 3 ? " " : "");
    }
    return len;
}

static void test_random_bytes(void **state)
{
    struct tiny *t = *state;
    char text[2048];
    for (uint64_t k = 0; k < RANDOM_TEXTS; k++) {
        size_t len = random_text(k, text, sizeof text);
        put_file(t, "random.job", text, len);
        put_file(t, "random.cluster", text, len);
        const char *const as[][5] = {{"train", "random.job", NULL},
                                     {"sim", t->job, "--cluster", "random.cluster", NULL}};
        for (int i = 0; i < 2; i++) {
            struct process p;
            process_start(&p, t->folder, as[i]);
            process_wait(&p, REFUSAL_LIMIT_S);
            if (p.code != 2 || p.out[0] || strlen(p.err) < 15)
                refusal_complain(&p, as[i], "expected a refusal");
            process_release(&p);
        }
    }
    char *left = refusal_snapshot(t->folder);
    assert_null(strstr(left, "./run"));
    free(left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_and_labels),
        cmocka_unit_test(test_labels_that_the_net_does_not_know),
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_nets),
        cmocka_unit_test(test_nets_of_other_tools),
        cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_commands_and_options),
        cmocka_unit_test(test_benches_of_ranks),
        cmocka_unit_test(test_run_directories),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_places_among_ranks),
        cmocka_unit_test(test_simulations),
        cmocka_unit_test(test_random_bytes),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}

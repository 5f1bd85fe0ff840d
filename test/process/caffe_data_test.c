/* Caffe's own files: all nets must be read, and trained models must give Caffe's results.
 * PACELINE_DATA names their folder. */
#include "base/file.h"
#include "folder.h"
#include "paceline/convert.h"

#include <dirent.h>
#include <math.h>

enum { IMAGES = 20, CLASSES = 10, SPEC_MAX = 1024 };

/* The tolerance between the numbers of two programs; accuracies and losses are printed with it. */
#define SCORE_TOLERANCE 1e-4
#define LOSS_TOLERANCE  5e-7

struct model {
    const char *name; /* of the file of expected numbers */
    const char *net, *weights;
    const char *scores; /* the blob that was noted */
    bool cifar;
    double accuracy, loss;
};

static const struct model models[] = {
    {"lenet_iter_10000", "lenet/lenet.prototxt", "lenet/lenet_iter_10000.caffemodel", "prob", false,
     0.9914, 0.027269},
    {"cifar10_quick_iter_4000", "cifar10_quick/cifar10_quick.prototxt",
     "cifar10_quick/cifar10_quick_iter_4000.caffemodel", "prob", true, 0.7142, 0.863883},
    {"cifar10_quick_iter_5000", "cifar10_quick/cifar10_quick.prototxt",
     "cifar10_quick/cifar10_quick_iter_5000.caffemodel", "prob", true, 0.7547, 0.750239},
    {"v1format_cifar10_quick_iter_4000", "cifar10_v1format/cifar10_quick.prototxt",
     "cifar10_v1format/cifar10_quick_iter_4000.caffemodel", "prob", true, 0.6854, 0.937706},
    {"v1format_cifar10_quick_iter_5000", "cifar10_v1format/cifar10_quick.prototxt",
     "cifar10_v1format/cifar10_quick_iter_5000.caffemodel", "prob", true, 0.7491, 0.748170},
    {"ResNet_20", "resnet_cifar10/res20_cifar_train_test.prototxt",
     "resnet_cifar10/ResNet_20.caffemodel", "InnerProduct1", true, 0.9170, 0.336582},
};

static pl_engine *engine;

static const char *data_root(void)
{
    const char *root = getenv("PACELINE_DATA");
    if (!root) {
        print_message("    PACELINE_DATA does not name the folder of data\n");
        skip();
    }
    return root;
}

static void expect_ok(int rc)
{
    if (rc != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
}

/* ---- records, by hand ---- */

static void read_file(const char *root, const char *name, struct file_bytes *out)
{
    char path[512];
    struct err err = {0};
    snprintf(path, sizeof path, "%s/%s", root, name);
    if (file_read(path, 1 << 28, out, &err) != OK)
        fail_msg("%s", err.text);
}

/* The first test images, scaled as README.md of the data states. */
static size_t read_records(const char *root, bool cifar, float **out)
{
    struct file_bytes images, mean = {0};
    size_t each = cifar ? 3072 : 784, head = cifar ? 1 : 0, skipped = cifar ? 0 : 16;
    read_file(root,
              cifar ? "cifar-10-batches-bin/test_batch.bin" : "mnist/t10k-images-idx3-ubyte.gz",
              &images);
    if (cifar)
        read_file(root, "caffe/cifar10_quick/mean.binaryproto", &mean);
    float *x = malloc(IMAGES * each * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < IMAGES; i++)
        for (size_t k = 0; k < each; k++) {
            float value = images.data[skipped + i * (each + head) + head + k], minus = 0;
            if (cifar) /* the numbers end the file's one blob */
                memcpy(&minus, mean.data + mean.len - (each - k) * sizeof minus, sizeof minus);
            x[i * each + k] = cifar ? value - minus : value / 256;
        }
    file_release(&images);
    if (cifar)
        file_release(&mean);
    *out = x;
    return each;
}

/* "index label v0 .. v9" */
static void read_expected(const char *root, const char *name, double scores[IMAGES][CLASSES])
{
    char file[128];
    struct file_bytes text;
    size_t rows = 0;
    snprintf(file, sizeof file, "caffe/expected/%s.txt", name);
    read_file(root, file, &text);
    char *rest = NULL;
    for (char *line = strtok_r((char *)text.data, "\n", &rest); line && rows < IMAGES;
         line = strtok_r(NULL, "\n", &rest)) {
        if (line[0] == '#')
            continue;
        char *at = line;
        assert_int_equal(strtoul(at, &at, 10), rows);
        strtoul(at, &at, 10);
        for (size_t c = 0; c < CLASSES; c++)
            scores[rows][c] = strtod(at, &at);
        rows++;
    }
    assert_int_equal(rows, IMAGES);
    file_release(&text);
}

/* ---- models ---- */

static pl_net *make_net(const char *root, const struct model *model)
{
    char path[512], spec[SPEC_MAX];
    pl_net_spec *net_spec;
    pl_net *net;
    bool lossless;
    snprintf(path, sizeof path, "%s/caffe/%s", root, model->net);
    expect_ok(pl_net_spec_load(engine, path, &net_spec));
    expect_ok(pl_net_spec_judge(net_spec, &lossless));
    assert_false(lossless);
    expect_ok(pl_net_create(engine, net_spec,
                            &(pl_net_options){.size = sizeof(pl_net_options), .batch = 100}, &net));
    pl_net_spec_free(net_spec);
    if (model->cifar)
        snprintf(
            spec, sizeof spec,
            "cifar10:%s/cifar-10-batches-bin?mean_file=%s/caffe/cifar10_quick/mean.binaryproto",
            root, root);
    else
        snprintf(spec, sizeof spec,
                 "idx:%s/mnist/t10k-images-idx3-ubyte.gz,%s/mnist/t10k-labels-idx1-ubyte.gz"
                 "?scale=0.00390625",
                 root, root);
    expect_ok(pl_net_set_validation_data(net, spec, 0, 1));
    snprintf(path, sizeof path, "%s/caffe/%s", root, model->weights);
    expect_ok(pl_net_load_weights(net, path));
    return net;
}

static void judge_model(const char *root, const struct model *model)
{
    double expected[IMAGES][CLASSES], worst = 0;
    float *x, scores[IMAGES * CLASSES];
    size_t each;
    pl_test_result result;
    pl_net *net = make_net(root, model);
    read_expected(root, model->name, expected);
    read_records(root, model->cifar, &x);
    expect_ok(pl_net_forward(net, x, IMAGES, model->scores, scores, IMAGES * CLASSES, &each));
    assert_int_equal(each, CLASSES);
    for (size_t i = 0; i < IMAGES * CLASSES; i++)
        worst = fmax(worst, fabs((double)scores[i] - expected[i / CLASSES][i % CLASSES]));
    expect_ok(pl_net_test(net, 0, &result));
    print_message("    %s: accuracy %.4f, loss %.6f, scores off by %.1e\n", model->name,
                  1 - result.error, result.loss, worst);
    assert_int_equal(result.count, 10000);
    assert_true(worst < SCORE_TOLERANCE);
    assert_true(fabs(1 - result.error - model->accuracy) < 1e-9);
    assert_true(fabs(result.loss - model->loss) <= LOSS_TOLERANCE);
    free(x);
    pl_net_free(net);
}

static void test_trained_models(void **state)
{
    (void)state;
    const char *root = data_root();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        judge_model(root, &models[i]);
}

/* Into our format and back: again into ours, it is the same file. */
static void test_there_and_back(void **state)
{
    (void)state;
    const char *root = data_root();
    struct folder folder;
    char path[512], a[256], b[256], c[256];
    folder_make(&folder);
    folder_file(&folder, "a.safetensors", a);
    folder_file(&folder, "b.caffemodel", b);
    folder_file(&folder, "c.safetensors", c);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct file_bytes first, second;
        snprintf(path, sizeof path, "%s/caffe/%s", root, models[i].weights);
        expect_ok(pl_convert(engine, path, a, NULL, true));
        expect_ok(pl_convert(engine, a, b, NULL, true));
        expect_ok(pl_convert(engine, b, c, NULL, true));
        read_file(folder.path, "a.safetensors", &first);
        read_file(folder.path, "c.safetensors", &second);
        assert_int_equal(first.len, second.len);
        assert_memory_equal(first.data, second.data, first.len);
        file_release(&first);
        file_release(&second);
    }
    folder_remove(&folder);
}

/* ---- nets ---- */

static size_t read_nets(const char *folder)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name, *dot = strrchr(name, '.');
        char path[2048];
        pl_net_spec *spec;
        if (!dot || strcmp(dot, ".prototxt") != 0 || strstr(name, "solver"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        expect_ok(pl_net_spec_load(engine, path, &spec));
        pl_net_spec_free(spec);
        n++;
    }
    closedir(dir);
    return n;
}

static void test_every_net_reads(void **state)
{
    (void)state;
    const char *root = data_root();
    char path[1024];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/caffe", root);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || strchr(entry->d_name, '.'))
            continue;
        snprintf(path, sizeof path, "%s/caffe/%s", root, entry->d_name);
        n += read_nets(path);
    }
    closedir(dir);
    print_message("    %zu nets read\n", n);
    assert_true(n >= 28);
}

static int setup(void **state)
{
    (void)state;
    return pl_engine_create(NULL, &engine) == PL_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    pl_engine_destroy(engine);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trained_models),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_every_net_reads),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

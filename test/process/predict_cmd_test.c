/* `paceline predict`: its output agrees with the run's result for its model, whatever the form in
 * which model and records are named; pictures give the same as records; and its refusals. If
 * PACELINE_DATA names the folder, results of another program are compared, too. */
#include "paceline/predict.h"
#include "pictures.h"
#include "refusal.h"
#include "run_files.h"

enum { LINE_MAX_BYTES = 4096 };

static const char spec[] = "idx:test-images,test-labels";

/* ---- what was printed ---- */

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

/* Line i of the output as an object; NULL: there are fewer. */
static cJSON *line_of(const char *out, int i)
{
    for (; *out && i > 0; i--)
        out = strchr(out, '\n') + 1;
    if (!*out)
        return NULL;
    cJSON *object = cJSON_ParseWithLength(out, (size_t)(strchr(out, '\n') - out));
    assert_non_null(object);
    return object;
}

static const cJSON *class_at(const cJSON *record, int rank)
{
    const cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItem(record, "classes"), rank);
    assert_non_null(item);
    return item;
}

/* The probability of a class, wherever it stands. */
static double probability_of(const cJSON *record, int class)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(record, "classes"))
    {
        if (number_of(item, "class") == class)
            return number_of(item, "probability");
    }
    fail_msg("class %d is not there", class);
    return 0;
}

/* Both give the same for the first `n` records. */
static void same_outcome(const char *a, const char *b, int n)
{
    for (int i = 0; i < n; i++) {
        cJSON *x = line_of(a, i), *y = line_of(b, i);
        assert_true(x && y);
        for (int c = 0; c < TINY_CLASSES; c++)
            if (!(fabs(probability_of(x, c) - probability_of(y, c)) < 1e-6))
                fail_msg("record %d, class %d: %g and %g", i, c, probability_of(x, c),
                         probability_of(y, c));
        cJSON_Delete(x);
        cJSON_Delete(y);
    }
}

/* ---- agreement ---- */

static void test_it_agrees_with_the_run(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char dir[128];
    int n = 0, wrong = 0;
    RUN(t, &p, "predict", "run", "--first", "500", "--kernels", "ref", "--json");
    snprintf(dir, sizeof dir, "%s/run", t->folder);
    for (cJSON *record; (record = line_of(p.out, n)); n++) {
        double sum = 0;
        assert_true(number_of(record, "record") == n &&
                    number_of(record, "label") == n % TINY_CLASSES);
        wrong += number_of(class_at(record, 0), "class") != number_of(record, "label");
        for (int k = 0; k < TINY_CLASSES; k++) {
            sum += number_of(class_at(record, k), "probability");
            assert_true(k == 0 || number_of(class_at(record, k), "probability") <=
                                      number_of(class_at(record, k - 1), "probability"));
        }
        assert_true(fabs(sum - 1) < 1e-5);
        cJSON_Delete(record);
    }
    assert_int_equal(n, TINY_TEST);
    assert_true(fabs((double)wrong / n - run_number(dir, "end", 0, "test_error")) < 1e-6);
    process_release(&p);
}

/* Ways to name the same model and the same records. */
static void test_equivalent_options(void **state)
{
    struct tiny *t = *state;
    struct process base, p;
    tiny_write(t, "deploy.prototxt",
               "input: 'data' input_dim: 1 input_dim: 1 input_dim: 12 input_dim: 12\n"
               "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
               "  convolution_param { num_output: 6 kernel_size: 3 } }\n"
               "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"
               "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
               "layer { name: 'relu' type: 'ReLU' bottom: 'pool' top: 'pool' }\n"
               "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"
               "  inner_product_param { num_output: 3 } }\n"
               "layer { name: 'prob' type: 'Softmax' bottom: 'ip' top: 'prob' }\n");
    RUN(t, &p, "convert", "run/final.safetensors", "model.caffemodel", "--net", "net.prototxt");
    process_release(&p);
#define SCALE "idx:test-images,test-labels?scale=0.00390625"
    static const char *const ways[][12] = {
        {"predict", "run/final.safetensors", "--first", "9", "--json", NULL},
        {"predict", "run/", spec, "--first", "9", "--json", NULL},
        {"predict", "run", "--data", SCALE, "--first", "9", "--json", NULL},
        {"predict", "run", spec, "--scale", "0.00390625", "--first", "9", "--json", NULL},
        {"predict", "run", spec, "--first", "9", "--json", "--batch", "2", NULL},
        {"predict", "model.caffemodel", SCALE, "--first", "9", "--json", NULL},
        {"predict", "--net=net.prototxt", "--weights=run/final.safetensors", SCALE, "--first=9",
         "--json", NULL},
        {"predict", "--net=deploy.prototxt", "--weights=model.caffemodel", spec, "--scale",
         "0.00390625", "--first=9", "--json", NULL},
    };
    RUN(t, &base, "predict", "run", "--first", "9", "--json");
    assert_null(line_of(base.out, 9));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        run_command(t, &p, ways[i]);
        same_outcome(base.out, p.out, 9);
        process_release(&p);
    }
    process_release(&base);
}

static void test_a_checkpoint(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char dir[128], path[3][512];
    snprintf(dir, sizeof dir, "%s/run", t->folder);
    int n = run_checkpoints(dir, path);
    assert_true(n > 0);
    RUN(t, &p, "predict", path[n < 3 ? n - 1 : 2], "--first", "2", "--json");
    cJSON *second = line_of(p.out, 1);
    assert_true(number_of(second, "label") == 1);
    cJSON_Delete(second);
    process_release(&p);
}

/* ---- pictures ---- */

/* Record i of the test set as a PNG, each pixel `times` as large. */
static void put_record(const struct folder *f, const char *name, uint32_t i, unsigned times)
{
    static uint8_t rows[64 * 64];
    unsigned side = TINY_SIDE * times;
    for (unsigned y = 0; y < side; y++)
        for (unsigned x = 0; x < side; x++)
            rows[y * side + x] =
                tiny_pixel(2, i, i % TINY_CLASSES, (int)(y / times), (int)(x / times));
    picture_put_png(f, name, rows, side, side, PNG_COLOR_TYPE_GRAY, 8, side, false);
}

static void test_pictures(void **state)
{
    struct tiny *t = *state;
    struct folder f;
    struct process base, p;
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    put_record(&f, "0.png", 0, 1);
    put_record(&f, "1.png", 1, 1);
    put_record(&f, "large.png", 1, 3);
    RUN(t, &base, "predict", "run", "--first", "2", "--json");
    RUN(t, &p, "predict", "run", "0.png", "1.png", "--json");
    same_outcome(base.out, p.out, 2);
    cJSON *record = line_of(p.out, 0);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(record, "name")), "0.png");
    assert_null(cJSON_GetObjectItem(record, "label"));
    cJSON_Delete(record);
    assert_non_null(strstr(p.err, "pictures are made grey\n"));
    process_release(&p);
    RUN(t, &p, "predict", "--net", "net.prototxt", "--weights", "run/final.safetensors", "--input",
        "1x12x12", "--scale", "0.00390625", "0.png", "1.png", "--color", "gray", "--json");
    same_outcome(base.out, p.out, 2);
    assert_null(strstr(p.err, "grey"));
    process_release(&p);
    RUN(t, &p, "predict", "--net", "net.prototxt", "--weights", "run/final.safetensors", "--input",
        "1x12x12", "--maps", "scale=0.00390625&color=gray", "0.png", "1.png", "--json");
    same_outcome(base.out, p.out, 2);
    process_release(&p);
    RUN(t, &p, "predict", "run", "large.png", "0.png", "--json", "--top", "1");
    assert_non_null(strstr(p.err, "resized to 12 pixels along the shorter edge and cut"));
    record = line_of(p.out, 1);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(record, "classes")), 1);
    cJSON_Delete(record);
    process_release(&p);
    process_release(&base);
}

/* ---- colours ---- */

/* A net of three inputs that passes them on, as a file that is called Caffe's. */
static void put_caffe_model(const struct folder *f)
{
    static const char text[] = "layer { name: 'data' type: 'Input' top: 'data'\n"
                               "  input_param { shape { dim: 1 dim: 3 dim: 1 dim: 1 } } }\n"
                               "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
                               "  inner_product_param { num_output: 3 } }\n"
                               "layer { name: 'prob' type: 'Softmax' bottom: 'ip' top: 'prob' }\n";
    const pl_net_options options = {
        .size = sizeof options, .batch = 1, .threads = 1, .kernels = "ref"};
    pl_engine *engine;
    pl_net_spec *net_spec;
    pl_net *net;
    pl_weights weights;
    bool lossless;
    char path[256];
    folder_put(f, "three.prototxt", text, strlen(text));
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    assert_int_equal(pl_net_spec_load(engine, folder_file(f, "three.prototxt", path), &net_spec),
                     PL_OK);
    assert_int_equal(pl_net_spec_judge(net_spec, &lossless), PL_OK);
    assert_int_equal(pl_net_create(engine, net_spec, &options, &net), PL_OK);
    assert_int_equal(pl_net_form(net, 3, 1, 1), PL_OK);
    assert_int_equal(pl_net_weights(net, "ip", 0, &weights), PL_OK);
    for (size_t i = 0; i < 9; i++)
        weights.at[i] = i % 4 == 0 ? 1 : 0;
    assert_int_equal(pl_net_save_weights(net, folder_file(f, "three.caffemodel", path)), PL_OK);
    pl_net_free(net);
    pl_net_spec_free(net_spec);
    pl_engine_destroy(engine);
}

static void has_colours(const struct process *p, const char *which)
{
    if (which ? !strstr(p->err, which) : strstr(p->err, "colours are taken") != NULL)
        fail_msg("expected `%s`, but it said:\n%s", which ? which : "", p->err);
}

/* The result is the first channel's if that is the brightest: of a red pixel, class 0 where red
 * comes first, and class 2 where blue does. */
static void test_one_rule_of_colours(void **state)
{
    struct tiny *t = *state;
    struct folder f;
    struct process p;
    static const uint8_t red[3] = {200, 3, 1};
    static const char blue_first[] = "blue, green, red", red_first[] = "red, green, blue;";
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    put_caffe_model(&f);
    picture_put_png(&f, "red.png", red, 1, 1, PNG_COLOR_TYPE_RGB, 8, 3, false);
    tiny_write(t, "reds", "red.png 2\n");
    RUN(t, &p, "convert", "three.caffemodel", "three.safetensors");
    process_release(&p);
    static const char *const models[] = {"three.caffemodel", "three.safetensors"};
    for (int i = 0; i < 2; i++) {
        const char *model = models[i];
        RUN(t, &p, "predict", model, "red.png", "--json");
        has_colours(&p, blue_first);
        cJSON *record = line_of(p.out, 0);
        assert_true(number_of(class_at(record, 0), "class") == 2);
        cJSON_Delete(record);
        process_release(&p);
        RUN(t, &p, "test", "--net", "three.prototxt", "--weights", model, "--data", "images:reds",
            "--json");
        has_colours(&p, blue_first);
        assert_non_null(strstr(p.out, "\"accuracy\":1.0"));
        process_release(&p);
        RUN(t, &p, "test", "--net", "three.prototxt", "--weights", model, "--data", "images:reds",
            "--color", "rgb", "--json");
        has_colours(&p, NULL);
        assert_non_null(strstr(p.out, "\"accuracy\":0.0"));
        process_release(&p);
        RUN(t, &p, "test", "--model", model, "--data", "images:reds?color=rgb", "--json");
        has_colours(&p, NULL);
        assert_non_null(strstr(p.out, "\"accuracy\":0.0"));
        process_release(&p);
    }
    RUN(t, &p, "test", "--net", "three.prototxt", "--data", "images:reds", "--json");
    has_colours(&p, red_first);
    process_release(&p);
    REFUSED(t, "--color", "test", "--job", "job.prototxt", "--color", "bgr");
}

/* ---- how it is printed ---- */

static void test_a_table_with_names(void **state)
{
    struct tiny *t = *state;
    struct process p, q;
    char row[128];
    tiny_write(t, "names", "n00000001 lying\nstanding\nslanting\n");
    RUN(t, &p, "predict", "run", "--first", "3", "--top", "2", "--classes", "names");
    RUN(t, &q, "predict", "run", "--first", "3", "--top", "2", "--classes", "names", "--json");
    static const char *const names[] = {"lying", "standing", "slanting"};
    static const char head[] = "record   label  rank   class  name      probability\n";
    assert_memory_equal(p.out, head, sizeof head - 1);
    for (int i = 0; i < 3; i++) {
        cJSON *record = line_of(q.out, i);
        for (int k = 0; k < 2; k++) {
            const cJSON *class = class_at(record, k);
            int c = (int)number_of(class, "class");
            assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(class, "name")), names[c]);
            char lead[32] = "                ";
            if (k == 0)
                snprintf(lead, sizeof lead, "%-6d  %6d  ", i, i % 3);
            snprintf(row, sizeof row, "\n%s%4d  %6d  %-8s  %.2f %%\n", lead, k + 1, c, names[c],
                     100 * number_of(class, "probability"));
            if (!strstr(p.out, row))
                fail_msg("no row `%s` in:\n%s", row, p.out);
        }
        cJSON_Delete(record);
    }
    process_release(&p);
    process_release(&q);
}

static void test_a_run_is_tested_by_its_directory(void **state)
{
    struct tiny *t = *state;
    struct process p, q;
    RUN(t, &p, "test", "run");
    RUN(t, &q, "test", "--job", t->job, "--weights", "run/final.safetensors");
    assert_non_null(strstr(p.out, "accuracy "));
    assert_non_null(strstr(p.out, " % (error "));
    assert_string_equal(p.out, q.out);
    process_release(&p);
    process_release(&q);
    RUN(t, &p, "test", "run", "--model", "best");
    assert_non_null(strstr(p.err, "the model is run/best.safetensors"));
    process_release(&p);
    RUN(t, &p, "predict", "run", "--model", "best", "--first", "1");
    assert_non_null(strstr(p.err, "the model is run/best.safetensors"));
    process_release(&p);
    REFUSED(t, "no worst is in it; --model takes best, final or a file", "test", "run", "--model",
            "worst");
    REFUSED(t, "no such run or model", "test", "nowhere");
    REFUSED(t, "a RUN has its own net", "test", "run", "--net", "lenet");
    REFUSED(t, "--data of a RUN needs its maps", "test", "run", "--data",
            "idx:test-images,test-labels");
    REFUSED(t, "color=nonsense: expected", "test", "run", "--data",
            "idx:test-images,test-labels?scale=0.00390625", "--color", "nonsense");
}

/* A model that lies in no run brings a net and no records. */
static void test_a_file_of_no_run_is_tested_on_given_data(void **state)
{
    struct tiny *t = *state;
    struct process p, q;
    char folder[256];
    snprintf(folder, sizeof folder, "%s/models", t->folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    RUN(t, &p, "convert", "run/final.safetensors", "models/m.caffemodel", "--net", "net.prototxt");
    process_release(&p);
    REFUSED(t, "belongs to no run with test data; which records? give --data", "test",
            "models/m.caffemodel");
    RUN(t, &p, "test", "models/m.caffemodel", "--data", "idx:test-images,test-labels", "--scale",
        "0.00390625");
    RUN(t, &q, "test", "run");
    assert_string_equal(p.out, q.out);
    process_release(&p);
    process_release(&q);
}

static void test_a_job_without_test_data_asks_for_records(void **state)
{
    struct tiny *t = *state;
    struct process p;
    RUN(t, &p, "train", t->job, "--out", "untested", "--unset", "test_data", "--workers", "1",
        "--strategy", "single");
    process_release(&p);
    REFUSED(t, "test_data: is missing from the job; name records with --data KIND:PATH", "test",
            "untested");
}

static void test_scores_without_a_softmax(void **state)
{
    struct tiny *t = *state;
    struct process p;
    tiny_write(t, "plain.prototxt",
               "layer { name: 'data' type: 'Input' top: 'data' }\n"
               "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
               "  convolution_param { num_output: 6 kernel_size: 3 } }\n"
               "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"
               "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
               "layer { name: 'relu' type: 'ReLU' bottom: 'pool' top: 'pool' }\n"
               "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"
               "  inner_product_param { num_output: 3 } }\n");
    RUN(t, &p, "predict", "--net", "plain.prototxt", "--weights", "run/final.safetensors", SCALE,
        "--first", "1", "--json");
    cJSON *record = line_of(p.out, 0);
    assert_true(isfinite(number_of(class_at(record, 0), "score")));
    assert_true(isnan(number_of(class_at(record, 0), "probability")));
    cJSON_Delete(record);
    process_release(&p);
    RUN(t, &p, "predict", "--net", "plain.prototxt", "--weights", "run/final.safetensors", SCALE,
        "--first", "1");
    assert_non_null(strstr(p.out, "  score\n"));
    process_release(&p);
}

/* ---- refusals ---- */

static void test_wrong_inputs(void **state)
{
    struct tiny *t = *state;
    tiny_write(t, "text.png", "no picture\n");
    struct folder f;
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    static uint8_t bytes[FOLDER_BYTES_MAX];
    put_record(&f, "0.png", 0, 1);
    size_t len = folder_get(&f, "0.png", bytes);
    folder_put(&f, "half.png", bytes, len / 2);
    REFUSED(t, "half.png", "predict", "run", "0.png", "half.png");
    tiny_write(t, "two", "one\ntwo\n");
    tiny_write_changed(t, "wide.prototxt", tiny_net, "num_output: 3", "num_output: 4");
    tiny_write_changed(t, "regress.prototxt", tiny_net, "SoftmaxWithLoss", "EuclideanLoss");
#define FINAL "run/final.safetensors"
    REFUSED(t, "MODEL", "predict");
    REFUSED(t, "which records", "predict", "run");
    REFUSED(t, "which records", "predict", "--net", "net.prototxt", "--weights", FINAL);
    REFUSED(t, "--weights", "predict", "--net", "net.prototxt", spec);
    REFUSED(t, "--weights", "predict", "run", "--weights", FINAL, spec);
    REFUSED(t, "--model is for the directory of a run", "predict", "--net", "net.prototxt",
            "--weights", FINAL, spec, "--model", "nonsense");
    REFUSED(t, "nowhere", "predict", "nowhere", spec);
    REFUSED(t, "no run", "predict", ".", spec);
    REFUSED(t, "net.prototxt", "predict", "net.prototxt", spec);
    REFUSED(t, "both", "predict", "run", "0.png", "--data", spec);
    REFUSED(t, "text.png", "predict", "run", "text.png");
    REFUSED(t, "absent.png", "predict", "run", "absent.png");
    REFUSED(t, "tape:", "predict", "run", "tape:x");
    REFUSED(t, "nowhere", "predict", "run", "idx:nowhere,test-labels");
    REFUSED(t, "--first", "predict", "run", spec, "--first", "0");
    REFUSED(t, "--first", "predict", "run", "text.png", "--first", "1");
    REFUSED(t, "--top", "predict", "run", spec, "--top", "none");
    REFUSED(t, "--batch", "predict", "run", spec, "--batch", "65537");
    REFUSED(t, "--threads", "predict", "run", spec, "--threads", "-1");
    REFUSED(t, "kernels", "predict", "run", spec, "--kernels", "fast");
    REFUSED(t, "--input", "predict", "run", spec, "--input", "12x12");
    REFUSED(t, "--maps", "predict", "run", spec, "--maps", "crop=3");
    REFUSED(t, "--mean", "predict", "run", "--first", "1", "--scale", "2");
    REFUSED(t, "shade", "predict", "run", "text.png", "--maps", "shade=3");
    REFUSED(t, "nowhere", "predict", "run", spec, "--mean", "nowhere");
    REFUSED(t, "2 names", "predict", "run", spec, "--classes", "two");
    REFUSED(t, "nowhere", "predict", "run", spec, "--classes", "nowhere");
    REFUSED(t, "5 x 5", "predict", "run", "idx:test-images,test-labels?crop=5");
    REFUSED(t, "no run", "predict", "model.caffemodel", "--first", "1");
    REFUSED(t, "ip.0", "predict", "--net", "wide.prototxt", "--weights", FINAL, spec);
    REFUSED(t, "loss", "predict", "--net", "regress.prototxt", "--weights", FINAL, spec);
    REFUSED(t, "shape of its records", "predict", "--net", "net.prototxt", "--weights", FINAL,
            "0.png");
    REFUSED(t, "--fast", "predict", "run", spec, "--fast");
}

/* ---- another program's numbers ---- */

/* The first lines of a file of `caffe/expected`: index, label, ten values. */
static void compare_scores(struct tiny *t, const char *root, const char *net, const char *weights,
                           const char *data, const char *mean, const char *expected)
{
    char path[4][512], line[LINE_MAX_BYTES];
    struct process p;
    snprintf(path[0], sizeof path[0], "%s/caffe/%s", root, net);
    snprintf(path[1], sizeof path[1], "%s/caffe/%s", root, weights);
    snprintf(path[2], sizeof path[2], "%s/caffe/%s", root, mean ? mean : "");
    snprintf(path[3], sizeof path[3], "%s/caffe/expected/%s", root, expected);
    const char *argv[] = {"predict", "--net",  path[0],   "--weights", path[1],
                          "--data",  data,     "--first", "20",        "--top",
                          "10",      "--json", NULL,      NULL,        NULL};
    if (mean) {
        argv[12] = "--mean";
        argv[13] = path[2];
    }
    run_command(t, &p, argv);
    FILE *f = fopen(path[3], "r");
    assert_non_null(f);
    int n = 0;
    while (n < 20 && fgets(line, sizeof line, f)) {
        char *at = line;
        if (line[0] == '#')
            continue;
        cJSON *record = line_of(p.out, n);
        assert_true(strtol(at, &at, 10) == n++);
        assert_true((double)strtol(at, &at, 10) == number_of(record, "label"));
        for (int c = 0; c < 10; c++)
            assert_true(fabs(strtod(at, &at) - probability_of(record, c)) <= 1e-4);
        cJSON_Delete(record);
    }
    assert_int_equal(n, 20);
    fclose(f);
    process_release(&p);
}

static void test_caffes_own_models(void **state)
{
    struct tiny *t = *state;
    const char *root = getenv("PACELINE_DATA");
    char data[1024];
    if (!root) {
        print_message("    PACELINE_DATA is not set\n");
        skip();
    }
    snprintf(data, sizeof data,
             "idx:%s/mnist/t10k-images-idx3-ubyte.gz,%s/mnist/t10k-labels-idx1-ubyte.gz"
             "?scale=0.00390625",
             root, root);
    compare_scores(t, root, "lenet/lenet.prototxt", "lenet/lenet_iter_10000.caffemodel", data, NULL,
                   "lenet_iter_10000.txt");
    snprintf(data, sizeof data, "cifar10:%s/cifar-10-batches-bin", root);
    compare_scores(t, root, "cifar10_quick/cifar10_quick.prototxt",
                   "cifar10_quick/cifar10_quick_iter_5000.caffemodel", data,
                   "cifar10_quick/mean.binaryproto", "cifar10_quick_iter_5000.txt");
}

static int setup(void **state)
{
    static struct tiny tiny;
    struct process p;
    tiny_create(&tiny);
    RUN(&tiny, &p, "train", tiny.job, "--out", "run", "--workers", "1", "--strategy", "single");
    process_release(&p);
    *state = &tiny;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_agrees_with_the_run),
        cmocka_unit_test(test_equivalent_options),
        cmocka_unit_test(test_a_checkpoint),
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_one_rule_of_colours),
        cmocka_unit_test(test_a_table_with_names),
        cmocka_unit_test(test_a_run_is_tested_by_its_directory),
        cmocka_unit_test(test_a_file_of_no_run_is_tested_on_given_data),
        cmocka_unit_test(test_a_job_without_test_data_asks_for_records),
        cmocka_unit_test(test_scores_without_a_softmax),
        cmocka_unit_test(test_wrong_inputs),
        cmocka_unit_test(test_caffes_own_models),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}

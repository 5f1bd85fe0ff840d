/* Nets that Java trains step by step. */
#include "jni/native.h"
#include "paceline/data.h"
#include "paceline/net.h"
#include "paceline/predict.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SHAPE_INTS = 4, TENSOR_DIMS = paceline_spark_Native_TENSOR_INTS - 2 };

struct net {
    struct object object;
    pl_net *net;
    size_t record_floats;
};

static int fail_by_net(const struct net *net, int status)
{
    return fail_by_engine((const struct engine *)net->object.parent, status);
}

static bool has_room(JNIEnv *env, jarray array, jsize count)
{
    if (array && (*env)->GetArrayLength(env, array) >= count)
        return true;
    fail(PL_ERR_USAGE, "net: an array has no room for %d numbers", (int)count);
    return false;
}

/* ---- opening ---- */

struct net_options {
    pl_net_options net;
    int batch, threads, seed;
};

static int store_option(void *user, char *text)
{
    static const struct option known[] = {
        {"solver", OPTION_TEXT, offsetof(struct net_options, net.solver)},
        {"kernels", OPTION_TEXT, offsetof(struct net_options, net.kernels)},
        {"batch", OPTION_INT, offsetof(struct net_options, batch)},
        {"threads", OPTION_INT, offsetof(struct net_options, threads)},
        {"seed", OPTION_INT, offsetof(struct net_options, seed)},
        {0}};
    return option_store(known, text, user);
}

/* The net of the assignment, with what pl_net_test needs. */
static int read_spec(pl_engine *engine, const char *assignment, pl_net_spec **out)
{
    pl_job *job = NULL;
    bool lossless;
    int rc = pl_job_create(engine, &job);
    if (rc == PL_OK)
        rc = pl_job_set(job, assignment);
    if (rc == PL_OK)
        rc = pl_net_spec_job(job, out);
    if (rc == PL_OK)
        rc = pl_net_spec_judge(*out, &lossless);
    pl_job_free(job);
    return rc;
}

/* shape[3] is written, and shape[0..2] where they are 0. */
static int make_net(pl_engine *engine, const char *assignment, const pl_net_options *options,
                    uint32_t shape[SHAPE_INTS], pl_net **out)
{
    pl_net_spec *spec = NULL;
    pl_net_classes classes;
    int rc = read_spec(engine, assignment, &spec);
    if (rc == PL_OK && shape[0] == 0)
        rc = pl_net_spec_record(spec, NULL, shape);
    if (rc == PL_OK)
        rc = pl_net_create(engine, spec, options, out);
    if (rc == PL_OK)
        rc = pl_net_form(*out, shape[0], shape[1], shape[2]);
    if (rc == PL_OK)
        rc = pl_net_classes_of(*out, &classes);
    if (rc == PL_OK)
        shape[3] = (uint32_t)classes.count;
    pl_net_spec_free(spec);
    return rc;
}

static int check_shape(const jint shape[SHAPE_INTS])
{
    bool none = shape[0] == 0 && shape[1] == 0 && shape[2] == 0;
    if (none || (shape[0] > 0 && shape[1] > 0 && shape[2] > 0))
        return PL_OK;
    return fail(PL_ERR_USAGE, "net: records of %d channels, %d rows and %d columns", (int)shape[0],
                (int)shape[1], (int)shape[2]);
}

static int open_net(JNIEnv *env, const struct engine *engine, const char *assignment,
                    struct net_options *options, jintArray shape, struct net *net)
{
    jint raw[SHAPE_INTS];
    uint32_t form[SHAPE_INTS] = {0};
    (*env)->GetIntArrayRegion(env, shape, 0, SHAPE_INTS, raw);
    int rc = check_shape(raw);
    if (rc != PL_OK)
        return rc;
    for (int i = 0; i < 3; i++)
        form[i] = (uint32_t)raw[i];
    options->net.batch = (uint32_t)options->batch;
    options->net.threads = (uint32_t)options->threads;
    options->net.seed = (uint64_t)options->seed;
    rc = fail_by_engine(engine,
                        make_net(engine->engine, assignment, &options->net, form, &net->net));
    net->record_floats = (size_t)form[0] * form[1] * form[2];
    for (int i = 0; i < SHAPE_INTS; i++)
        raw[i] = (jint)form[i];
    if (rc == PL_OK)
        (*env)->SetIntArrayRegion(env, shape, 0, SHAPE_INTS, raw);
    return rc;
}

static void end_net(struct object *object)
{
    pl_net_free(((struct net *)object)->net);
}

jlong NATIVE(netOpen)(JNIEnv *env, jclass class, jlong handle, jstring assignment,
                      jobjectArray options, jintArray shape)
{
    (void)class;
    struct engine *engine = object_use(handle, OBJECT_ENGINE, USE_ALONE);
    if (!engine)
        return PL_ERR_USAGE;
    struct texts texts = {0};
    struct net_options given = {.net.size = sizeof given.net};
    const char *text = NULL;
    struct net *net = calloc(1, sizeof *net);
    int rc = net ? PL_OK : fail(PL_ERR_NOMEM, "out of memory for a net");
    if (rc == PL_OK)
        rc = assignment && has_room(env, shape, SHAPE_INTS)
                 ? texts_take(&texts, env, assignment, &text)
                 : fail(PL_ERR_USAGE, "net: no net, or no shape");
    if (rc == PL_OK)
        rc = texts_take_all(&texts, env, options, store_option, &given);
    if (rc == PL_OK)
        rc = open_net(env, engine, text, &given, shape, net);
    texts_release(&texts);
    jlong opened =
        rc == PL_OK ? object_add(&net->object, OBJECT_NET, &engine->object, end_net) : (jlong)rc;
    if (opened < 0 && net)
        pl_net_free(net->net);
    if (opened < 0)
        free(net);
    object_release(engine, USE_ALONE, false);
    return opened;
}

/* ---- training ---- */

/* Call `call` with the net and a text. */
static jint with_text(JNIEnv *env, jlong handle, jstring text, jboolean which,
                      int (*call)(pl_net *net, const char *text, bool which))
{
    struct net *net = object_use(handle, OBJECT_NET, USE_ALONE);
    if (!net)
        return PL_ERR_USAGE;
    struct texts texts = {0};
    const char *copy = NULL;
    int rc = text ? texts_take(&texts, env, text, &copy) : fail(PL_ERR_USAGE, "net: no text");
    if (rc == PL_OK)
        rc = fail_by_net(net, call(net->net, copy, which));
    texts_release(&texts);
    object_release(net, USE_ALONE, false);
    return rc;
}

static int set_data(pl_net *net, const char *spec, bool training)
{
    return training ? pl_net_set_training_data(net, spec, 0, 1)
                    : pl_net_set_validation_data(net, spec, 0, 1);
}

jint NATIVE(netData)(JNIEnv *env, jclass class, jlong handle, jstring spec, jboolean training)
{
    (void)class;
    return with_text(env, handle, spec, training, set_data);
}

static int use_file(pl_net *net, const char *path, bool save)
{
    return save ? pl_net_save_weights(net, path) : pl_net_load_weights(net, path);
}

jint NATIVE(netFile)(JNIEnv *env, jclass class, jlong handle, jstring path, jboolean save)
{
    (void)class;
    return with_text(env, handle, path, save, use_file);
}

jint NATIVE(netTrain)(JNIEnv *env, jclass class, jlong handle, jlong steps, jdoubleArray loss)
{
    (void)class;
    double mean = 0;
    struct net *net = object_use(handle, OBJECT_NET, USE_ALONE);
    if (!net)
        return PL_ERR_USAGE;
    int rc = PL_ERR_USAGE;
    if (steps < 0)
        fail(rc, "net: %lld steps", (long long)steps);
    else if (has_room(env, loss, 1))
        rc = fail_by_net(net, pl_net_train(net->net, (uint64_t)steps, &mean));
    if (rc == PL_OK)
        (*env)->SetDoubleArrayRegion(env, loss, 0, 1, &mean);
    object_release(net, USE_ALONE, false);
    return rc;
}

jint NATIVE(netTest)(JNIEnv *env, jclass class, jlong handle, jlong steps, jdoubleArray result)
{
    (void)class;
    pl_test_result test = {0};
    struct net *net = object_use(handle, OBJECT_NET, USE_ALONE);
    if (!net)
        return PL_ERR_USAGE;
    int rc = PL_ERR_USAGE;
    if (steps < 0)
        fail(rc, "net: %lld steps", (long long)steps);
    else if (has_room(env, result, 2))
        rc = fail_by_net(net, pl_net_test(net->net, (uint64_t)steps, &test));
    if (rc == PL_OK)
        (*env)->SetDoubleArrayRegion(env, result, 0, 2, (const jdouble[]){test.error, test.loss});
    object_release(net, USE_ALONE, false);
    return rc;
}

static int run_forward(JNIEnv *env, struct net *net, jobject records, jint count, const char *blob,
                       jobject out, size_t *each)
{
    const float *x =
        count < 0 ? NULL
                  : buffer_floats(env, records, count * (jlong)net->record_floats, "records");
    float *y = x ? buffer_floats(env, out, 0, "out") : NULL;
    if (count < 0)
        fail(PL_ERR_USAGE, "net: %d records", (int)count);
    if (!y)
        return PL_ERR_USAGE;
    size_t room = (size_t)(*env)->GetDirectBufferCapacity(env, out) / sizeof *y;
    return fail_by_net(net, pl_net_forward(net->net, x, (size_t)count, blob, y, room, each));
}

jint NATIVE(netForward)(JNIEnv *env, jclass class, jlong handle, jobject records, jint count,
                        jstring blob, jobject out)
{
    (void)class;
    struct net *net = object_use(handle, OBJECT_NET, USE_ALONE);
    if (!net)
        return PL_ERR_USAGE;
    struct texts texts = {0};
    const char *name = NULL;
    size_t each = 0;
    int rc = blob ? texts_take(&texts, env, blob, &name) : fail(PL_ERR_USAGE, "net: no blob");
    if (rc == PL_OK)
        rc = run_forward(env, net, records, count, name, out, &each);
    texts_release(&texts);
    object_release(net, USE_ALONE, false);
    return rc == PL_OK ? (jint)each : rc;
}

/* ---- weights ---- */

/* Number i; behind the weights the state, if there is any. */
static int tensor_at(struct net *net, jint i, pl_weights *out)
{
    size_t count = pl_net_weights_count(net->net);
    if (i < 0 || (size_t)i > count)
        return fail(PL_ERR_NOT_FOUND, "net: there is no tensor %d", (int)i);
    if ((size_t)i < count)
        return fail_by_net(net, pl_net_weights_at(net->net, (size_t)i, out));
    *out = (pl_weights){.layer = "", .dims = 1};
    int rc = fail_by_net(net, pl_net_all_state(net->net, &out->at, &out->count));
    out->shape[0] = out->count;
    return rc == PL_OK && out->count == 0 ? fail(PL_ERR_NOT_FOUND, "net: it has no state") : rc;
}

jint NATIVE(netTensors)(JNIEnv *env, jclass class, jlong handle)
{
    (void)env, (void)class;
    pl_weights state;
    struct net *net = object_use(handle, OBJECT_NET, USE_ALONE);
    if (!net)
        return PL_ERR_USAGE;
    jint count = (jint)pl_net_weights_count(net->net);
    count += tensor_at(net, count, &state) == PL_OK;
    object_release(net, USE_ALONE, false);
    return count;
}

static jbyteArray describe_tensor(JNIEnv *env, const pl_weights *tensor, jintArray shape)
{
    jint numbers[TENSOR_DIMS + 2] = {(jint)tensor->index, (jint)tensor->dims};
    for (size_t d = 0; d < tensor->dims; d++)
        numbers[d + 2] = (jint)tensor->shape[d];
    (*env)->SetIntArrayRegion(env, shape, 0, TENSOR_DIMS + 2, numbers);
    return text_bytes(env, tensor->layer);
}

jbyteArray NATIVE(netTensor)(JNIEnv *env, jclass class, jlong handle, jint i, jintArray shape)
{
    (void)class;
    pl_weights tensor;
    jbyteArray name = NULL;
    struct net *net = object_use(handle, OBJECT_NET, USE_ALONE);
    if (!net)
        return NULL;
    if (has_room(env, shape, TENSOR_DIMS + 2) && tensor_at(net, i, &tensor) == PL_OK)
        name = describe_tensor(env, &tensor, shape);
    object_release(net, USE_ALONE, false);
    return name;
}

static int copy_floats(JNIEnv *env, const pl_weights *tensor, jlong from, jobject buffer,
                       jint count, bool write)
{
    if (from < 0 || count < 0 || (size_t)from > tensor->count ||
        (size_t)count > tensor->count - (size_t)from)
        return fail(PL_ERR_USAGE, "net: %d floats from %lld on, and the tensor has %zu", (int)count,
                    (long long)from, tensor->count);
    float *at = tensor->at + from, *other = buffer_floats(env, buffer, count, "weights");
    if (!other)
        return PL_ERR_USAGE;
    memcpy(write ? at : other, write ? other : at, (size_t)count * sizeof *at);
    return PL_OK;
}

jint NATIVE(netCopy)(JNIEnv *env, jclass class, jlong handle, jint i, jlong from, jobject floats,
                     jint count, jboolean write)
{
    (void)class;
    pl_weights tensor;
    struct net *net = object_use(handle, OBJECT_NET, USE_ALONE);
    if (!net)
        return PL_ERR_USAGE;
    int rc = tensor_at(net, i, &tensor);
    if (rc == PL_OK)
        rc = copy_floats(env, &tensor, from, floats, count, write);
    object_release(net, USE_ALONE, false);
    return rc;
}

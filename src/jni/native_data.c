/* Records that Java streams into an engine, and models that predict for records of Java's. */
#include "jni/native.h"
#include "paceline/predict.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SAME(U8);
SAME(F32);
SAME(I32);
SAME(I64);
SAME(BF16);

static size_t value_bytes(jint type)
{
    static const size_t bytes[] = {
        [PL_U8] = 1, [PL_F32] = 4, [PL_I32] = 4, [PL_I64] = 8, [PL_BF16] = 2};
    return type >= 0 && (size_t)type < sizeof bytes / sizeof *bytes ? bytes[type] : 0;
}

/* ---- streams ---- */

struct stream {
    struct object object;
    pl_stream *stream;
    size_t record_bytes;
    bool labelled;
};

static int fail_by_stream(const struct stream *stream, int status)
{
    return status == PL_OK ? PL_OK : fail(status, "%s", pl_stream_error(stream->stream));
}

static void end_stream(struct object *object)
{
    pl_stream_free(((struct stream *)object)->stream);
}

jlong NATIVE(streamOpen)(JNIEnv *env, jclass class, jlong handle, jstring name, jint channels,
                         jint height, jint width, jint classes, jint type, jlong memory,
                         jstring folder, jint growth, jlong hash)
{
    (void)class;
    struct engine *engine = object_use(handle, OBJECT_ENGINE, USE_ALONE);
    if (!engine)
        return PL_ERR_USAGE;
    struct texts texts = {0};
    const char *bound = NULL;
    const bool kept = growth == paceline_spark_Native_KEPT;
    pl_stream_options options = {.size = sizeof options,
                                 .channels = (uint32_t)channels,
                                 .height = (uint32_t)height,
                                 .width = (uint32_t)width,
                                 .classes = (uint32_t)classes,
                                 .type = (pl_value_type)type,
                                 .memory = (size_t)memory,
                                 .grows = growth != paceline_spark_Native_COMPLETE,
                                 .parts = kept || growth == paceline_spark_Native_PARTS,
                                 .hash = (uint64_t)hash,
                                 .set = (uint64_t)hash};
    struct stream *stream = calloc(1, sizeof *stream);
    int rc = stream ? PL_OK : fail(PL_ERR_NOMEM, "out of memory for a stream");
    if (rc == PL_OK && (!name || memory < 0))
        rc = fail(PL_ERR_USAGE, "stream: no name, or less than no memory");
    if (rc == PL_OK)
        rc = texts_take(&texts, env, name, &bound);
    if (rc == PL_OK)
        rc = texts_take(&texts, env, folder, kept ? &options.keep : &options.folder);
    if (rc == PL_OK)
        rc = fail_by_engine(engine,
                            pl_stream_open(engine->engine, bound, &options, &stream->stream));
    texts_release(&texts);
    jlong opened = rc;
    if (rc == PL_OK) {
        stream->object.own_thread = options.grows;
        stream->labelled = classes > 0;
        stream->record_bytes =
            value_bytes(type) * options.channels * options.height * options.width;
        opened = object_add(&stream->object, OBJECT_STREAM, &engine->object, end_stream);
        if (opened < 0)
            pl_stream_free(stream->stream);
    }
    if (opened < 0)
        free(stream);
    object_release(engine, USE_ALONE, false);
    return opened;
}

/* out[0] and, if the records have labels, out[1]. */
static int give_buffers(JNIEnv *env, const struct stream *stream, void *values, uint32_t *labels,
                        size_t room, jobjectArray out)
{
    const size_t most = INT_MAX / (stream->record_bytes < 4 ? 4 : stream->record_bytes);
    const jlong n = (jlong)(room < most ? room : most);
    jobject buffer[2] = {(*env)->NewDirectByteBuffer(env, values, n * (jlong)stream->record_bytes),
                         NULL};
    if (buffer[0] && stream->labelled)
        buffer[1] = (*env)->NewDirectByteBuffer(env, labels, n * (jlong)sizeof *labels);
    if (!buffer[stream->labelled])
        return fail(PL_ERR_NOMEM, "out of memory for buffers");
    for (jsize i = 0; i < 2; i++)
        (*env)->SetObjectArrayElement(env, out, i, buffer[i]);
    return PL_OK;
}

jint NATIVE(streamNext)(JNIEnv *env, jclass class, jlong handle, jobjectArray out)
{
    (void)class;
    void *values;
    uint32_t *labels;
    size_t room;
    struct stream *stream = object_use(handle, OBJECT_STREAM, USE_ALONE);
    if (!stream)
        return PL_ERR_USAGE;
    int rc = out && (*env)->GetArrayLength(env, out) == 2
                 ? PL_OK
                 : fail(PL_ERR_USAGE, "stream: no array of two buffers");
    if (rc == PL_OK)
        rc = fail_by_stream(stream, pl_stream_acquire(stream->stream, &values, &labels, &room));
    if (rc == PL_OK)
        rc = give_buffers(env, stream, values, labels, room, out);
    object_release(stream, USE_ALONE, false);
    return rc;
}

jint NATIVE(streamCommit)(JNIEnv *env, jclass class, jlong handle, jint count)
{
    (void)env, (void)class;
    struct stream *stream = object_use(handle, OBJECT_STREAM, USE_ALONE);
    if (!stream)
        return PL_ERR_USAGE;
    int rc = count < 0 ? fail(PL_ERR_USAGE, "stream: %d records", (int)count)
                       : fail_by_stream(stream, pl_stream_commit(stream->stream, (size_t)count));
    object_release(stream, USE_ALONE, false);
    return rc;
}

jint NATIVE(streamCut)(JNIEnv *env, jclass class, jlong handle, jlong hash)
{
    (void)env, (void)class;
    struct stream *stream = object_use(handle, OBJECT_STREAM, USE_ALONE);
    if (!stream)
        return PL_ERR_USAGE;
    int rc = fail_by_stream(stream, pl_stream_cut(stream->stream, (uint64_t)hash));
    object_release(stream, USE_ALONE, false);
    return rc;
}

/* hashes[i] and records[i] are of part i, and adopted[i] says whether it came. */
static int adopt_parts(JNIEnv *env, const struct stream *stream, const char *path, jint count,
                       jlongArray hashes, jlongArray records, jbooleanArray adopted)
{
    size_t n = (size_t)count;
    pl_stream_part *wanted = calloc(n + 1, sizeof *wanted);
    jlong *numbers = calloc(2 * n + 1, sizeof *numbers);
    bool *came = calloc(n + 1, sizeof *came);
    jboolean *answer = calloc(n + 1, sizeof *answer);
    int rc =
        wanted && numbers && came && answer ? PL_OK : fail(PL_ERR_NOMEM, "out of memory for parts");
    if (rc == PL_OK) {
        (*env)->GetLongArrayRegion(env, hashes, 0, count, numbers);
        (*env)->GetLongArrayRegion(env, records, 0, count, numbers + n);
        for (size_t i = 0; i < n; i++)
            wanted[i] = (pl_stream_part){(uint64_t)numbers[i], (uint64_t)numbers[n + i]};
        rc = fail_by_stream(stream, pl_stream_adopt(stream->stream, path, wanted, n, came));
        for (size_t i = 0; i < n; i++)
            answer[i] = came[i];
        (*env)->SetBooleanArrayRegion(env, adopted, 0, count, answer);
    }
    free(answer);
    free(came);
    free(numbers);
    free(wanted);
    return rc;
}

jint NATIVE(streamAdopt)(JNIEnv *env, jclass class, jlong handle, jstring path, jlongArray hashes,
                         jlongArray records, jbooleanArray adopted)
{
    (void)class;
    struct stream *stream = object_use(handle, OBJECT_STREAM, USE_ALONE);
    if (!stream)
        return PL_ERR_USAGE;
    struct texts texts = {0};
    const char *from = NULL;
    jint count = hashes ? (*env)->GetArrayLength(env, hashes) : -1;
    int rc = PL_OK;
    if (!path || !records || !adopted || (*env)->GetArrayLength(env, records) != count ||
        (*env)->GetArrayLength(env, adopted) != count)
        rc = fail(PL_ERR_USAGE, "stream: no path, or arrays of several lengths");
    if (rc == PL_OK)
        rc = texts_take(&texts, env, path, &from);
    if (rc == PL_OK)
        rc = adopt_parts(env, stream, from, count, hashes, records, adopted);
    texts_release(&texts);
    object_release(stream, USE_ALONE, false);
    return rc;
}

jint NATIVE(streamSeal)(JNIEnv *env, jclass class, jlong handle)
{
    (void)env, (void)class;
    struct stream *stream = object_use(handle, OBJECT_STREAM, USE_LAST);
    if (!stream)
        return PL_ERR_USAGE;
    int rc = fail_by_stream(stream, pl_stream_seal(stream->stream));
    object_release(stream, USE_LAST, rc == PL_OK);
    if (rc == PL_OK)
        free(stream);
    return rc;
}

jint NATIVE(unbind)(JNIEnv *env, jclass class, jlong handle, jstring name)
{
    (void)class;
    struct engine *engine = object_use(handle, OBJECT_ENGINE, USE_ALONE);
    if (!engine)
        return PL_ERR_USAGE;
    struct texts texts = {0};
    const char *bound = NULL;
    int rc = name ? texts_take(&texts, env, name, &bound) : fail(PL_ERR_USAGE, "unbind: no name");
    if (rc == PL_OK)
        rc = fail_by_engine(engine, pl_data_unbind(engine->engine, bound));
    texts_release(&texts);
    object_release(engine, USE_ALONE, false);
    return rc;
}

jlong NATIVE(pack)(JNIEnv *env, jclass class, jlong handle, jstring spec, jstring prefix)
{
    (void)class;
    struct engine *engine = object_use(handle, OBJECT_ENGINE, USE_ALONE);
    if (!engine)
        return PL_ERR_USAGE;
    struct texts texts = {0};
    const char *from = NULL;
    pl_data_packing packing = {.size = sizeof packing, .replace = true};
    pl_data_packed packed;
    pl_data *data = NULL;
    int rc = texts_take(&texts, env, spec, &from);
    if (rc == PL_OK)
        rc = texts_take(&texts, env, prefix, &packing.prefix);
    if (rc == PL_OK && (!from || !packing.prefix))
        rc = fail(PL_ERR_USAGE, "pack: no SPEC, or no prefix");
    if (rc == PL_OK)
        rc = fail_by_engine(engine, pl_data_open(engine->engine, from, true, &data));
    if (rc == PL_OK)
        rc = fail_by_engine(engine, pl_data_pack(data, &packing, &packed));
    pl_data_close(data);
    texts_release(&texts);
    object_release(engine, USE_ALONE, false);
    return rc == PL_OK ? (jlong)packed.records : rc;
}

/* ---- models ---- */

enum { PREDICT_MAX = 1 << 20, BINDING_TEXT = 48, SHAPE_INTS = 5 };

struct model {
    struct object object;
    pl_net *net;
    pl_data *data; /* reads `records`, through the job's maps */
    char name[BINDING_TEXT];
    bool bound;
    const unsigned char *records; /* of the call in progress */
    size_t count, record_bytes;
    pl_net_classes classes;
    size_t inputs, batch; /* floats of a record that the net takes; records at a time */
    float *x;             /* a batch of them */
};

/* Records are those of the call in progress. */
static int read_record(void *user, size_t i, void *values)
{
    const struct model *model = user;
    memset(values, 0, model->record_bytes);
    if (i < model->count)
        memcpy(values, model->records + i * model->record_bytes, model->record_bytes);
    return PL_OK;
}

/* All but the struct itself. */
static void close_model(pl_engine *engine, struct model *model)
{
    pl_net_free(model->net);
    pl_data_close(model->data);
    if (model->bound)
        pl_data_unbind(engine, model->name);
    free(model->x);
}

/* Records of a call as data of the engine, with the job's maps. */
static int open_records(pl_engine *engine, const pl_job *job, struct model *model,
                        pl_records *records)
{
    char spec[BINDING_TEXT + sizeof "memory:"];
    uint32_t shape[3];
    records->count = PREDICT_MAX;
    records->read = read_record;
    records->user = model;
    records->hash = 1;
    snprintf(model->name, sizeof model->name, "model-%llx", (unsigned long long)(uintptr_t)model);
    snprintf(spec, sizeof spec, "memory:%s", model->name);
    int rc = pl_data_bind(engine, model->name, records);
    model->bound = rc == PL_OK;
    if (rc == PL_OK)
        rc = pl_data_open(engine, spec, false, &model->data);
    if (rc == PL_OK)
        rc = pl_data_take_maps(model->data, job);
    if (rc == PL_OK)
        rc = pl_data_shape(model->data, shape);
    if (rc == PL_OK)
        model->inputs = (size_t)shape[0] * shape[1] * shape[2];
    return rc;
}

static int open_net(pl_engine *engine, const pl_job *job, const char *weights, struct model *model,
                    const pl_net_options *options)
{
    pl_net_spec *spec = NULL;
    bool lossless;
    int rc = pl_net_spec_job(job, &spec);
    if (rc == PL_OK)
        rc = pl_net_spec_judge(spec, &lossless); /* a net without a loss cannot be made */
    if (rc == PL_OK)
        rc = pl_net_create(engine, spec, options, &model->net);
    if (rc == PL_OK)
        rc = pl_net_form_data(model->net, job, model->data);
    if (rc == PL_OK)
        rc = pl_net_load_weights(model->net, weights);
    if (rc == PL_OK)
        rc = pl_net_classes_of(model->net, &model->classes);
    pl_net_spec_free(spec);
    return rc;
}

static int open_model(const struct engine *engine, const char *path, const char *weights,
                      struct model *model, pl_records *records, const pl_net_options *options)
{
    pl_job *job = NULL;
    int rc = pl_job_load_run(engine->engine, path, &job);
    if (rc == PL_OK)
        rc = open_records(engine->engine, job, model, records);
    if (rc == PL_OK)
        rc = open_net(engine->engine, job, weights, model, options);
    pl_job_free(job);
    if (rc != PL_OK)
        return fail_by_engine(engine, rc);
    model->x = malloc(model->batch * model->inputs * sizeof *model->x);
    return model->x ? PL_OK : fail(PL_ERR_NOMEM, "out of memory for records to predict for");
}

/* Check the arguments of modelOpen. */
static int check_model(JNIEnv *env, jint type, jint threads, jint batch, jintArray shape,
                       pl_records *records)
{
    jint raw[3] = {0};
    bool whole = shape && (*env)->GetArrayLength(env, shape) == SHAPE_INTS;
    if (whole)
        (*env)->GetIntArrayRegion(env, shape, 0, 3, raw);
    if (raw[0] < 1 || raw[1] < 1 || raw[2] < 1)
        return fail(PL_ERR_USAGE,
                    "model: shape is %d numbers that begin with channels, height and "
                    "width",
                    SHAPE_INTS);
    if (value_bytes(type) == 0 || threads < 0 || batch < 1 || batch > PREDICT_MAX)
        return fail(PL_ERR_USAGE, "model: type %d, threads %d or batch %d is wrong", (int)type,
                    (int)threads, (int)batch);
    *records = (pl_records){.size = sizeof(pl_records),
                            .channels = (uint32_t)raw[0],
                            .height = (uint32_t)raw[1],
                            .width = (uint32_t)raw[2],
                            .type = (pl_value_type)type};
    return PL_OK;
}

static void write_shape(JNIEnv *env, jintArray shape, const struct model *model)
{
    const jint more[] = {
        (jint)model->classes.count,
        (model->classes.probabilities ? paceline_spark_Native_PROBABILITIES : 0) |
            (model->classes.values ? paceline_spark_Native_VALUES : 0),
    };
    (*env)->SetIntArrayRegion(env, shape, 3, 2, more);
}

static void end_model(struct object *object)
{
    close_model(((const struct engine *)object->parent)->engine, (struct model *)object);
}

/* Its handle, or a status; the model is freed then. */
static jlong admit_model(JNIEnv *env, struct engine *engine, struct model *model, jintArray shape,
                         int rc)
{
    jlong opened = rc == PL_OK
                       ? object_add(&model->object, OBJECT_MODEL, &engine->object, end_model)
                       : (jlong)rc;
    if (opened >= 0)
        write_shape(env, shape, model);
    else if (model)
        close_model(engine->engine, model);
    if (opened < 0)
        free(model);
    return opened;
}

jlong NATIVE(modelOpen)(JNIEnv *env, jclass class, jlong handle, jstring job, jstring weights,
                        jint type, jint threads, jint batch, jintArray shape)
{
    (void)class;
    struct engine *engine = object_use(handle, OBJECT_ENGINE, USE_ALONE);
    if (!engine)
        return PL_ERR_USAGE;
    struct texts texts = {0};
    const char *path = NULL, *file = NULL;
    pl_records records;
    const pl_net_options options = {.size = sizeof options,
                                    .batch = (uint32_t)batch,
                                    .threads = (uint32_t)threads,
                                    .inference = true};
    struct model *model = calloc(1, sizeof *model);
    int rc = model ? check_model(env, type, threads, batch, shape, &records)
                   : fail(PL_ERR_NOMEM, "out of memory for a model");
    if (rc == PL_OK && (!job || !weights))
        rc = fail(PL_ERR_USAGE, "model: no job, or no weights");
    if (rc == PL_OK)
        rc = texts_take(&texts, env, job, &path);
    if (rc == PL_OK)
        rc = texts_take(&texts, env, weights, &file);
    if (rc == PL_OK) {
        model->batch = (size_t)batch;
        model->record_bytes = value_bytes(type) * records.channels * records.height * records.width;
        rc = open_model(engine, path, file, model, &records, &options);
    }
    texts_release(&texts);
    jlong opened = admit_model(env, engine, model, shape, rc);
    object_release(engine, USE_ALONE, false);
    return opened;
}

static int predict_records(struct model *model, size_t count, float *scores)
{
    const size_t each = model->classes.count;
    int rc = PL_OK;
    model->count = count;
    for (size_t i = 0; rc == PL_OK && i < count; i += model->batch) {
        size_t n = count - i < model->batch ? count - i : model->batch;
        rc = pl_data_read(model->data, i, n, model->x, n * model->inputs);
        if (rc == PL_OK)
            rc = pl_net_predict(model->net, model->x, n, scores + i * each, n * each);
    }
    model->count = 0;
    return fail_by_engine((const struct engine *)model->object.parent, rc);
}

jint NATIVE(modelPredict)(JNIEnv *env, jclass class, jlong handle, jobject records, jint count,
                          jobject scores)
{
    (void)class;
    struct model *model = object_use(handle, OBJECT_MODEL, USE_ALONE);
    if (!model)
        return PL_ERR_USAGE;
    jlong n = count;
    float *out = NULL;
    bool fits = count >= 0 && count <= PREDICT_MAX;
    model->records =
        fits ? buffer_memory(env, records, n * (jlong)model->record_bytes, "records") : NULL;
    if (model->records)
        out = buffer_floats(env, scores, n * (jlong)model->classes.count, "scores");
    int rc = PL_ERR_USAGE;
    if (!fits)
        fail(rc, "predict: %d records, of %d at most", (int)count, PREDICT_MAX);
    else if (out)
        rc = predict_records(model, (size_t)count, out);
    object_release(model, USE_ALONE, false);
    return rc;
}

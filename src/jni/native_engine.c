/* Engines, and what makes this library one of a process. */
#include "jni/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_BYTES = 256 << 10 };

SAME(ERR_FULL);
SAME(ERR_STOP);
SAME(ERR_PEER);
SAME(ERR_INPUT);
SAME(ERR_USAGE);
SAME(ERR_NOT_FOUND);
SAME(ERR_UNSUPPORTED);
SAME(ERR_NOMEM);
SAME(ERR_IO);
SAME(ERR_DIVERGED);
SAME(ERR_BUG);
SAME(LOG_DEBUG);
SAME(LOG_ERROR);
_Static_assert(paceline_spark_Native_LINES_BYTES == LINE_MAX_BYTES,
               "Native.java has the same value");

/* ---- loading ---- */

/* System.getProperties().putIfAbsent(KEY, "loaded"): class loaders share the properties, and so do
 * copies of this file. false after an exception, also when the property was there. */
static bool claim_process(JNIEnv *env)
{
    jclass system = (*env)->FindClass(env, "java/lang/System");
    jclass map = system ? (*env)->FindClass(env, "java/util/Map") : NULL;
    jmethodID get =
        map ? (*env)->GetStaticMethodID(env, system, "getProperties", "()Ljava/util/Properties;")
            : NULL;
    jmethodID put =
        get ? (*env)->GetMethodID(env, map, "putIfAbsent",
                                  "(Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;")
            : NULL;
    jobject properties = put ? (*env)->CallStaticObjectMethod(env, system, get) : NULL;
    if ((*env)->ExceptionCheck(env) || !properties)
        return false;
    jstring key = (*env)->NewStringUTF(env, "paceline.spark.native");
    jstring value = key ? (*env)->NewStringUTF(env, "loaded") : NULL;
    jobject before = value ? (*env)->CallObjectMethod(env, properties, put, key, value) : NULL;
    if ((*env)->ExceptionCheck(env) || !value)
        return false;
    jclass error = before ? (*env)->FindClass(env, "java/lang/UnsatisfiedLinkError") : NULL;
    if (error)
        (*env)->ThrowNew(env, error,
                         "Paceline's native library is loaded already, by another class loader of "
                         "this JVM: put its jar on the class path once");
    return !before;
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved)
{
    void *env = NULL;
    (void)reserved;
    if ((*vm)->GetEnv(vm, &env, JNI_VERSION_10) != JNI_OK)
        return JNI_ERR;
    return claim_process(env) ? JNI_VERSION_10 : JNI_ERR;
}

jbyteArray NATIVE(messageBytes)(JNIEnv *env, jclass class)
{
    (void)class;
    return text_bytes(env, fail_message());
}

/* ---- engines ---- */

static void keep_log(void *user, pl_log_level level, const char *line)
{
    struct engine *engine = user;
    char text[LINE_MAX_BYTES / 8];
    snprintf(text, sizeof text, "%d %s", (int)level, line);
    lines_put(&engine->log, text);
}

static void end_engine(struct object *object)
{
    struct engine *engine = (struct engine *)object;
    pl_engine_destroy(engine->engine);
    lines_release(&engine->log);
}

jlong NATIVE(engineCreate)(JNIEnv *env, jclass class, jint log_level)
{
    (void)env, (void)class;
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine || !lines_init(&engine->log, LOG_BYTES)) {
        free(engine);
        return fail(PL_ERR_NOMEM, "out of memory for an engine");
    }
    const pl_engine_options options = {
        .size = sizeof options, keep_log, engine, (pl_log_level)log_level};
    int rc = pl_engine_create(&options, &engine->engine);
    jlong handle = rc == PL_ERR_USAGE ? fail(rc, "PACELINE_ISA names no instruction set: sse2, "
                                                 "avx2 or avx512")
                   : rc != PL_OK      ? fail(rc, "out of memory for an engine")
                                 : object_add(&engine->object, OBJECT_ENGINE, NULL, end_engine);
    if (handle < 0) {
        end_engine(&engine->object);
        free(engine);
    }
    return handle;
}

jint NATIVE(close)(JNIEnv *env, jclass class, jlong handle)
{
    (void)env, (void)class;
    struct object *object = object_use(handle, OBJECT_ANY, USE_LAST);
    if (!object)
        return PL_ERR_USAGE;
    object->end(object); /* in use, so that the process does not end meanwhile */
    object_release(object, USE_LAST, true);
    free(object);
    return PL_OK;
}

jint NATIVE(engineLog)(JNIEnv *env, jclass class, jlong handle, jobject buffer)
{
    (void)class;
    unsigned long dropped;
    char *out = buffer_memory(env, buffer, LINE_MAX_BYTES, "engineLog");
    struct engine *engine = out ? object_use(handle, OBJECT_ENGINE, USE_SHARED) : NULL;
    if (!engine)
        return PL_ERR_USAGE;
    size_t n = lines_collect(&engine->log, out, LINE_MAX_BYTES - LINE_NOTE_BYTES, &dropped);
    if (dropped > 0)
        n += (size_t)sprintf(out + n, "%d %lu lines of log are missing: nobody collected them\n",
                             PL_LOG_WARN, dropped);
    object_release(engine, USE_SHARED, false);
    return (jint)n;
}

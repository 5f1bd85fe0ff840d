/* The native functions of Native.java, which states their contracts. */
#ifndef PL_JNI_NATIVE_H
#define PL_JNI_NATIVE_H

#include "jni/handles.h"
#include "jni/java_values.h"
#include "jni/paceline_spark_Native.h" /* javac makes it of Native.java */

/* A number of the library is the one that Native.java has. */
#define SAME(name)                                                                          \
    _Static_assert((int)PL_##name == paceline_spark_Native_##name, #name " in Native.java " \
                                                                         "differs")

enum { LINE_NOTE_BYTES = 128 }; /* of a line that says how many are missing */

struct engine {
    struct object object;
    pl_engine *engine;
    struct lines log;
};

/* Keep the message of the engine's call that failed. Returns `status`. */
static inline int fail_by_engine(const struct engine *engine, int status)
{
    return status == PL_OK ? PL_OK : fail(status, "%s", pl_engine_error(engine->engine));
}

#endif

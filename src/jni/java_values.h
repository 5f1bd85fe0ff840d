/* Values of Java as C has them: texts, options, memory of buffers. */
#ifndef PL_JNI_JAVA_VALUES_H
#define PL_JNI_JAVA_VALUES_H

#include <jni.h>
#include <stdbool.h>
#include <stddef.h>

/* The name of a native function of Native.java. */
#define NATIVE(name) Java_paceline_spark_Native_##name

/* Texts that an object keeps: UTF-8, freed together. */
struct texts {
    char **at;
    size_t count;
};

void texts_release(struct texts *texts);

/* *out is a copy of `text`, kept in `texts`; NULL when `text` is null. PL_ERR_NOMEM; PL_ERR_USAGE:
 * it is no Unicode, or has a NUL. */
int texts_take(struct texts *texts, JNIEnv *env, jstring text, const char **out);

/* The same for all texts of an array, of which none may be null; a null array has none. `each`
 * receives them, and ends with a status. */
int texts_take_all(struct texts *texts, JNIEnv *env, jobjectArray array,
                   int (*each)(void *user, char *text), void *user);

/* The bytes of a text of C's, as an array of Java's; NULL: there is no memory. */
jbyteArray text_bytes(JNIEnv *env, const char *text);

enum option_type { OPTION_TEXT, OPTION_FLAG, OPTION_DOUBLE, OPTION_INT, OPTION_PORT };

/* An option NAME=VALUE, and where its value is stored: const char *, bool, double, int or unsigned,
 * unsigned short. */
struct option {
    const char *name;
    enum option_type type;
    size_t offset;
};

/* Store the option `text` in `options`, whose options `known` lists, a NULL name at its end. The
 * value of a text stays where it is. PL_ERR_USAGE */
int option_store(const struct option *known, char *text, void *options);

/* The memory of a direct buffer with `bytes` at least. NULL after a message naming `what`. */
void *buffer_memory(JNIEnv *env, jobject buffer, jlong bytes, const char *what);

/* The same for so many floats. */
float *buffer_floats(JNIEnv *env, jobject buffer, jlong floats, const char *what);

#endif

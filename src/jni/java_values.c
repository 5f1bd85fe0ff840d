#include "jni/java_values.h"
#include "jni/handles.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ---- */

void texts_release(struct texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        free(texts->at[i]);
    free(texts->at);
    *texts = (struct texts){0};
}

static bool keep_text(struct texts *texts, char *text)
{
    char **more = realloc(texts->at, (texts->count + 1) * sizeof *more);
    if (!more)
        return false;
    more[texts->count++] = text;
    texts->at = more;
    return true;
}

/* One character of UTF-16 from *at on as UTF-8. 0: it is none that a text may have. */
static size_t encode_character(const jchar *from, jsize length, jsize *at, char *out)
{
    uint32_t c = from[(*at)++];
    if (c >= 0xd800 && c < 0xdc00 && *at < length && from[*at] >= 0xdc00 && from[*at] < 0xe000)
        c = 0x10000 + ((c - 0xd800) << 10) + (from[(*at)++] - 0xdc00u);
    if (c == 0 || (c >= 0xd800 && c < 0xe000))
        return 0;
    size_t more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* bytes after the first */
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[more] | (c >> (6 * more)));
    for (size_t i = 1; i <= more; i++)
        out[i] = (char)(0x80 | ((c >> (6 * (more - i))) & 0x3f));
    return more + 1;
}

static int encode_text(const jchar *from, jsize length, char *out)
{
    size_t n = 0;
    for (jsize at = 0; at < length;) {
        size_t bytes = encode_character(from, length, &at, out + n);
        if (bytes == 0)
            return fail(PL_ERR_USAGE, "a text has a NUL or half a character at %d", (int)at - 1);
        n += bytes;
    }
    out[n] = '\0';
    return PL_OK;
}

static int take_text(struct texts *texts, JNIEnv *env, jstring text, char **out)
{
    jsize length = (*env)->GetStringLength(env, text);
    jchar *wide = malloc(((size_t)length + 1) * sizeof *wide);
    char *narrow = malloc((size_t)length * 3 + 1);
    int rc = wide && narrow ? PL_OK : fail(PL_ERR_NOMEM, "out of memory for a text");
    if (rc == PL_OK) {
        (*env)->GetStringRegion(env, text, 0, length, wide);
        rc = encode_text(wide, length, narrow);
    }
    free(wide);
    if (rc == PL_OK && !keep_text(texts, narrow))
        rc = fail(PL_ERR_NOMEM, "out of memory for a text");
    if (rc == PL_OK)
        *out = narrow;
    else
        free(narrow);
    return rc;
}

int texts_take(struct texts *texts, JNIEnv *env, jstring text, const char **out)
{
    char *copy = NULL;
    int rc = text ? take_text(texts, env, text, &copy) : PL_OK;
    if (rc == PL_OK)
        *out = copy;
    return rc;
}

int texts_take_all(struct texts *texts, JNIEnv *env, jobjectArray array,
                   int (*each)(void *user, char *text), void *user)
{
    jsize count = array ? (*env)->GetArrayLength(env, array) : 0;
    int rc = PL_OK;
    for (jsize i = 0; rc == PL_OK && i < count; i++) {
        jstring text = (*env)->GetObjectArrayElement(env, array, i);
        char *copy;
        rc = text ? take_text(texts, env, text, &copy)
                  : fail(PL_ERR_USAGE, "text %d of an array is null", (int)i);
        (*env)->DeleteLocalRef(env, text);
        if (rc == PL_OK)
            rc = each(user, copy);
    }
    return rc;
}

/* ---- options ---- */

/* A whole number: what strtod reads depends on the locale, which is the host's. */
static int store_number(const struct option *option, const char *value, void *at)
{
    char *end;
    long number = strtol(value, &end, 10);
    long most = option->type == OPTION_FLAG ? 1 : option->type == OPTION_PORT ? USHRT_MAX : INT_MAX;
    if (end == value || *end || number < 0 || number > most)
        return fail(PL_ERR_USAGE, "option %s: \"%s\" is no whole number from 0 to %ld",
                    option->name, value, most);
    if (option->type == OPTION_FLAG)
        *(bool *)at = number == 1;
    else if (option->type == OPTION_DOUBLE)
        *(double *)at = (double)number;
    else if (option->type == OPTION_PORT)
        *(unsigned short *)at = (unsigned short)number;
    else
        *(int *)at = (int)number;
    return PL_OK;
}

int option_store(const struct option *known, char *text, void *options)
{
    char *value = strchr(text, '=');
    size_t n = value ? (size_t)(value - text) : 0;
    while (known->name && (strlen(known->name) != n || strncmp(known->name, text, n) != 0))
        known++;
    if (!known->name)
        return fail(PL_ERR_USAGE, "there is no option %.*s, or it has no =VALUE",
                    (int)(value ? n : strlen(text)), text);
    void *at = (char *)options + known->offset;
    if (known->type != OPTION_TEXT)
        return store_number(known, value + 1, at);
    *(const char **)at = value + 1;
    return PL_OK;
}

/* ---- texts and buffers of C ---- */

jbyteArray text_bytes(JNIEnv *env, const char *text)
{
    jsize n = (jsize)strlen(text);
    jbyteArray bytes = (*env)->NewByteArray(env, n);
    if (bytes)
        (*env)->SetByteArrayRegion(env, bytes, 0, n, (const jbyte *)text);
    return bytes;
}

void *buffer_memory(JNIEnv *env, jobject buffer, jlong bytes, const char *what)
{
    void *at = buffer ? (*env)->GetDirectBufferAddress(env, buffer) : NULL;
    jlong capacity = at ? (*env)->GetDirectBufferCapacity(env, buffer) : 0;
    if (at && bytes >= 0 && capacity >= bytes)
        return at;
    fail(PL_ERR_USAGE,
         at ? "%s: the buffer has %lld bytes of %lld" : "%s: the buffer is not direct", what,
         (long long)capacity, (long long)bytes);
    return NULL;
}

float *buffer_floats(JNIEnv *env, jobject buffer, jlong floats, const char *what)
{
    float *at = buffer_memory(env, buffer, floats * (jlong)sizeof *at, what);
    if (!at || (uintptr_t)at % sizeof *at == 0)
        return at;
    fail(PL_ERR_USAGE, "%s: the buffer does not begin at a multiple of 4 bytes", what);
    return NULL;
}

#include "jni/handles.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS_MAX = 4096, MESSAGE_MAX = 1024 };

static const char *const kind_name[] = {"engine", "task", "stream", "model",
                                        "net",    "team", "object"};

/* A handle is the number of objects made before it, times OBJECTS_MAX, plus its place. */
static struct {
    pthread_mutex_t lock;
    struct object *at[OBJECTS_MAX];
    jlong made;
    bool ending; /* the process is */
    bool ended;  /* and no call was in progress: C's exit handlers may run now */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local char message[MESSAGE_MAX];

/* ---- messages ---- */

int fail(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return status;
}

const char *fail_message(void)
{
    return message;
}

/* ---- objects ---- */

jlong object_add(struct object *object, enum object_kind kind, struct object *parent,
                 void (*end)(struct object *object))
{
    size_t place = 0;
    pthread_mutex_lock(&table.lock);
    while (place < OBJECTS_MAX && table.at[place])
        place++;
    if (place < OBJECTS_MAX) {
        object->kind = kind;
        object->parent = parent;
        object->end = end;
        object->handle = ++table.made * OBJECTS_MAX + (jlong)place;
        table.at[place] = object;
        if (parent)
            parent->users++;
    }
    pthread_mutex_unlock(&table.lock);
    if (place == OBJECTS_MAX)
        return fail(PL_ERR_FULL, "%s: %d objects are open, and no more can be", kind_name[kind],
                    OBJECTS_MAX);
    return object->handle;
}

static struct object *engine_of(struct object *object)
{
    return object->own_thread ? NULL : object->parent;
}

/* NULL, or the reason why it cannot be used so; with the table's lock. */
static const char *refuse_use(struct object *object, enum object_use use)
{
    struct object *engine = object ? engine_of(object) : NULL;
    if (!object || object->closing)
        return "it is closed";
    if (table.ended)
        return "the process is ending";
    if (use == USE_SHARED)
        return NULL;
    if (object->busy || (engine && engine->busy))
        return "another thread uses it, or its engine";
    if (use == USE_ALONE && table.ending)
        return "the process is ending";
    if (use == USE_LAST && object->users > 0)
        return "it is in use, or has open streams, tasks, models, nets or a team";
    return NULL;
}

static void mark_use(struct object *object, enum object_use use, bool on)
{
    struct object *engine = engine_of(object);
    if (use == USE_SHARED)
        return;
    object->busy = on;
    object->closing = on && use == USE_LAST;
    if (engine)
        engine->busy = on;
}

void *object_use(jlong handle, enum object_kind kind, enum object_use use)
{
    pthread_mutex_lock(&table.lock);
    struct object *object = handle > 0 ? table.at[handle % OBJECTS_MAX] : NULL;
    bool fits = object && object->handle == handle && (kind == OBJECT_ANY || object->kind == kind);
    if (!fits)
        object = NULL;
    const char *why = refuse_use(object, use);
    if (!why) {
        object->users++;
        mark_use(object, use, true);
    }
    const char *name = kind_name[object ? object->kind : kind];
    pthread_mutex_unlock(&table.lock);
    if (!why)
        return object;
    fail(PL_ERR_USAGE, "%s: %s", name, why);
    return NULL;
}

void object_release(void *used, enum object_use use, bool close)
{
    struct object *object = used;
    pthread_mutex_lock(&table.lock);
    object->users--;
    mark_use(object, use, false);
    if (close) {
        table.at[object->handle % OBJECTS_MAX] = NULL;
        if (object->parent)
            object->parent->users--;
    }
    pthread_mutex_unlock(&table.lock);
}

unsigned objects_end(void (*stop)(struct object *task))
{
    unsigned busy = 0;
    pthread_mutex_lock(&table.lock);
    table.ending = true;
    for (size_t i = 0; i < OBJECTS_MAX; i++) {
        struct object *object = table.at[i];
        if (!object || !object->busy)
            continue;
        busy++;
        if (object->kind == OBJECT_TASK)
            stop(object);
    }
    table.ended = busy == 0;
    pthread_mutex_unlock(&table.lock);
    return busy;
}

/* ---- lines ---- */

bool lines_init(struct lines *lines, size_t size)
{
    *lines = (struct lines){.bytes = malloc(size), .size = size};
    pthread_mutex_init(&lines->lock, NULL);
    return lines->bytes != NULL;
}

void lines_release(struct lines *lines)
{
    pthread_mutex_destroy(&lines->lock);
    free(lines->bytes);
}

void lines_put(struct lines *lines, const char *text)
{
    size_t n = strlen(text);
    pthread_mutex_lock(&lines->lock);
    if (n < LINE_MAX_BYTES / 2 && n < lines->size - lines->used) {
        memcpy(lines->bytes + lines->used, text, n);
        lines->bytes[lines->used + n] = '\n';
        lines->used += n + 1;
    } else {
        lines->dropped++;
    }
    pthread_mutex_unlock(&lines->lock);
}

void lines_put_newest(struct lines *lines, const char *text)
{
    pthread_mutex_lock(&lines->lock);
    if (strlen(text) < sizeof lines->newest - 1)
        sprintf(lines->newest, "%s\n", text);
    pthread_mutex_unlock(&lines->lock);
}

size_t lines_collect(struct lines *lines, char *out, size_t room, unsigned long *dropped)
{
    pthread_mutex_lock(&lines->lock);
    size_t n =
        lines->used < room - sizeof lines->newest ? lines->used : room - sizeof lines->newest;
    while (n > 0 && lines->bytes[n - 1] != '\n')
        n--;
    memcpy(out, lines->bytes, n);
    memmove(lines->bytes, lines->bytes + n, lines->used - n);
    lines->used -= n;
    if (lines->used == 0) {
        size_t more = strlen(lines->newest);
        memcpy(out + n, lines->newest, more);
        lines->newest[0] = '\0';
        n += more;
    }
    *dropped = lines->dropped;
    lines->dropped = 0;
    pthread_mutex_unlock(&lines->lock);
    return n;
}

/* The objects that Java holds, by number: no value of Java's is used as a pointer. The number of a
 * closed object, or of none, is refused, and so is a second thread where an object serves one at a
 * time.
 *
 * An engine serves one thread at a time, and so do the streams, models, nets and tasks that use it;
 * a stream that grows has a thread of its own. */
#ifndef PL_JNI_HANDLES_H
#define PL_JNI_HANDLES_H

#include "paceline/engine.h"

#include <jni.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum object_kind {
    OBJECT_ENGINE,
    OBJECT_TASK,
    OBJECT_STREAM,
    OBJECT_MODEL,
    OBJECT_NET,
    OBJECT_TEAM,
    OBJECT_ANY /* in calls */
};

/* The head of every object. */
struct object {
    enum object_kind kind;
    jlong handle;
    struct object *parent;              /* the engine's; NULL: it is an engine */
    void (*end)(struct object *object); /* free all of it but its own memory */
    bool own_thread;                    /* it does not use its engine */
    unsigned users;                     /* calls in progress, and objects whose parent it is */
    bool busy;                          /* one of these calls has it alone */
    bool closing;
};

enum object_use {
    USE_SHARED, /* with other calls */
    USE_ALONE,  /* and its engine, unless it has a thread of its own; */
    USE_LAST    /* likewise, to close it: no other call is in progress, and none is admitted */
};

/* Enter an object of which only `own_thread` is set into the table, as a child of `parent`, which
 * the caller uses, or of none. Its handle, or PL_ERR_FULL. */
jlong object_add(struct object *object, enum object_kind kind, struct object *parent,
                 void (*end)(struct object *object));

/* NULL after a message: no such object is open, or it is in use otherwise. */
void *object_use(jlong handle, enum object_kind kind, enum object_use use);

/* End a use. After USE_LAST with `close` the object is in no table any more, and the caller frees
 * it; without, it stays open. */
void object_release(void *object, enum object_use use, bool close);

/* The process is about to end: no object can be used alone, except to close it. Calls `stop`
 * for each task that is, and returns how many objects still are. Once it has returned 0 no object
 * can be used at all: exit handlers free what the libraries below have. */
unsigned objects_end(void (*stop)(struct object *task));

/* ---- messages ---- */

/* Keep a message for this thread, cut to what fits. Returns the status. */
__attribute__((format(printf, 2, 3))) int fail(int status, const char *format, ...);

/* That of the thread's last failed call; "": none has failed. */
const char *fail_message(void);

/* ---- lines ---- */

enum { LINE_MAX_BYTES = 32 << 10 };

/* Lines of text that threads of the library write and Java collects. When there is no room, lines
 * are dropped and counted. */
struct lines {
    pthread_mutex_t lock;
    char *bytes;
    size_t size, used;
    unsigned long dropped;
    char newest[1024]; /* a line of which only the newest counts; "": it was collected */
};

bool lines_init(struct lines *lines, size_t size);
void lines_release(struct lines *lines);

/* `text` is without its newline. */
void lines_put(struct lines *lines, const char *text);
void lines_put_newest(struct lines *lines, const char *text);

/* Move whole lines to `out`, which has room for LINE_MAX_BYTES at least, the newest last. Returns
 * their bytes; *dropped: lines that were lost since the last call. */
size_t lines_collect(struct lines *lines, char *out, size_t room, unsigned long *dropped);

#endif

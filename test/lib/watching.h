/* For tests: a watch that counts its calls, checks that progress grows to its total, and cancels.
 */
#ifndef PL_LIB_WATCHING_H
#define PL_LIB_WATCHING_H

#include "base/open_watch.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct watching {
    struct open_watch watch;
    uint64_t calls, cancel_at; /* the call that cancels; 0: none */
    char stages[256];          /* in their order, each followed by a space */
    const char *stage;         /* the last one, and how far it was */
    uint64_t done, total;
};

static inline bool watching_progress(void *user, const char *stage, uint64_t done, uint64_t total)
{
    struct watching *w = user;
    bool begins = !w->stage || strcmp(w->stage, stage) != 0 || w->done == w->total;
    assert_true(total > 0 && done <= total);
    if (begins) {
        assert_true(!w->stage || w->done == w->total); /* the previous stage is complete */
        size_t used = strlen(w->stages);
        snprintf(w->stages + used, sizeof w->stages - used, "%s ", stage);
    } else {
        assert_true(done >= w->done && total == w->total);
    }
    w->stage = stage;
    w->done = done;
    w->total = total;
    return ++w->calls != w->cancel_at;
}

static inline void watching_begin(struct watching *w, uint64_t cancel_at)
{
    *w = (struct watching){.watch = {w, watching_progress}, .cancel_at = cancel_at};
}

static inline int open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* `run` opens something with the watch, and closes it again. The watch must see the stages in that
 * order; whichever call cancels, `run` returns ERR_CANCELLED and leaves nothing open. */
static inline void watching_story(int (*run)(void *user, const struct open_watch *watch,
                                             struct err *err),
                                  void *user, const char *stages)
{
    struct watching w;
    struct err err = {0};
    watching_begin(&w, 0);
    int before = open_files();
    if (run(user, &w.watch, &err) != OK)
        fail_msg("%s", err.text);
    assert_string_equal(w.stages, stages);
    assert_int_equal(w.done, w.total);
    uint64_t calls = w.calls;
    for (uint64_t at = 1; at <= calls; at++) {
        watching_begin(&w, at);
        assert_int_equal(run(user, &w.watch, &err), ERR_CANCELLED);
        assert_string_equal(err.text, "opening was cancelled");
        assert_int_equal(w.calls, at);
        assert_int_equal(open_files(), before);
    }
}

#endif

/* Commands that must be refused, and files that they must not change. */
#ifndef PL_LIB_REFUSAL_H
#define PL_LIB_REFUSAL_H

#include "process.h"
#include "tiny_job.h"

enum { REFUSAL_LIMIT_S = 60 }; /* for any one command; on a quiet machine they take 20 ms */

/* Names and checksums of all that lies in the folder. */
static inline char *refusal_snapshot(const char *folder)
{
    char command[256];
    snprintf(command, sizeof command,
             "cd '%s' && find . -type d | LC_ALL=C sort && "
             "find . ! -type d -exec cksum {} + | LC_ALL=C sort",
             folder);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    char *text = NULL;
    size_t len = 0;
    FILE *all = open_memstream(&text, &len);
    for (int c; (c = fgetc(list)) != EOF;)
        fputc(c, all);
    assert_int_equal(pclose(list), 0);
    fclose(all);
    return text;
}

static inline void refusal_complain(const struct process *p, const char *const *argv,
                                    const char *what)
{
    for (size_t i = 0; argv[i]; i++)
        print_error("%s ", argv[i]);
    print_error("\n%s; code %d, stdout:\n%s\nstderr:\n%s\n", what, p->code, p->out, p->err);
    fail();
}

/* The command must succeed. The caller releases the process. */
static inline void run_command(const struct tiny *t, struct process *p, const char *const *argv)
{
    process_start(p, t->folder, argv);
    process_wait(p, REFUSAL_LIMIT_S);
    if (p->code != 0)
        refusal_complain(p, argv, "expected a result");
}

#define RUN(t, p, ...) run_command(t, p, (const char *const[]){__VA_ARGS__, NULL})

static inline void refusal_expect(const struct tiny *t, const char *phrase, const char *const *argv)
{
    struct process p;
    char *before = refusal_snapshot(t->folder);
    process_start(&p, t->folder, argv);
    process_wait(&p, REFUSAL_LIMIT_S);
    char *after = refusal_snapshot(t->folder);
    if (p.code != 2)
        refusal_complain(&p, argv, "expected exit code 2");
    if (!strstr(p.err, phrase))
        refusal_complain(&p, argv, phrase);
    if (p.out[0])
        refusal_complain(&p, argv, "expected nothing on stdout");
    if (strcmp(before, after) != 0)
        refusal_complain(&p, argv, "expected the folder to stay as it was");
    free(before);
    free(after);
    process_release(&p);
}

/* The command must be refused with a message that contains `phrase`. */
#define REFUSED(t, phrase, ...) refusal_expect(t, phrase, (const char *const[]){__VA_ARGS__, NULL})

/* A text with `what`, which occurs in it, replaced; as NAME in the folder. */
static inline void tiny_write_changed(struct tiny *t, const char *name, const char *text,
                                      const char *what, const char *by)
{
    const char *at = strstr(text, what);
    assert_non_null(at);
    char *changed = calloc(1, strlen(text) + strlen(by) + 1);
    assert_non_null(changed);
    memcpy(changed, text, (size_t)(at - text));
    strcat(strcat(changed, by), at + strlen(what));
    tiny_write(t, name, changed);
    free(changed);
}

/* The text of a file of that folder; the caller frees it. */
static inline char *read_file_of(const struct tiny *t, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", t->folder, name);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        fail_msg("there is no %s", path);
    char *text = process_output(fd);
    close(fd);
    return text;
}

#endif

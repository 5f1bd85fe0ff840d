#include "train/tenure.h"

#include "base/bytes.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENURE_MAX = 64 * 1024 };

static const char *const words[] = {"run", "incarnation", "view", "members", "next"};

/* The next line's words after its first, which must be this one. NULL: it is another. */
static char *line_of(char **text, const char *word)
{
    char *line = *text, *end = strchr(line, '\n');
    size_t n = strlen(word);
    if (!end || strncmp(line, word, n) != 0 || (line[n] != ' ' && line + n != end))
        return NULL;
    *end = '\0';
    *text = end + 1;
    return line + n;
}

static bool number(char **at, int base, uint64_t most, uint64_t *out)
{
    char *end;
    *out = strtoull(*at, &end, base);
    bool ok = end != *at && *out <= most;
    *at = end;
    return ok;
}

static bool parse(char *text, struct tenure *out)
{
    char *line[5];
    uint64_t run, incarnation, view, next, node;
    for (int i = 0; i < 5; i++)
        if (!(line[i] = line_of(&text, words[i])))
            return false;
    if (!number(&line[0], 16, UINT64_MAX, &run) ||
        !number(&line[1], 10, UINT32_MAX, &incarnation) ||
        !number(&line[2], 10, UINT32_MAX, &view) || !number(&line[4], 10, UINT32_MAX, &next))
        return false;
    *out = (struct tenure){run, (uint32_t)incarnation, (uint32_t)view, {{0}}, (uint32_t)next};
    while (*line[3]) {
        if (!number(&line[3], 10, VIEW_MEMBERS_MAX - 1, &node))
            return false;
        members_add(&out->who, (uint32_t)node);
    }
    return true;
}

int tenure_read(const struct rundir *dir, struct tenure *out, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct file_bytes bytes;
    rundir_file(dir, "driver", path, sizeof path);
    if (file_read(path, TENURE_MAX, &bytes, err) != OK)
        return err_set(err, ERR_NOT_FOUND, "%s: no driver has been here", path);
    struct buf text = {0};
    buf_put(&text, bytes.data, bytes.len);
    buf_put_u8(&text, 0);
    file_release(&bytes);
    int rc = text.failed ? err_set(err, ERR_NOMEM, "%s: out of memory", path)
             : parse((char *)text.data, out)
                 ? OK
                 : err_set(err, ERR_INPUT, "%s: cannot be read: it is damaged", path);
    buf_release(&text);
    return rc;
}

static void print(const struct tenure *t, struct buf *text)
{
    buf_printf(text, "run %" PRIx64 "\nincarnation %" PRIu32 "\nview %" PRIu32 "\nmembers", t->run,
               t->incarnation, t->view);
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        if (members_has(&t->who, node))
            buf_printf(text, " %" PRIu32, node);
    buf_printf(text, "\nnext %" PRIu32 "\n", t->next);
}

int tenure_write(const struct rundir *dir, const struct tenure *tenure, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct tenure before;
    int rc = tenure_read(dir, &before, err);
    if (rc == OK && before.incarnation > tenure->incarnation)
        return err_set(err, ERR_FENCED,
                       "%s: a later driver has taken this run over (number %" PRIu32
                       ", this one is %" PRIu32 ")",
                       dir->path, before.incarnation, tenure->incarnation);
    struct buf text = {0};
    rundir_file(dir, "driver", path, sizeof path);
    print(tenure, &text);
    rc = text.failed ? err_set(err, ERR_NOMEM, "%s: out of memory", path)
                     : disk_replace(dir->disk, path, text.data, text.len, err);
    buf_release(&text);
    return rc;
}

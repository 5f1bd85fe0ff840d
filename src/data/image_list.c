#include "base/array.h"
#include "base/bytes.h"
#include "base/file.h"
#include "data/source_images.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096, QUOTE_MAX = 120 };

static int add_entry(struct image_list *list, size_t path, uint32_t label)
{
    if (!array_grow(&list->at, list->count, &list->cap, sizeof *list->at))
        return ERR_NOMEM;
    list->at[list->count++] = (struct image_entry){.path = path, .label = label};
    if (label >= list->classes)
        list->classes = label + 1;
    return OK;
}

void image_list_release(struct image_list *list)
{
    free(list->text);
    free(list->at);
    *list = (struct image_list){0};
}

/* ---- a list file ---- */

/* Split "path label" in place. */
static int parse_line(const char *name, size_t number, char *line, uint32_t *label, struct err *err)
{
    char quoted[QUOTE_MAX];
    char *word = line + strlen(line);
    while (word > line && word[-1] != ' ' && word[-1] != '\t')
        word--;
    size_t digits = strspn(word, "0123456789");
    if (word == line || digits == 0 || word[digits])
        return err_set(err, ERR_INPUT, "%s:%zu: expected `path label`, found `%s`", name, number,
                       source_quote(line, quoted, sizeof quoted));
    unsigned long value = strtoul(word, NULL, 10);
    if (digits > 9 || value >= LABEL_MAX)
        return err_set(err, ERR_INPUT, "%s:%zu: label %s is out of range 0 to %u", name, number,
                       source_quote(word, quoted, sizeof quoted), LABEL_MAX - 1u);
    while (word > line && (word[-1] == ' ' || word[-1] == '\t'))
        word--;
    if (word == line)
        return err_set(err, ERR_INPUT, "%s:%zu: there is no path before label %lu", name, number,
                       value);
    *word = '\0';
    if (word - line >= PATH_TEXT_MAX)
        return err_set(err, ERR_INPUT, "%s:%zu: path longer than %d bytes", name, number,
                       PATH_TEXT_MAX);
    *label = (uint32_t)value;
    return OK;
}

static size_t line_ends(const char *text)
{
    size_t n = 0;
    while ((text = strchr(text, '\n'))) {
        text++;
        n++;
    }
    return n;
}

int image_list_parse(const char *name, char *text, size_t len, struct image_list *out,
                     struct err *err)
{
    struct image_list list = {.text = text};
    int rc = OK;
    if (memchr(text, '\0', len))
        rc = err_set(err, ERR_INPUT, "%s: holds a zero byte; expected lines of text", name);
    else if (line_ends(text) > IMAGE_LIST_MAX) /* before memory is taken for them */
        rc = err_set(err, ERR_INPUT, "%s: more than %d lines", name, IMAGE_LIST_MAX);
    size_t number = 0;
    for (char *line = text, *next; rc == OK && line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        size_t n = strlen(line);
        while (n > 0 && isspace((unsigned char)line[n - 1]))
            line[--n] = '\0';
        if (n == 0)
            continue;
        uint32_t label = 0;
        rc = parse_line(name, number, line, &label, err);
        if (rc == OK && add_entry(&list, (size_t)(line - text), label) != OK)
            rc = err_set(err, ERR_NOMEM, "%s: out of memory", name);
    }
    if (rc == OK && list.count == 0)
        rc = err_set(err, ERR_INPUT, "%s: names no picture", name);
    if (rc != OK) {
        image_list_release(&list);
        return rc;
    }
    *out = list;
    return OK;
}

/* ---- a folder of folders ---- */

static void count_stray(struct image_strays *strays, const char *name)
{
    if (strays->count++ == 0)
        source_quote(name, strays->first, sizeof strays->first);
}

/* Files that systems and people leave in folders of pictures. */
static bool is_no_picture(const char *name)
{
    static const char *const ends[] = {".txt", ".md",  ".db",   ".ini", ".csv",  ".json",
                                       ".xml", ".zip", ".html", ".log", ".yaml", ".cls"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++)
        if (strcmp(dot, ends[i]) == 0)
            return true;
    return false;
}

static int join_path(const char *folder, const char *name, char out[PATH_TEXT_MAX], struct err *err)
{
    return snprintf(out, PATH_TEXT_MAX, "%s/%s", folder, name) < PATH_TEXT_MAX
               ? OK
               : err_set(err, ERR_INPUT, "%.80s...: path longer than %d bytes", folder,
                         PATH_TEXT_MAX);
}

int image_list_classes(const char *under, const char *folder, struct file_names *out,
                       struct image_strays *strays, struct err *err)
{
    char path[PATH_TEXT_MAX];
    struct file_names names;
    size_t kept = 0;
    int rc = file_list(folder, LABEL_MAX, &names, err);
    if (rc != OK)
        return rc;
    for (size_t i = 0; i < names.count; i++) {
        if (rc == OK)
            rc = join_path(folder, names.at[i], path, err);
        if (rc == OK)
            rc = file_check_under(under, path, err);
        if (rc == OK && file_is_regular(path)) {
            count_stray(strays, names.at[i]);
            free(names.at[i]);
        } else {
            names.at[kept++] = names.at[i];
        }
    }
    names.count = kept;
    if (rc == OK)
        *out = names;
    else
        file_names_release(&names);
    return rc;
}

static int add_picture(struct image_list *list, struct buf *text, const char *class,
                       const char *name, uint32_t label, struct err *err)
{
    size_t at = text->len;
    buf_printf(text, "%s/%s", class, name);
    buf_put_u8(text, 0);
    if (text->len - at > PATH_TEXT_MAX)
        return err_set(err, ERR_INPUT, "%.80s...: path longer than %d bytes", class, PATH_TEXT_MAX);
    if (text->failed || add_entry(list, at, label) != OK)
        return err_set(err, ERR_NOMEM, "%s: out of memory", class);
    return OK;
}

/* The pictures of one class; `text` grows by their paths. */
static int walk_class(const char *folder, const char *name, uint32_t label, struct buf *text,
                      struct image_list *list, struct err *err)
{
    char path[PATH_TEXT_MAX], quoted[QUOTE_MAX];
    struct file_names names;
    size_t before = list->count;
    int rc = join_path(folder, name, path, err);
    if (rc != OK)
        return rc;
    if (!file_is_folder(path))
        return err_set(err, ERR_INPUT, "%s/%s: expected a folder of pictures for each class",
                       folder, source_quote(name, quoted, sizeof quoted));
    rc = file_list(path, IMAGE_LIST_MAX - list->count, &names, err);
    if (rc != OK)
        return rc;
    for (size_t i = 0; rc == OK && i < names.count; i++) {
        if (is_no_picture(names.at[i]))
            count_stray(&list->inside, names.at[i]);
        else
            rc = add_picture(list, text, name, names.at[i], label, err);
    }
    file_names_release(&names);
    if (rc == OK && list->count == before)
        count_stray(&list->empty, name);
    if (list->classes <= label)
        list->classes = label + 1;
    return rc;
}

int image_list_walk(const struct source_config *config, const char *folder, struct image_list *out,
                    struct err *err)
{
    struct image_list list = {0};
    struct file_names classes;
    struct buf text = {0};
    int rc = image_list_classes(config->root, folder, &classes, &list.folder_prefix, err);
    if (rc != OK)
        return rc;
    for (size_t c = 0; rc == OK && c < classes.count; c++) {
        rc = walk_class(folder, classes.at[c], (uint32_t)c, &text, &list, err);
        if (rc == OK)
            rc = open_watch_report(config->watch, "folders", c + 1, classes.count, err);
    }
    if (rc == OK && list.count == 0)
        rc = err_set(
            err, ERR_INPUT,
            "%s: holds no folder with pictures; put them into one folder a class, CLASS/*.png",
            folder);
    file_names_release(&classes);
    list.text = (char *)text.data;
    if (rc != OK) {
        image_list_release(&list);
        return rc;
    }
    *out = list;
    return OK;
}

#include "data/names.h"

#include "data/source_images.h"
#include "data/source_shards.h"

#include "base/file.h"
#include "base/utf8.h"
#include "data/source.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096, NAME_MAX_SHOWN = 256 };

static const size_t FILE_BYTES_MAX = (size_t)1 << 24;

static int add_name(struct names *names, size_t room, const char *name)
{
    char quoted[NAME_MAX_SHOWN];
    if (names->count == room)
        return ERR_NOMEM;
    names->at[names->count] = strdup(source_quote(name, quoted, sizeof quoted));
    return names->at[names->count++] ? OK : ERR_NOMEM;
}

/* Split `text` into lines, in place. */
static int add_lines(struct names *names, size_t room, char *text)
{
    size_t end = strlen(text);
    while (end > 0 && isspace((unsigned char)text[end - 1]))
        text[--end] = '\0';
    int rc = OK;
    for (char *line = text, *next; rc == OK && end > 0 && line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        size_t n = strlen(line);
        while (n > 0 && isspace((unsigned char)line[n - 1]))
            line[--n] = '\0';
        rc = add_name(names, room, line);
    }
    return rc;
}

int names_read(const char *path, struct names *out, struct err *err)
{
    struct file_bytes file;
    struct names names = {0};
    int rc = file_read(path, FILE_BYTES_MAX, &file, err);
    if (rc != OK)
        return rc;
    size_t lines = 1;
    for (size_t i = 0; i < file.len; i++)
        lines += file.data[i] == '\n';
    if (lines > LABEL_MAX)
        rc = err_set(err, ERR_INPUT, "%s: more than %u names", path, LABEL_MAX);
    else if (memchr(file.data, '\0', file.len))
        rc = err_set(err, ERR_INPUT, "%s: holds a zero byte; expected a name a line", path);
    else if (!(names.at = calloc(lines, sizeof *names.at)) ||
             add_lines(&names, lines, (char *)file.data) != OK)
        rc = err_set(err, ERR_NOMEM, "%s: out of memory", path);
    file_release(&file);
    if (rc != OK) {
        names_release(&names);
        return rc;
    }
    *out = names;
    return OK;
}

int names_parse(const char *path, const char *text, size_t bytes, struct names *out,
                struct err *err)
{
    struct names names = {0};
    size_t count = 0;
    int rc = OK;
    for (size_t i = 0; i < bytes; i++)
        count += text[i] == 0;
    if (bytes > 0 && (text[bytes - 1] != 0 || count > LABEL_MAX))
        return err_set(err, ERR_INPUT, "%s: its names of classes cannot be read", path);
    names.at = count > 0 ? calloc(count, sizeof *names.at) : NULL;
    rc = count == 0 || names.at ? OK : ERR_NOMEM;
    for (size_t i = 0; rc == OK && i < count; i++, text += strlen(text) + 1)
        rc = add_name(&names, count, text);
    if (rc != OK) {
        names_release(&names);
        return err_set(err, rc, "%s: out of memory for names", path);
    }
    *out = names;
    return OK;
}

/* Read the file of that name in the folder `path`, or in the folder of the file `path`, if it
 * exists. */
static int read_sibling(const char *path, const char *name, struct names *out, struct err *err)
{
    char full[PATH_TEXT_MAX];
    bool folder = file_is_folder(path);
    const char *slash = strrchr(path, '/');
    int n = folder ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    if (snprintf(full, sizeof full, "%.*s%s%s", n, path, folder || slash ? "/" : "", name) >=
        (int)sizeof full)
        return OK;
    return file_is_regular(full) ? names_read(full, out, err) : OK;
}

static int folder_names(const char *folder, struct names *out, struct err *err)
{
    struct file_names files;
    struct names names = {0};
    struct image_strays strays = {0};
    int rc = image_list_classes(NULL, folder, &files, &strays, err);
    if (rc != OK)
        return rc;
    names.at = calloc(files.count + 1, sizeof *names.at);
    rc = names.at ? OK : ERR_NOMEM;
    for (size_t i = 0; rc == OK && i < files.count; i++)
        rc = add_name(&names, files.count, files.at[i]);
    file_names_release(&files);
    if (rc != OK) {
        names_release(&names);
        return err_set(err, rc, "%s: out of memory", folder);
    }
    *out = names;
    return OK;
}

/* The categories of a table's labels, as far as the job lists them. */
static int category_names(const Paceline__Data__Csv *csv, struct names *out, struct err *err)
{
    const Paceline__Data__Column *label = NULL;
    for (size_t i = 0; i < csv->n_column && !label; i++)
        if (csv->label && strcmp(csv->column[i]->name, csv->label) == 0)
            label = csv->column[i];
    size_t n = label ? label->n_categories : 0;
    out->at = n > 0 ? calloc(n, sizeof *out->at) : NULL;
    int rc = n == 0 || out->at ? OK : ERR_NOMEM;
    for (size_t i = 0; rc == OK && i < n; i++)
        rc = add_name(out, n, label->categories[i]);
    if (rc != OK)
        names_release(out);
    return rc == OK ? OK : err_set(err, rc, "%s: out of memory for names", csv->path);
}

/* The characters of a text, if its vocabulary is known; each has the number of its place there. */
static int character_names(const Paceline__Data__Text *text, struct names *out, struct err *err)
{
    const char *vocabulary = text->vocabulary ? text->vocabulary : "";
    size_t n = strlen(vocabulary);
    bool characters = text->unit == PACELINE__DATA__TEXT__UNIT__character && n > 0;
    out->at = characters ? calloc(n, sizeof *out->at) : NULL;
    int rc = !characters || out->at ? OK : ERR_NOMEM;
    for (size_t at = 0, length; rc == OK && characters && at < n; at += length) {
        char name[UTF8_BYTES_MAX + 1] = "";
        uint32_t code;
        length = utf8_take(vocabulary + at, n - at, &code);
        if (length == 0) /* of a job that was not checked */
            break;
        memcpy(name, vocabulary + at, length);
        rc = add_name(out, n, name);
    }
    if (rc != OK)
        names_release(out);
    return rc == OK ? OK : err_set(err, rc, "%s: out of memory for names", text->path);
}

int names_of(const Paceline__Data *spec, struct remote *remote, struct names *out, struct err *err)
{
    struct names names = {0};
    int rc = OK;
    switch (spec->source_case) {
    case PACELINE__DATA__SOURCE_CIFAR10:
        rc = read_sibling(spec->cifar10->path, "batches.meta.txt", &names, err);
        break;
    case PACELINE__DATA__SOURCE_CIFAR100:
        rc =
            read_sibling(spec->cifar100->path,
                         spec->cifar100->coarse ? "coarse_label_names.txt" : "fine_label_names.txt",
                         &names, err);
        break;
    case PACELINE__DATA__SOURCE_IMAGES:
        rc = file_is_folder(spec->images->list)
                 ? folder_names(spec->images->list, &names, err)
                 : read_sibling(spec->images->list, "synsets.txt", &names, err);
        break;
    case PACELINE__DATA__SOURCE_SHARDS:
        rc = shards_names(spec->shards->shards, remote, &names, err);
        break;
    case PACELINE__DATA__SOURCE_CSV: rc = category_names(spec->csv, &names, err); break;
    case PACELINE__DATA__SOURCE_TEXT: rc = character_names(spec->text, &names, err); break;
    case PACELINE__DATA__SOURCE_ZIP:
        for (size_t k = 0; rc == OK && names.count == 0 && k < spec->zip->n_field; k++)
            if (spec->zip->field[k]->data) /* of a job that was not checked */
                rc = names_of(spec->zip->field[k]->data, remote, &names, err);
        break;
    default: break;
    }
    if (rc == OK)
        *out = names;
    return rc;
}

const char *names_at(const struct names *names, size_t label)
{
    return label < names->count ? names->at[label] : NULL;
}

void names_release(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->at[i]);
    free(names->at);
    *names = (struct names){0};
}

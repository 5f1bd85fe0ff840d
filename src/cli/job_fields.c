#define _GNU_SOURCE
#include "cli/job_fields.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 512, REPEATS_MAX = 100 };

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = f ? malloc(JOB_TEXT_MAX + 1) : NULL;
    size_t n = text ? fread(text, 1, JOB_TEXT_MAX + 1, f) : 0;
    bool whole = text && n <= JOB_TEXT_MAX && !ferror(f);
    if (f)
        fclose(f);
    if (!whole) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    char *fits = realloc(text, n + 1);
    return fits ? fits : text;
}

const char *job_fields_find(const struct job_fields *fields, const char *path)
{
    for (size_t i = 0; i < fields->count; i++)
        if (strcmp(fields->field[i].path, path) == 0)
            return fields->field[i].value;
    return NULL;
}

/* The names of the messages around a line. */
struct nest {
    char path[PATH_BYTES];
    size_t end[JOB_DEPTH_MAX]; /* of the path, at each depth */
    size_t depth;
};

/* Append a name; a field with an index may follow one without. false: it does not fit. */
static bool extend_path(const struct nest *nest, const char *name, size_t n, unsigned repeat,
                        char out[PATH_BYTES])
{
    char index[16] = "";
    if (repeat > 0)
        snprintf(index, sizeof index, "[%u]", repeat);
    int used = snprintf(out, PATH_BYTES, "%s%s%.*s%s", nest->path, nest->path[0] ? "." : "", (int)n,
                        name, index);
    return used > 0 && used < PATH_BYTES;
}

static bool begins_with(const char *path, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(path, prefix, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

/* Is there a field of this path, or within it? Equal paths are near the end, as the file repeats
 * them. */
static bool is_there(const struct job_fields *fields, const char *path)
{
    for (size_t i = fields->count; i > 0; i--)
        if (begins_with(fields->field[i - 1].path, path))
            return true;
    return false;
}

static bool name_place(const struct job_fields *fields, const struct nest *nest, const char *name,
                       size_t n, char out[PATH_BYTES])
{
    for (unsigned repeat = 0; repeat < REPEATS_MAX; repeat++) {
        if (!extend_path(nest, name, n, repeat, out))
            return false;
        if (!is_there(fields, out))
            return true;
    }
    return false;
}

static bool add_field(struct job_fields *fields, const char *path, const char *value, size_t n)
{
    if (fields->count == JOB_FIELDS_MAX)
        return true;
    if (fields->count == fields->room) {
        size_t room = fields->room > 0 ? 2 * fields->room : 64;
        struct job_field *more = realloc(fields->field, room * sizeof *more);
        if (!more)
            return false;
        fields->field = more;
        fields->room = room;
    }
    struct job_field *field = &fields->field[fields->count];
    *field = (struct job_field){strdup(path), strndup(value, n)};
    fields->count += field->path && field->value;
    return field->path && field->value;
}

/* "name: value", "name {" or "}"; others are no fields. */
static bool take_line(struct job_fields *fields, struct nest *nest, const char *line, size_t n)
{
    char path[PATH_BYTES];
    while (n > 0 && (*line == ' ' || *line == '\t'))
        line++, n--;
    size_t name = 0;
    while (name < n && (line[name] == '_' || isalnum((unsigned char)line[name])))
        name++;
    bool opens = name > 0 && n == name + 2 && memcmp(line + name, " {", 2) == 0;
    bool value = name > 0 && n > name + 2 && memcmp(line + name, ": ", 2) == 0;
    if (n == 1 && line[0] == '}' && nest->depth > 0)
        nest->path[nest->end[--nest->depth]] = '\0';
    else if (opens && nest->depth < JOB_DEPTH_MAX && name_place(fields, nest, line, name, path)) {
        nest->end[nest->depth++] = strlen(nest->path);
        memcpy(nest->path, path, strlen(path) + 1);
    } else if (value && name_place(fields, nest, line, name, path)) {
        return add_field(fields, path, line + name + 2, n - name - 2);
    }
    return true;
}

bool job_fields_read(const char *path, struct job_fields *fields)
{
    struct nest nest = {.depth = 0};
    *fields = (struct job_fields){.text = read_text(path)};
    bool good = fields->text != NULL;
    for (const char *line = fields->text, *end; good && *line && fields->count < JOB_FIELDS_MAX;
         line = *end ? end + 1 : end) {
        end = strchrnul(line, '\n');
        good = take_line(fields, &nest, line, (size_t)(end - line));
    }
    if (!good)
        job_fields_release(fields);
    return good;
}

void job_fields_release(struct job_fields *fields)
{
    for (size_t i = 0; i < fields->count; i++) {
        free(fields->field[i].path);
        free(fields->field[i].value);
    }
    free(fields->field);
    free(fields->text);
    *fields = (struct job_fields){0};
}

#include "model/safetensors.h"
#include "model/safetensors_format.h"

#include "base/file.h"

#include <cjson/cJSON.h>

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are copied as they lie");

enum {
    DEPTH_MAX = 3,        /* the file, a tensor, its shape */
    VALUES_MAX = 1 << 18, /* one costs some hundred bytes parsed where its text may take two */
};

/* A whole number above this may have been rounded when it became a double. */
static const double WHOLE_MAX = 9007199254740991.0;

struct reading {
    const char *file;
    struct err *err;
    char *text; /* the header, a copy, with a zero after it */
    size_t text_len;
    const uint8_t *data;
    size_t data_len;
    bool looks; /* tensors stay where they are */
    bool alone; /* there are no bytes after the header */
    struct safetensors st;
    struct safetensors_item *item; /* st.item and st.notes during reading */
    struct safetensors_meta *notes;
};

static int no_memory(struct reading *r)
{
    return err_set(r->err, ERR_NOMEM, "%s: out of memory", r->file);
}

/* ---- the header as text ---- */

bool safetensors_begins(const uint8_t *bytes, size_t len)
{
    return len > SAFETENSORS_LENGTH_BYTES && bytes[SAFETENSORS_LENGTH_BYTES] == '{' &&
           bytes_le64(bytes) <= len - SAFETENSORS_LENGTH_BYTES;
}

enum { START_BYTES = 16 }; /* of a foreign file, for its refusal */

/* The file is, for example, a text whose first letters were read as a length. */
static int refuse_start(const struct reading *r, const uint8_t *bytes, size_t len)
{
    char start[START_BYTES + 1] = "";
    for (size_t i = 0; i < len && i < START_BYTES; i++)
        start[i] = (char)(bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?');
    return err_set(
        r->err, ERR_INPUT,
        "%s: is no safetensors file, which begins with its header's length and a {; this "
        "begins with \"%s\"; give a .safetensors or a .caffemodel",
        r->file, start);
}

static int split_header(struct reading *r, const uint8_t *bytes, size_t len)
{
    if (len < SAFETENSORS_LENGTH_BYTES)
        return err_set(r->err, ERR_INPUT, "%s: %zu bytes are too few for a safetensors file",
                       r->file, len);
    uint64_t n = bytes_le64(bytes);
    if (n > len && len > SAFETENSORS_LENGTH_BYTES && bytes[SAFETENSORS_LENGTH_BYTES] != '{')
        return refuse_start(r, bytes, len);
    len -= SAFETENSORS_LENGTH_BYTES;
    bytes += SAFETENSORS_LENGTH_BYTES;
    if (n > SAFETENSORS_HEADER_MAX)
        return err_set(r->err, ERR_INPUT, "%s: a header of %llu bytes, above %d", r->file,
                       (unsigned long long)n, SAFETENSORS_HEADER_MAX);
    if (n > len)
        return err_set(r->err, ERR_INPUT, "%s: a header of %llu bytes where %zu follow", r->file,
                       (unsigned long long)n, len);
    r->text_len = (size_t)n;
    r->text = malloc(r->text_len + 1);
    if (!r->text)
        return no_memory(r);
    memcpy(r->text, bytes, r->text_len);
    r->text[r->text_len] = '\0';
    r->data = bytes + n;
    r->data_len = len - r->text_len;
    return OK;
}

/* Check the header's own checksum before all else, so that damage is reported as damage. */
static int check_header(struct reading *r)
{
    size_t lead = strlen(SAFETENSORS_LEAD);
    if (r->text_len < lead + SAFETENSORS_DIGITS || memcmp(r->text, SAFETENSORS_LEAD, lead) != 0)
        return err_set(r->err, ERR_INPUT, "%s: the header carries no checksum", r->file);
    char stated[SAFETENSORS_DIGITS + 1] = "", found[SAFETENSORS_DIGITS + 1];
    char *place = r->text + lead;
    memcpy(stated, place, SAFETENSORS_DIGITS);
    memset(place, '0', SAFETENSORS_DIGITS);
    safetensors_digits(r->text, r->text_len, found);
    memcpy(place, stated, SAFETENSORS_DIGITS);
    if (memcmp(stated, found, SAFETENSORS_DIGITS) != 0)
        return err_set(r->err, ERR_INPUT, "%s: damaged: the header does not match its checksum",
                       r->file);
    return OK;
}

/* Input that cJSON accepts and JSON does not, or that would cost without bound. */
struct scan {
    const char *text;
    size_t at, depth, values;
    const char *wrong;
};

static void scan_string(struct scan *s)
{
    for (s->at++; s->text[s->at] != '"'; s->at++) {
        if ((uint8_t)s->text[s->at] < 0x20) { /* the final zero too */
            s->wrong = "a string with a control character, or without end";
            return;
        }
        if (s->text[s->at] == '\\') {
            s->at++; /* whatever stands here, it does not end the string */
            if (strncmp(s->text + s->at, "u0000", 5) == 0 || s->text[s->at] == '\0') {
                s->wrong = "a zero character in a string";
                return;
            }
        }
    }
}

static void scan_other(struct scan *s)
{
    char c = s->text[s->at];
    if (c == '{' || c == '[') {
        s->depth++;
        s->values++;
    } else if ((c == '}' || c == ']') && s->depth > 0) {
        s->depth--;
    } else if (c == ',') {
        s->values++;
    } else if ((uint8_t)c < 0x20 && c != '\n' && c != '\r' && c != '\t') {
        s->wrong = "a control character";
    }
    if (s->depth > DEPTH_MAX)
        s->wrong = "nested deeper than the format is";
    if (s->values > VALUES_MAX)
        s->wrong = "too many values";
}

static int scan_header(struct reading *r)
{
    if (r->text[0] != '{')
        return err_set(r->err, ERR_INPUT, "%s: the header does not begin with '{'", r->file);
    if (!safetensors_utf8(r->text, r->text_len))
        return err_set(r->err, ERR_INPUT, "%s: the header is not UTF-8", r->file);
    struct scan s = {.text = r->text};
    for (; s.at < r->text_len && !s.wrong; s.at++) {
        if (s.text[s.at] == '"')
            scan_string(&s);
        else
            scan_other(&s);
    }
    if (s.wrong)
        return err_set(r->err, ERR_INPUT, "%s: header byte %zu: %s", r->file, s.at - 1, s.wrong);
    return OK;
}

/* Numbers must be plain digits, where cJSON has made doubles of "2.0", "2e0", "-0" and "02" alike.
 * Called once the header has been understood, so that a number that is wrong by its value has been
 * refused with its tensor's name. */
static int scan_numbers(struct reading *r)
{
    struct scan s = {.text = r->text};
    for (; s.at < r->text_len; s.at++) {
        char before = s.at ? s.text[s.at - 1] : '\0';
        char c = s.text[s.at], after = s.text[s.at + 1];
        if (c == '"')
            scan_string(&s);
        else if (strchr("+-.eE", c) ||
                 (c == '0' && !(before >= '0' && before <= '9') && after >= '0' && after <= '9'))
            return err_set(r->err, ERR_INPUT, "%s: header byte %zu: a number not in plain digits",
                           r->file, s.at);
    }
    return OK;
}

/* ---- the header as JSON ---- */

static int parse_json(struct reading *r, cJSON **out)
{
    int status = scan_header(r);
    if (status)
        return status;
    const char *end = r->text;
    cJSON *root = cJSON_ParseWithLengthOpts(r->text, r->text_len, &end, false);
    if (!root)
        return err_set(r->err, ERR_INPUT, "%s: the header is not JSON near byte %zu", r->file,
                       (size_t)(end - r->text));
    size_t used = (size_t)(end - r->text);
    if (used + strspn(r->text + used, " ") != r->text_len) {
        cJSON_Delete(root);
        return err_set(r->err, ERR_INPUT, "%s: header byte %zu: something follows the object",
                       r->file, used);
    }
    *out = root;
    return OK;
}

static int read_metas(struct reading *r, const cJSON *object)
{
    if (r->notes)
        return err_set(r->err, ERR_INPUT, "%s: two of %s", r->file, SAFETENSORS_METADATA);
    if (!cJSON_IsObject(object))
        return err_set(r->err, ERR_INPUT, "%s: %s is not an object", r->file, SAFETENSORS_METADATA);
    size_t n = (size_t)cJSON_GetArraySize(object);
    const cJSON *value;
    r->notes = arena_array(&r->st.arena, n, struct safetensors_meta);
    if (!r->notes)
        return no_memory(r);
    cJSON_ArrayForEach(value, object)
    {
        if (!cJSON_IsString(value))
            return err_set(r->err, ERR_INPUT, "%s: metadata %.200s: not a text", r->file,
                           value->string);
        struct safetensors_meta *meta = &r->notes[r->st.meta_n++];
        meta->key = arena_strdup(&r->st.arena, value->string);
        meta->value = arena_strdup(&r->st.arena, value->valuestring);
        if (!meta->key || !meta->value)
            return no_memory(r);
    }
    return OK;
}

static bool read_whole(const cJSON *value, double max, size_t *out)
{
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0) || value->valuedouble > max)
        return false;
    *out = (size_t)value->valuedouble;
    return (double)*out == value->valuedouble;
}

static int read_shape(struct reading *r, const char *name, const cJSON *array,
                      struct safetensors_item *item)
{
    if (!cJSON_IsArray(array))
        return err_set(r->err, ERR_INPUT, "%s: tensor %.200s: shape is not an array", r->file,
                       name);
    const cJSON *value;
    cJSON_ArrayForEach(value, array)
    {
        struct shape *shape = &item->shape;
        if (shape->n == SHAPE_DIMS_MAX)
            return err_set(r->err, ERR_UNSUPPORTED, "%s: tensor %.200s: more than %d dimensions",
                           r->file, name, SHAPE_DIMS_MAX);
        if (!read_whole(value, SAFETENSORS_DIM_MAX, &shape->dim[shape->n++]))
            return err_set(r->err, ERR_INPUT,
                           "%s: tensor %.200s: dimension %zu is not a whole number up to %d",
                           r->file, name, shape->n - 1, SAFETENSORS_DIM_MAX);
    }
    item->count = shape_count(&item->shape);
    if (item->count == 0 && !safetensors_shape_empty(&item->shape))
        return err_set(r->err, ERR_INPUT, "%s: tensor %.200s: its shape overflows", r->file, name);
    return OK;
}

static int read_offsets(struct reading *r, const char *name, const cJSON *array,
                        struct safetensors_item *item)
{
    size_t begin, end;
    if (!cJSON_IsArray(array) || cJSON_GetArraySize(array) != 2 ||
        !read_whole(array->child, WHOLE_MAX, &begin) ||
        !read_whole(array->child->next, WHOLE_MAX, &end))
        return err_set(r->err, ERR_INPUT,
                       "%s: tensor %.200s: data_offsets are not two whole numbers", r->file, name);
    if (begin > end || end > r->data_len)
        return err_set(r->err, ERR_INPUT,
                       "%s: tensor %.200s: data_offsets %zu to %zu in %zu bytes of data", r->file,
                       name, begin, end, r->data_len);
    if (end - begin != item->count * sizeof(float))
        return err_set(r->err, ERR_INPUT, "%s: tensor %.200s: %zu bytes for %zu floats", r->file,
                       name, end - begin, item->count);
    item->offset = begin;
    return OK;
}

/* PyTorch counts the batches of a normalisation in an integer of eight bytes. Nothing here reads
 * it: to the cover of the data it is two floats. */
static bool is_counter(const char *name, const cJSON *dtype, const cJSON *shape)
{
    static const char end[] = ".num_batches_tracked";
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0 && strcmp(dtype->valuestring, "I64") == 0 &&
           cJSON_IsArray(shape) && !shape->child;
}

static int read_tensor(struct reading *r, const cJSON *object)
{
    const char *name = object->string;
    const cJSON *dtype = NULL, *shape = NULL, *offsets = NULL, *value;
    if (!cJSON_IsObject(object))
        return err_set(r->err, ERR_INPUT, "%s: tensor %.200s: not an object", r->file, name);
    cJSON_ArrayForEach(value, object)
    {
        const cJSON **slot = strcmp(value->string, "dtype") == 0          ? &dtype
                             : strcmp(value->string, "shape") == 0        ? &shape
                             : strcmp(value->string, "data_offsets") == 0 ? &offsets
                                                                          : NULL;
        if (!slot || *slot)
            return err_set(r->err, ERR_INPUT, "%s: tensor %.200s: %.100s %s", r->file, name,
                           value->string, slot ? "is given twice" : "is not in the format");
        *slot = value;
    }
    if (!dtype || !shape || !offsets || !cJSON_IsString(dtype))
        return err_set(r->err, ERR_INPUT, "%s: tensor %.200s: %s", r->file, name,
                       !dtype     ? "no dtype"
                       : !shape   ? "no shape"
                       : !offsets ? "no data_offsets"
                                  : "dtype is not a text");
    bool counter = is_counter(name, dtype, shape);
    if (strcmp(dtype->valuestring, "F32") != 0 && !counter)
        return err_set(r->err, ERR_UNSUPPORTED, "%s: tensor %.200s: dtype %.100s, only F32 is read",
                       r->file, name, dtype->valuestring);
    struct safetensors_item *item = &r->item[r->st.n++];
    item->name = arena_strdup(&r->st.arena, name);
    if (!item->name)
        return no_memory(r);
    int status = read_shape(r, name, shape, item);
    if (counter) {
        item->shape = (struct shape){1, {2}};
        item->count = 2;
    }
    return status ? status : read_offsets(r, name, offsets, item);
}

static int read_header(struct reading *r, const cJSON *root)
{
    size_t n = (size_t)cJSON_GetArraySize(root);
    const cJSON *value;
    r->item = arena_array(&r->st.arena, n, struct safetensors_item);
    r->st.by_name = arena_array(&r->st.arena, n, const struct safetensors_item *);
    if (!r->item || !r->st.by_name)
        return no_memory(r);
    cJSON_ArrayForEach(value, root)
    {
        bool metas = strcmp(value->string, SAFETENSORS_METADATA) == 0;
        int status = metas ? read_metas(r, value) : read_tensor(r, value);
        if (status)
            return status;
    }
    return scan_numbers(r);
}

/* ---- order, cover, copy ---- */

static int meta_compare(const void *a, const void *b)
{
    const struct safetensors_meta *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static int name_compare(const void *a, const void *b)
{
    const struct safetensors_item *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Empty tensors go before the one that begins where they lie, so that a cover can be walked. */
static int offset_compare(const void *a, const void *b)
{
    const struct safetensors_item *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->count != y->count)
        return x->count < y->count ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int sort_names(struct reading *r)
{
    struct safetensors *st = &r->st;
    if (st->meta_n)
        qsort(r->notes, st->meta_n, sizeof *r->notes, meta_compare);
    for (size_t i = 1; i < st->meta_n; i++)
        if (meta_compare(&r->notes[i - 1], &r->notes[i]) == 0)
            return err_set(r->err, ERR_INPUT, "%s: metadata %.200s: given twice", r->file,
                           r->notes[i].key);
    qsort(r->item, st->n, sizeof *r->item, offset_compare);
    for (size_t i = 0; i < st->n; i++)
        st->by_name[i] = &r->item[i];
    qsort(st->by_name, st->n, sizeof *st->by_name, name_compare);
    for (size_t i = 1; i < st->n; i++)
        if (name_compare(&st->by_name[i - 1], &st->by_name[i]) == 0)
            return err_set(r->err, ERR_INPUT, "%s: tensor %.200s: given twice", r->file,
                           st->by_name[i]->name);
    st->item = r->item;
    st->meta = r->notes;
    return OK;
}

static int check_cover(struct reading *r)
{
    size_t at = 0;
    for (size_t i = 0; i < r->st.n; i++) {
        const struct safetensors_item *item = &r->item[i];
        if (item->offset != at)
            return err_set(
                r->err, ERR_INPUT, "%s: tensor %.200s: begins at byte %zu of the data, %s %zu",
                r->file, item->name, item->offset,
                item->offset < at ? "within the tensor that ends at" : "after a gap from", at);
        at += item->count * sizeof(float);
    }
    if (at != r->data_len)
        return err_set(r->err, ERR_INPUT, "%s: %zu bytes follow the last tensor", r->file,
                       r->data_len - at);
    return OK;
}

static int check_tensors(struct reading *r)
{
    for (size_t i = 0; i < r->st.n; i++) {
        const struct safetensors_item *item = &r->item[i];
        size_t size = strlen(SAFETENSORS_XXH3) + strlen(item->name) + 1;
        char *key = malloc(size), digits[SAFETENSORS_DIGITS + 1];
        if (!key)
            return no_memory(r);
        memcpy(key, SAFETENSORS_XXH3, strlen(SAFETENSORS_XXH3));
        strcpy(key + strlen(SAFETENSORS_XXH3), item->name);
        const char *stated = safetensors_meta_get(&r->st, key);
        free(key);
        if (!stated)
            return err_set(r->err, ERR_INPUT, "%s: tensor %.200s: carries no checksum", r->file,
                           item->name);
        safetensors_digits(r->data + item->offset, item->count * sizeof(float), digits);
        if (strcmp(stated, digits) != 0)
            return err_set(r->err, ERR_INPUT,
                           "%s: tensor %.200s: damaged: its bytes do not match their checksum",
                           r->file, item->name);
    }
    return OK;
}

/* Floats that lie where floats may not are copied in any case. */
static int place_data(struct reading *r)
{
    const uint8_t *data = r->data;
    if (!r->looks || (uintptr_t)data % sizeof(float) != 0) {
        uint8_t *copy = arena_alloc(&r->st.arena, r->data_len, 1);
        if (!copy)
            return no_memory(r);
        data = memcpy(copy, r->data, r->data_len);
    }
    for (size_t i = 0; i < r->st.n; i++)
        r->item[i].data = (const float *)(const void *)(data + r->item[i].offset);
    return OK;
}

static int read_all(struct reading *r, const uint8_t *bytes, size_t len, bool demand_checksums)
{
    cJSON *root = NULL;
    int status = split_header(r, bytes, len);
    if (!status && demand_checksums)
        status = check_header(r);
    if (!status)
        status = parse_json(r, &root);
    if (!status)
        status = read_header(r, root);
    cJSON_Delete(root);
    free(r->text);
    if (!status)
        status = sort_names(r);
    if (!status)
        status = check_cover(r);
    if (status || r->alone)
        return status;
    if (demand_checksums)
        status = check_tensors(r);
    return status ? status : place_data(r);
}

static int parse_file(struct reading *r, const uint8_t *bytes, size_t len, bool demand_checksums,
                      struct safetensors *out)
{
    arena_init(&r->st.arena);
    int status = read_all(r, bytes, len, demand_checksums);
    if (status) {
        arena_release(&r->st.arena);
        return status;
    }
    *out = r->st;
    return OK;
}

int safetensors_parse(const char *file, const uint8_t *bytes, size_t len, bool demand_checksums,
                      struct safetensors *out, struct err *err)
{
    struct reading r = {.file = file, .err = err};
    return parse_file(&r, bytes, len, demand_checksums, out);
}

int safetensors_look(const char *file, const uint8_t *bytes, size_t len, bool demand_checksums,
                     struct safetensors *out, struct err *err)
{
    struct reading r = {.file = file, .err = err, .looks = true};
    return parse_file(&r, bytes, len, demand_checksums, out);
}

/* The length and the header, and in any case the first START_BYTES there are, in a buffer for the
 * caller to free. */
static int read_head(const char *path, const struct file_open *file, uint8_t **head,
                     struct err *err)
{
    uint8_t length[SAFETENSORS_LENGTH_BYTES] = {0};
    size_t n = file->len < sizeof length ? (size_t)file->len : sizeof length;
    int rc = file_part(file, 0, length, n);
    uint64_t header = bytes_le64(length), rest = file->len - n;
    if (header > SAFETENSORS_HEADER_MAX || header > rest)
        header = 0; /* the parser reports it */
    n += (size_t)header;
    if (n < START_BYTES)
        n = file->len < START_BYTES ? (size_t)file->len : START_BYTES;
    *head = malloc(n + 1);
    if (!*head)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    if (rc == OK)
        rc = file_part(file, 0, *head, n);
    return rc == OK ? OK : err_set(err, ERR_INPUT, "%s: cannot be read", path);
}

int safetensors_read_table(const char *path, const struct file_open *file, struct safetensors *out,
                           uint64_t *data, struct err *err)
{
    struct reading r = {.file = path, .err = err, .looks = true, .alone = true};
    uint8_t *head = NULL;
    int rc = read_head(path, file, &head, err);
    if (rc == OK)
        rc = parse_file(&r, head, (size_t)file->len, true, out);
    *data = file->len - r.data_len;
    free(head);
    return rc;
}

int safetensors_read_meta(const char *path, struct safetensors *out, struct err *err)
{
    struct file_open file;
    uint64_t data;
    int rc = file_open(path, &file, err);
    if (rc != OK)
        return rc;
    rc = safetensors_read_table(path, &file, out, &data, err);
    if (rc == OK)
        out->n = 0;
    file_close(&file);
    return rc;
}

void safetensors_release(struct safetensors *st)
{
    arena_release(&st->arena);
    *st = (struct safetensors){0};
}

const struct safetensors_item *safetensors_item(const struct safetensors *st, const char *name)
{
    if (st->n == 0)
        return NULL;
    const struct safetensors_item key = {.name = name}, *at = &key;
    const struct safetensors_item *const *found =
        bsearch(&at, st->by_name, st->n, sizeof *st->by_name, name_compare);
    return found ? *found : NULL;
}

const float *safetensors_find(const struct safetensors *st, const char *name, struct shape *shape)
{
    const struct safetensors_item *item = safetensors_item(st, name);
    if (!item)
        return NULL;
    if (shape)
        *shape = item->shape;
    return item->data;
}

const char *safetensors_meta_get(const struct safetensors *st, const char *key)
{
    if (st->meta_n == 0)
        return NULL;
    const struct safetensors_meta wanted = {.key = key};
    const struct safetensors_meta *found =
        bsearch(&wanted, st->meta, st->meta_n, sizeof *st->meta, meta_compare);
    return found ? found->value : NULL;
}

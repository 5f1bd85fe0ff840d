#include "data/source_csv.h"

#include "base/array.h"
#include "data/csv_columns.h"
#include "job/text.h"

#include <stdlib.h>
#include <string.h>

struct row {
    uint64_t at; /* in the file */
    uint32_t bytes, label;
};

struct source_csv {
    struct source source;      /* first */
    Paceline__Data__Csv *spec; /* own, all_listed */
    struct csv_columns columns;
    struct file_open file;
    bool open;
    char delimiter;
    struct row *row;
    size_t room;
};

/* ---- records ---- */

static int refuse_changed(const struct source_csv *self, size_t i, struct err *err)
{
    return err_set(err, ERR_IO, "%s: record %zu cannot be read; the file has changed",
                   self->spec->path, i);
}

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_csv *self = (const struct source_csv *)source;
    const struct row *at = &self->row[i];
    size_t values = self->columns.inputs + self->columns.targets, room = self->columns.n;
    char *text = scratch_get(scratch, SCRATCH_FILE, at->bytes);
    struct csv_row row = {.room = room};
    row.field = scratch_get(scratch, SCRATCH_ROWS, room * sizeof *row.field);
    float *x = scratch_get(scratch, SCRATCH_PIXELS, values * sizeof *x);
    if (!text || !row.field || !x)
        return err_set(err, ERR_NOMEM, "%s: record %zu: out of memory", self->spec->path, i);
    uint32_t label;
    if (file_part(&self->file, at->at, text, at->bytes) != OK ||
        !csv_divide(text, at->bytes, true, self->delimiter, &row) || row.bytes != at->bytes ||
        csv_columns_take(&self->columns, &row, 0, x, &label, NULL) != OK || label != at->label)
        return refuse_changed(self, i, err);
    *raw = (struct raw){x, RAW_FLOATS, values, 1, 1, 0};
    return OK;
}

static uint32_t label_of(const struct source *source, size_t i)
{
    return ((const struct source_csv *)source)->row[i].label;
}

static void close_source(struct source *source)
{
    struct source_csv *self = (struct source_csv *)source;
    if (self->open)
        file_close(&self->file);
    csv_columns_release(&self->columns);
    if (self->spec)
        protobuf_c_message_free_unpacked(&self->spec->base, NULL);
    free(self->row);
    free(self);
}

static const struct source_ops ops = {
    .kind = "csv",
    .read = read_record,
    .label = label_of,
    .close = close_source,
};

const Paceline__Data__Csv *source_csv_columns(const struct source *source)
{
    return source->ops == &ops ? ((const struct source_csv *)source)->spec : NULL;
}

/* ---- opening ---- */

static int refuse_memory(const char *path, struct err *err)
{
    return err_set(err, ERR_NOMEM, "%s: out of memory", path);
}

static char delimiter_of(const Paceline__Data__Csv *spec)
{
    size_t n = strlen(spec->path);
    if (spec->delimiter && spec->delimiter[0])
        return spec->delimiter[0];
    return n > 4 && strcmp(spec->path + n - 4, ".tsv") == 0 ? '\t' : ',';
}

static int add_row(struct source_csv *self, const struct csv_reader *reader, uint32_t label,
                   struct err *err)
{
    struct source *source = &self->source;
    if (source->count == UINT32_MAX)
        return err_set(err, ERR_INPUT, "%s: more than %u records", reader->path, UINT32_MAX);
    if (!array_grow(&self->row, source->count, &self->room, sizeof *self->row))
        return refuse_memory(reader->path, err);
    self->row[source->count++] = (struct row){reader->offset, (uint32_t)reader->row.bytes, label};
    bool labelled = self->columns.label < self->columns.n;
    source->classes = labelled && label >= source->classes ? label + 1 : source->classes;
    return OK;
}

/* The rows that fit the columns, which are those of the first row. */
static int index_rows(struct source_csv *self, const struct source_config *config,
                      struct csv_reader *reader, struct err *err)
{
    bool more = false;
    int rc = csv_reader_next(reader, &more, err);
    if (rc == OK && !more)
        rc = err_set(err, ERR_INPUT, "%s: is empty", reader->path);
    if (rc == OK)
        rc = csv_columns_init(&self->columns, reader->path, self->spec, &reader->row, err);
    reader->again = !self->spec->header;
    uint64_t rows = 0;
    while (rc == OK) {
        uint32_t label = 0;
        rc = csv_reader_next(reader, &more, err);
        if (rc != OK || !more)
            break;
        rows++;
        rc = csv_columns_take(&self->columns, &reader->row, reader->line, NULL, &label, err);
        if (rc == OK)
            rc = add_row(self, reader, label, err);
        else if (rc == ERR_INPUT && config->bad)
            rc = source_leave_out(config, reader->line, err);
        else if (rc == ERR_INPUT)
            err_remedy(err, BAD_RECORD_REMEDY);
    }
    if (rc == OK && rows == 0)
        rc = err_set(err, ERR_INPUT, "%s: has no row of values", reader->path);
    return rc == OK && self->source.count == 0 ? source_refuse_empty(reader->path, rows, err) : rc;
}

static int load_rows(struct source_csv *self, const struct source_config *config,
                     struct csv_reader *reader, struct err *err)
{
    reader->hash = hash_stream_create();
    if (!reader->hash)
        return refuse_memory(reader->path, err);
    hash_stream_begin(reader->hash);
    int rc = csv_reader_begin(reader, err);
    if (rc == OK)
        rc = index_rows(self, config, reader, err);
    csv_reader_end(reader);
    self->source.hash = hash_mix(hash_stream_take(reader->hash), self->columns.inputs);
    if (self->columns.targets > 0)
        self->source.hash = hash_mix(self->source.hash, self->columns.targets);
    hash_stream_free(reader->hash);
    return rc;
}

/* With targets a record has the fields "data" and "target". */
static void set_shape(struct source_csv *self)
{
    const struct csv_columns *columns = &self->columns;
    struct fields *fields = &self->source.fields;
    self->source.shape = (struct shape){3, {columns->inputs + columns->targets, 1, 1}};
    if (columns->targets == 0)
        return;
    fields->n = 2;
    fields->field[0] = (struct field){.name = "data", .shape = {1, {columns->inputs}}};
    fields->field[1] =
        (struct field){.name = "target", .shape = {1, {columns->targets}}, .from = columns->inputs};
}

static int load_table(struct source_csv *self, const struct source_config *config, struct err *err)
{
    const char *path = self->spec->path;
    int rc = file_check_under(config->root, path, err);
    if (rc == OK)
        rc = file_open(path, &self->file, err);
    self->open = rc == OK;
    self->delimiter = delimiter_of(self->spec);
    struct csv_reader reader = {
        .path = path, .delimiter = self->delimiter, .watch = config->watch, .file = self->file};
    if (rc == OK && !self->spec->all_listed)
        rc = csv_columns_find(&reader, self->spec, err);
    if (rc == OK)
        rc = load_rows(self, config, &reader, err);
    if (rc != OK)
        return rc;
    set_shape(self);
    if (self->columns.label == self->columns.n)
        return OK;
    const Paceline__Data__Column *label = self->columns.at[self->columns.label].of;
    if (!csv_is_number(label))
        self->source.classes = (uint32_t)label->n_categories;
    return OK;
}

int source_csv_open(const struct source_config *config, const Paceline__Data__Csv *spec,
                    struct source **out, struct err *err)
{
    struct source_csv *self = calloc(1, sizeof *self);
    if (!self)
        return refuse_memory(spec->path, err);
    self->source.ops = &ops;
    self->spec = (Paceline__Data__Csv *)text_copy(&spec->base);
    int rc = self->spec ? load_table(self, config, err) : refuse_memory(spec->path, err);
    if (rc != OK) {
        close_source(&self->source);
        return rc;
    }
    *out = &self->source;
    return OK;
}

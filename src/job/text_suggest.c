#include "job/text_suggest.h"

#include "base/minmax.h"
#include "job/text_field.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 64, DEPTH_MAX = 3 };

/* Other tools' names of our fields. */
static const struct alias {
    const char *other, *name;
} aliases[] = {
    {"batchsize", "batch"},
    {"batch_size", "batch"},
    {"minibatch", "batch"},
    {"lr", "base_lr"},
    {"learning_rate", "base_lr"},
    {"learningrate", "base_lr"},
    {"rate", "base_lr"},
    {"lr_schedule", "lr_policy"},
    {"scheduler", "lr_policy"},
    {"optimizer", "type"},
    {"decay", "weight_decay"},
    {"l2", "weight_decay"},
    {"max_epochs", "epochs"},
    {"num_epochs", "epochs"},
    {"n_epochs", "epochs"},
    {"max_steps", "steps"},
    {"max_iter", "steps"},
    {"iterations", "steps"},
    {"n_workers", "workers"},
    {"num_workers", "workers"},
    {"nodes", "workers"},
    {"num_threads", "threads"},
    {"model", "net"},
    {"network", "net"},
    {"data", "train_data"},
    {"dataset", "train_data"},
    {"training_data", "train_data"},
    {"validation_split", "validation"},
    {"random_seed", "seed"},
    {"dtype", "precision"},
    {"path", "list"},
    {"folder", "list"},
    {"directory", "list"},
    {"dir", "list"},
};

/* Levenshtein's distance; n < NAME_MAX_BYTES. */
static size_t edit_distance(const char *a, size_t n, const char *b)
{
    size_t row[NAME_MAX_BYTES];
    for (size_t i = 0; i <= n; i++)
        row[i] = i;
    for (size_t j = 0; b[j]; j++) {
        size_t corner = row[0];
        row[0] = j + 1;
        for (size_t i = 1; i <= n; i++) {
            size_t change = corner + (a[i - 1] != b[j]);
            corner = row[i];
            row[i] = min_size(change, min_size(row[i], row[i - 1]) + 1);
        }
    }
    return row[n];
}

static const ProtobufCFieldDescriptor *find_nearest(const ProtobufCMessageDescriptor *type,
                                                    const char *name)
{
    const ProtobufCFieldDescriptor *nearest = NULL;
    size_t n = strlen(name), best = n < 5 ? 2 : 3; /* one slip in a short name, two in a longer */
    for (unsigned i = 0; i < type->n_fields; i++) {
        size_t d = edit_distance(name, n, type->fields[i].name);
        if (d < best && d < n) {
            best = d;
            nearest = &type->fields[i];
        }
    }
    return nearest;
}

/* Is the field a message whose fields users may write one level too high: Paceline's own, or the
 * solver? */
static bool is_searched(const ProtobufCFieldDescriptor *field)
{
    const ProtobufCMessageDescriptor *type = field->descriptor;
    return field->type == PROTOBUF_C_TYPE_MESSAGE && !text_field_repeated(field) &&
           (strcmp(type->package_name, "paceline") == 0 ||
            strcmp(type->short_name, "SolverParameter") == 0);
}

/* A field called `name`, exactly `depth` messages inside. */
static bool find_inside(const ProtobufCMessageDescriptor *type, const char *name, int depth,
                        char path[TEXT_SUGGESTION_MAX])
{
    if (depth == 0) {
        const ProtobufCFieldDescriptor *field = text_field_find(type, name, strlen(name));
        if (field)
            snprintf(path, TEXT_SUGGESTION_MAX, "%s", field->name);
        return field;
    }
    if (strcmp(type->package_name, "paceline") != 0)
        return false;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        char rest[TEXT_SUGGESTION_MAX];
        if (!is_searched(field) || !find_inside(field->descriptor, name, depth - 1, rest))
            continue;
        int n = snprintf(path, TEXT_SUGGESTION_MAX, "%s.%s", field->name, rest);
        return n < TEXT_SUGGESTION_MAX;
    }
    return false;
}

bool text_suggest(const ProtobufCMessageDescriptor *type, const char *name, size_t n,
                  enum text_likeness likeness, char path[TEXT_SUGGESTION_MAX])
{
    char wanted[NAME_MAX_BYTES];
    const char *known = wanted;
    if (n == 0 || n >= sizeof wanted)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        wanted[i] = (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    }
    wanted[n] = '\0';
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].other, wanted) == 0)
            known = aliases[i].name;
    if (find_inside(type, known, 0, path))
        return true;
    const ProtobufCFieldDescriptor *near =
        likeness == TEXT_NEARLY ? find_nearest(type, wanted) : NULL;
    if (near) {
        snprintf(path, TEXT_SUGGESTION_MAX, "%s", near->name);
        return true;
    }
    for (int depth = 1; depth <= DEPTH_MAX; depth++)
        if (find_inside(type, known, depth, path))
            return true;
    return false;
}

void text_list_fields(const ProtobufCMessageDescriptor *type, char out[TEXT_SUGGESTION_MAX])
{
    size_t used = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < type->n_fields; i++) {
        int n = snprintf(out + used, TEXT_SUGGESTION_MAX - used, "%s%s", i ? ", " : "; it has ",
                         type->fields[i].name);
        used += (size_t)n;
        if (used >= TEXT_SUGGESTION_MAX) {
            out[0] = '\0'; /* too many to name */
            return;
        }
    }
}

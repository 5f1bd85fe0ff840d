/* The names of classes, where they can be known: a file of one name a line, in the order of labels.
 * Such files lie in the folder of the data of CIFAR (batches.meta.txt, fine_label_names.txt,
 * coarse_label_names.txt) and, as synsets.txt, in the folder of some lists; a folder of class
 * folders has the names itself, and so has a job that lists the categories of a table's labels, or
 * the characters of a text. */
#ifndef PL_DATA_NAMES_H
#define PL_DATA_NAMES_H

#include "base/remote.h"
#include "job/job.pb-c.h"

#include <stddef.h>

struct names {
    char **at; /* printable UTF-8; owned */
    size_t count;
};

/* The lines of a file, empty ones at its end apart. ERR_INPUT, ERR_NOMEM */
int names_read(const char *path, struct names *out, struct err *err);

/* Names that are each ended by a zero, `bytes` in all. ERR_INPUT, ERR_NOMEM */
int names_parse(const char *path, const char *text, size_t bytes, struct names *out,
                struct err *err);

/* Of the data that `spec` names; none (OK, count 0) where nothing tells them. `remote` as in
 * source_config. ERR_INPUT: what is there cannot be read; ERR_NOMEM */
int names_of(const Paceline__Data *spec, struct remote *remote, struct names *out, struct err *err);

/* The name of a label, or NULL. Valid until release. */
const char *names_at(const struct names *names, size_t label);
void names_release(struct names *names);

#endif

/* Records side by side: record i has record i of each part as a field (tensor/record_fields.h). */
#ifndef PL_DATA_SOURCE_ZIP_H
#define PL_DATA_SOURCE_ZIP_H

#include "data/source.h"

/* A field that one part becomes. */
struct zip_field {
    struct source *part;
    const char *name;   /* copied; NULL: the part's own fields with their names */
    struct shape shape; /* of as many values as the part's records; n 0: the part's own, without H
                           and W where both are 1 */
};

/* A source that owns the parts and closes them; on an error they are the caller's. Labels and their
 * classes are those of the first part that has labels.
 *
 * ERR_INPUT  parts with different counts, with records of several sizes; a shape of another number
 *            of values; a name that is missing, too long or there twice; more than FIELDS_MAX
 * ERR_NOMEM */
int source_zip(const struct zip_field *field, size_t n, struct source **out, struct err *err);

/* The zip of a job, which has passed job_check_data. Errors as source_zip and source_field_open,
 * naming the field. */
int source_zip_open(const struct source_config *config, const Paceline__Data__Zip *spec,
                    struct source **out, struct err *err);

/* Part k of a zip; NULL: it has no such part, or `source` is none. */
const struct source *source_zip_part(const struct source *source, size_t k);

#endif

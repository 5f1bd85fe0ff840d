/* Tables of text, CSV or TSV: a record a row, a vector of floats and a label. All rows are read and
 * checked when the table is opened; 16 bytes a row stay in memory, and a row is parsed again when
 * its record is asked for. */
#ifndef PL_DATA_SOURCE_CSV_H
#define PL_DATA_SOURCE_CSV_H

#include "data/source.h"

/* As source_open_with. Rows that do not fit the columns are left out where config->bad is there.
 * The hash covers all bytes of the file and the number of inputs. */
int source_csv_open(const struct source_config *config, const Paceline__Data__Csv *spec,
                    struct source **out, struct err *err);

/* The columns of an open table, all listed; NULL: it is no table. */
const Paceline__Data__Csv *source_csv_columns(const struct source *source);

#endif

/* Declarations that the files of the public data interface share. */
#ifndef PL_API_DATA_H
#define PL_API_DATA_H

#include "api/api.h"
#include "data/dataset.h"
#include "data/names.h"
#include "data/stats.h"
#include "paceline/data.h"

struct pl_data {
    pl_engine *engine;
    Paceline__Data *spec; /* owned */
    enum source_role role;
    char **path; /* of pictures that were given by their paths; owned, else NULL */
    size_t paths;
    struct source *source;
    struct bad_records *bad; /* receives records found bad; borrowed, or NULL */
    bool own_maps, own_size; /* those of the SPEC, not a job's; some of them decide the size */
    bool maps;               /* there are any */
    struct dataset set;      /* the records through the maps, once `mapped` */
    bool mapped;
    struct names names;
    struct scratch scratch;
    struct stats stats;       /* pl_data_measure's, */
    pl_data_channel *channel; /* and its public face; owned */
    uint64_t *of_class;       /* pl_data_describe's */
    char reason[160];         /* pl_data_fit's */
};

/* Open the SPEC. `bad` receives the records with broken heads; borrowed as long as the data is
 * open; NULL: no record may be broken. */
int api_data_open(pl_engine *engine, const char *spec, bool training, struct bad_records *bad,
                  pl_data **out);

/* See the records through the maps. Returns the status of dataset_init. */
int api_data_map(pl_data *data);

/* api_data_map, and are these records there, with room for as many floats? PL_ERR_USAGE, with a
 * message of the data's engine */
int api_data_check(pl_data *data, size_t first, size_t count, size_t room);

/* The shape of a record's inputs through the maps, once api_data_map has succeeded: without
 * targets. */
struct shape api_data_inputs(const pl_data *data);

/* Does the SPEC say what becomes of its records? */
bool api_data_has_maps(const Paceline__Data *spec);

/* ERR_USAGE */
int api_value_type(pl_value_type type, enum value_type *out, struct err *err);

/* Bind records, and take their `release` with them: pl_data_bind, pl_stream_seal. Not called if it
 * fails. */
struct memory_records;
int api_bind_records(pl_engine *engine, const char *name, const struct memory_records *records);

/* The order of colours, if the source states one; else NULL. */
Paceline__Data__Color *api_data_color(const Paceline__Data *spec, protobuf_c_boolean **given);

#endif

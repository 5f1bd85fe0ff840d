/* Sources that the caller of the library has bound to names: `memory:NAME` in a SPEC or a job. */
#ifndef PL_DATA_BINDINGS_H
#define PL_DATA_BINDINGS_H

#include "data/source.h"

enum { BINDING_NAME_MAX = 64 };

/* Those of a process. Zeroed: none. Not thread-safe, except that any thread reads open sources. */
struct bindings {
    struct binding *first;
};

/* ERR_USAGE: the name is bound already, or is no name */
int bindings_check(const struct bindings *bindings, const char *name, struct err *err);

/* Bind a name that was checked to a source, which the binding closes. ERR_NOMEM; the source is then
 * the caller's. */
int bindings_add(struct bindings *bindings, const char *name, struct source *source,
                 struct err *err);

/* ERR_USAGE: the source is open under this name, or the name is not bound. */
int bindings_remove(struct bindings *bindings, const char *name, struct err *err);
void bindings_release(struct bindings *bindings);

/* Records that have arrived under this name, and whether others may follow; 0 and false where
 * nothing is bound to it. */
size_t bindings_arrived(const struct bindings *bindings, const char *name, bool *more);

/* Open the source of this name in config->bindings. ERR_INPUT: nothing is bound to it; ERR_NOMEM */
int bindings_open(const struct source_config *config, const char *name, struct source **out,
                  struct err *err);

#endif

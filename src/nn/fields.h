/* Lists the set fields of a message, so that a layer can refuse those that it does not honour. */
#ifndef PL_NN_FIELDS_H
#define PL_NN_FIELDS_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* The name of the first set field that is in neither list (each ends with NULL; `more` may be
 * NULL), or NULL. A field the schema does not know counts too, as "field N", written to `number`.
 */
const char *fields_first_unknown(const ProtobufCMessage *msg, const char *const *known,
                                 const char *const *more, char *number, size_t size);

#endif

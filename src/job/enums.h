/* Words of a message that came as bytes, where any number may stand: text has only words there are
 * (job/text.h). */
#ifndef PL_JOB_ENUMS_H
#define PL_JOB_ENUMS_H

#include "base/err.h"

#include <protobuf-c/protobuf-c.h>

/* Every enum that is set, in the message and all that it holds, has a value of its type. Looks at
 * each field once; as deep as the types are nested.
 * ERR_INPUT: `layer "conv1": pooling_param.pool: 7 is none of MAX, AVE, STOCHASTIC` */
int enums_check(const ProtobufCMessage *msg, struct err *err);

#endif

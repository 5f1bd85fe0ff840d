/* Checks the enums of a message that was decoded from bytes, which may hold any number. The text
 * parser (job/text.h) accepts only existing words. */
#ifndef PL_JOB_ENUMS_H
#define PL_JOB_ENUMS_H

#include "base/err.h"

#include <protobuf-c/protobuf-c.h>

/* Every enum that is set, in the message and all that it holds, has a value of its type. Visits
 * each field once, as deep as the types are nested. ERR_INPUT: `layer "conv1": pooling_param.pool:
 * 7 is none of MAX, AVE, STOCHASTIC` */
int enums_check(const ProtobufCMessage *msg, struct err *err);

#endif

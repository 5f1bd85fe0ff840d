/* Status codes: one list, grouped by what is lost, so that a caller can decide from the group what
 * to do next.
 *
 * Every function that can fail because of the world returns one of these as int; OK is 0 and errors
 * are negative. Our own mistakes are PL_ASSERT (fault.h), never a status. */
#ifndef PL_BASE_STATUS_H
#define PL_BASE_STATUS_H

#define STATUS_LIST(X)                                                        \
    X(OK, 0, "ok")                                                            \
    /* Nothing is lost: the same call may succeed later, or was cancelled. */ \
    X(ERR_TIMEOUT, -1, "deadline passed")                                     \
    X(ERR_FULL, -2, "no credit left for this peer")                           \
    X(ERR_STOP, -3, "asked to stop")                                          \
    X(ERR_CANCELLED, -4, "task cancelled")                                    \
    X(ERR_END, -5, "no more items")                                           \
    /* An exchange is lost; its inputs are intact. */                         \
    X(ERR_VIEW, -20, "the view changed")                                      \
    /* A peer is lost. */                                                     \
    X(ERR_PEER, -30, "peer lost")                                             \
    X(ERR_PROTOCOL, -31, "peer broke the protocol")                           \
    X(ERR_CORRUPT, -32, "bytes were corrupted on the way")                    \
    /* This member is lost to the group. */                                   \
    X(ERR_FENCED, -40, "fenced out of the group")                             \
    X(ERR_DRIVER, -41, "driver lost")                                         \
    X(ERR_REPLICAS, -42, "replicas that must be equal are not")               \
    /* A request is lost: its input is at fault. */                           \
    X(ERR_INPUT, -60, "bad input")                                            \
    X(ERR_USAGE, -61, "wrong usage")                                          \
    X(ERR_NOT_FOUND, -62, "not found")                                        \
    X(ERR_UNSUPPORTED, -63, "not supported")                                  \
    /* This process or its machine lacks a resource. */                       \
    X(ERR_NOMEM, -80, "out of memory")                                        \
    X(ERR_IO, -81, "input/output error")                                      \
    X(ERR_DIVERGED, -82, "the model diverged")                                \
    X(ERR_BUG, -99, "internal error")

enum status {
#define STATUS_ENUM(name, value, text) name = (value),
    STATUS_LIST(STATUS_ENUM)
#undef STATUS_ENUM
};

/* The text of a status, valid for ever; "unknown status" for a number not in the list. */
const char *status_text(int status);

#endif

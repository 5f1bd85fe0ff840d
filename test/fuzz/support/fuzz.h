/* Declarations that the fuzz targets share. A target, fuzz_NAME.c, passes untrusted bytes to one
 * reader. The reader must accept or refuse them: refuse with a status and a message that names the
 * place, read nothing beyond them, and use memory in proportion. Anything else ends the process.
 *
 * With clang and -DPACELINE_FUZZ=ON a target is a fuzzer (scripts/fuzz.sh); else it is a test that
 * replays the committed corpus. */
#ifndef PL_FUZZ_SUPPORT_FUZZ_H
#define PL_FUZZ_SUPPORT_FUZZ_H

#include "base/err.h"
#include "base/fault.h"
#include "job/caffe.pb-c.h"

#include <stddef.h>
#include <stdint.h>

/* The target. `bytes` end where the allocator's red zone begins. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* End the process unless `rc` is OK, or an error that input may cause, with a message that names
 * `place` (NULL: any text). An error about memory names the available memory. With FUZZ_SAY in the
 * environment all messages are shown. */
void fuzz_judge(int rc, const struct err *err, const char *place);

/* Readers of files find these bytes under that name, and no others, without a disk: base/file.h is
 * replaced. Bytes are borrowed until the next fuzz_files_clear. */
void fuzz_file(const char *path, const uint8_t *bytes, size_t n);
void fuzz_files_clear(void);

/* From now on our own code can allocate this many bytes in all, and then gets NULL, as on a small
 * machine: a net may request terabytes, and must be refused with a message. SIZE_MAX: no bound. */
void fuzz_budget(size_t bytes);

/* Plan the net for both phases; a small one takes a training step and a test. */
void fuzz_net(const Caffe__NetParameter *net);

/* The message as text reads back as the same text. */
void fuzz_text(const ProtobufCMessage *msg);

/* Probe and decode a picture; a picture that decodes must have been probed, with the same size. */
void fuzz_picture(const uint8_t *bytes, size_t n);

/* If `rc` is OK: read the records of an open source, and close it. */
struct source;
void fuzz_source(int rc, struct source *source);

/* A net of a few parameters, BatchNorm's state among them, made at the first call. */
const Caffe__NetParameter *fuzz_small_net(void);

#endif

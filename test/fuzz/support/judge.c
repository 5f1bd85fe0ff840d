#include "fuzz.h"

#include "base/bytes.h"
#include "job/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_judge(int rc, const struct err *err, const char *place)
{
    static int phrase = -1;
    if (phrase < 0)
        phrase = getenv("FUZZ_SAY") != NULL;
    if (phrase)
        fprintf(stderr, "%s: %s\n", status_text(rc), rc == OK ? "" : err->text);
    if (rc == OK)
        return;
    bool known = rc == ERR_INPUT || rc == ERR_UNSUPPORTED || rc == ERR_NOMEM || rc == ERR_IO;
    bool placed = rc == ERR_NOMEM || !place || strstr(err->text, place);
    if (known && placed && err->text[0])
        return;
    fprintf(stderr, "status %d, \"%s\", where \"%s\" should be named\n", rc, err->text,
            place ? place : "");
    abort();
}

void fuzz_text(const ProtobufCMessage *msg)
{
    struct buf once = {0}, again = {0};
    struct err err = {0};
    ProtobufCMessage *copy = NULL;
    text_write(msg, &once);
    PL_ASSERT(!once.failed);
    int rc = text_parse(msg->descriptor, "written", (const char *)once.data, once.len, &copy, &err);
    if (rc == OK)
        text_write(copy, &again);
    if (rc != OK || again.len != once.len ||
        (once.len > 0 && memcmp(once.data, again.data, once.len) != 0)) {
        fprintf(stderr, "%.*s\n-- as text; read and written again:\n%.*s\n%s\n", (int)once.len,
                (const char *)once.data, (int)again.len, (const char *)again.data, err.text);
        abort();
    }
    protobuf_c_message_free_unpacked(copy, NULL);
    buf_release(&once);
    buf_release(&again);
}

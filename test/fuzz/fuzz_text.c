/* A text, behind a byte that chooses how it is read. The vocabulary that was found must fit the
 * text that it was found in. */
#include "support/fuzz.h"

#include "data/source_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 1)
        return 0;
    Paceline__Data__Text text = PACELINE__DATA__TEXT__INIT;
    Paceline__Data data = PACELINE__DATA__INIT;
    struct source *source = NULL, *second = NULL;
    struct err err = {0};
    data.source_case = PACELINE__DATA__SOURCE_TEXT;
    data.text = &text;
    text.path = (char *)(uintptr_t) "in.txt";
    text.has_unit = text.has_window = text.has_stride = true; /* or copies lose them */
    text.unit =
        bytes[0] & 1 ? PACELINE__DATA__TEXT__UNIT__character : PACELINE__DATA__TEXT__UNIT__byte;
    text.window = 1 + (bytes[0] >> 1 & 7);
    text.stride = bytes[0] >> 4;
    fuzz_files_clear();
    fuzz_file("in.txt", bytes + 1, n - 1);
    int rc = source_open(&data, SOURCE_TRAIN, &source, &err);
    fuzz_judge(rc, &err, "in.txt");
    if (rc == OK) {
        text.vocabulary = source_text_settled(source)->vocabulary;
        fuzz_text(&data.base);
        int again = source_open(&data, SOURCE_TEST, &second, &err);
        PL_ASSERT(again == ERR_NOMEM || (again == OK && second->hash == source->hash));
        if (again == OK)
            second->ops->close(second);
    }
    fuzz_source(rc, source);
    return 0;
}

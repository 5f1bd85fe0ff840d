/* A list of pictures and labels, of which one, p.png, exists. */
#include "support/fuzz.h"

#include "data/source_images.h"

#define NAME "in.txt"

/* One grey pixel. */
static const uint8_t picture[] = {0x89, 'P', 'N', 'G',  '\r', '\n', 0x1a, '\n', 0,    0, 0, 13,
                                  'I',  'H', 'D', 'R',  0,    0,    0,    1,    0,    0, 0, 1,
                                  8,    0,   0,   0,    0,    0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0,
                                  10,   'I', 'D', 'A',  'T',  0x78, 0x9c, 0x63, 0x60, 0, 0, 0,
                                  2,    0,   1,   0x48, 0xaf, 0xa4, 0x71, 0,    0,    0, 0, 'I',
                                  'E',  'N', 'D', 0xae, 0x42, 0x60, 0x82};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    Paceline__Data__Images images = PACELINE__DATA__IMAGES__INIT;
    const struct source_config config = {0};
    struct source *source = NULL;
    struct err err = {0};
    images.list = (char *)(uintptr_t)NAME;
    fuzz_files_clear();
    fuzz_file(NAME, bytes, n);
    fuzz_file("p.png", picture, sizeof picture);
    int rc = source_images_open(&config, &images, &source, &err);
    fuzz_judge(rc, &err, NULL);
    fuzz_source(rc, source);
    return 0;
}

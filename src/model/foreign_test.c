/* Files of other tools are known by their first bytes; a safetensors file whose header happens to
 * have such a length is none of them. */
#include "model/foreign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void expect_refused(const char *bytes, size_t len, const char *what)
{
    struct err err = {0};
    assert_int_equal(foreign_check("m", (const uint8_t *)bytes, len, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, what));
    assert_non_null(strstr(err.text, "save its weights as .safetensors"));
}

static void test_files_of_other_tools_are_refused_by_name(void **state)
{
    (void)state;
    expect_refused("\x80\x02}q\0X", 6, "a pickle");
    expect_refused("PK\x03\x04", 4, "a zip archive");
    expect_refused("\x89HDF\r\n\x1a\n", 8, "HDF5");
    expect_refused("GGUF", 4, "GGUF");
    struct err err = {0};
    const uint8_t onnx[] = "\x08\x07\x12\x07pytorch";
    assert_int_equal(foreign_check("m", onnx, 11, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "give it a name that ends in .onnx"));
}

static void test_safetensors_headers_may_have_any_length(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {
        0x280,            /* 80 02, as a pickle */
        0x10280, 0x20280, /* the same, longer */
        0x120708,         /* 08 07 12, as ONNX */
    };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t *bytes = calloc(1, 8 + lengths[i]);
        assert_non_null(bytes);
        for (int k = 0; k < 4; k++)
            bytes[k] = (uint8_t)(lengths[i] >> 8 * k);
        bytes[8] = '{';
        assert_int_equal(foreign_check("m", bytes, 8 + lengths[i], NULL), OK);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_of_other_tools_are_refused_by_name),
        cmocka_unit_test(test_safetensors_headers_may_have_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The messages for a name, a brace or a character that does not belong there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/job.pb-c.h"
#include "job/text.h"

#include <string.h>

static void job_refuses(const char *text, const char *message)
{
    ProtobufCMessage *msg = NULL;
    struct err err = {0};
    assert_int_equal(text_parse(&paceline__job__descriptor, "t", text, strlen(text), &msg, &err),
                     ERR_INPUT);
    assert_null(msg);
    assert_string_equal(err.text, message);
}

static void test_unknown_fields_suggest_the_nearest(void **state)
{
    (void)state;
    job_refuses("batch: 1\n  bach: 2", "t:2:3: Job has no field `bach`; did you mean `batch`?");
    job_refuses("stop { epoch: 1 }", "t:1:8: Stop has no field `epoch`; did you mean `epochs`?");
    job_refuses("zebra: 1", "t:1:1: Job has no field `zebra`");
    job_refuses("train_data { images { folder: 'a' } }",
                "t:1:23: Images has no field `folder`; did you mean `list`?");
    job_refuses("train_data { images { zzzzz: 'a' } }",
                "t:1:23: Images has no field `zzzzz`; it has list, root, color");
    job_refuses("batchsize: 1", "t:1:1: Job has no field `batchsize`; did you mean `batch`?");
    job_refuses("epochs: 1",
                "t:1:1: Job has no field `epochs`; did you mean `stop { epochs: ... }`?");
    job_refuses("LR: 1", "t:1:1: Job has no field `LR`; did you mean `solver { base_lr: ... }`?");
    job_refuses("tau: 1",
                "t:1:1: Job has no field `tau`; did you mean `strategy { sync { tau: ... } }`?");
    job_refuses("solver { lr: 1 }",
                "t:1:10: SolverParameter has no field `lr`; did you mean `base_lr`?");
    job_refuses("solver { epochs: 1 }", "t:1:10: SolverParameter has no field `epochs`; did you "
                                        "mean `stop { epochs: ... }` of Job?");
    job_refuses(
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: 1",
        "t:1:1: Job has no field `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...`");
}

static void test_text_that_is_not_closed_names_its_block(void **state)
{
    (void)state;
    job_refuses("batch: 1\nstop {\n epochs: 1\n", "t:4:1: expected a field or `}` of Stop, not the "
                                                  "end; `stop`, which begins in line 2, is not "
                                                  "closed");
    job_refuses("train_data {\n idx {\n }\n\nbatch: 1",
                "t:5:1: Data has no field `batch`, but Job has: is the `}` of `train_data`, which "
                "begins in line 1, missing?");
    job_refuses("solver {\n base_lr: 1\n}\nstrategy { sync { tau: 1 }\nworkers: 2",
                "t:5:1: Strategy has no field `workers`, but Job has: is the `}` of `strategy`, "
                "which begins in line 4, missing?");
}

static void test_characters_without_a_place_are_named(void **state)
{
    (void)state;
    job_refuses("solver { base_lr = 0.01 }",
                "t:1:18: field `base_lr` of SolverParameter: `=` is not allowed here; write `:` "
                "between a field and its value, as in base_lr: 0.01");
    job_refuses(
        "train_data { scale: 1/255 }",
        "t:1:22: `/` is not allowed here; nothing is computed here: write the number itself, "
        "as in 0.00390625");
    job_refuses("name: \xe2\x80\x9cjob\xe2\x80\x9d",
                "t:1:7: field `name` of Job: byte 0xe2 is not allowed here; quotes are written "
                "straight, \"like this\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_fields_suggest_the_nearest),
        cmocka_unit_test(test_text_that_is_not_closed_names_its_block),
        cmocka_unit_test(test_characters_without_a_place_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

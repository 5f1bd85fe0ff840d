/* The messages about two jobs that differ, and the differences that make another run. */
#include "job/job_diff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BASE                                                                             \
    "name: 'a' net { zoo: 'lenet' } train_data { cifar10 { path: '/d/c' } scale: 0.5 } " \
    "solver { base_lr: 0.1 } workers: 4 strategy { sync { tau: 4 } } stop { epochs: 2 } "

static Paceline__Job *read_job(const char *text, const char *const *set)
{
    Paceline__Job *job = NULL;
    struct err err = {0};
    if (job_parse("job", text, strlen(text), &job, &err) != OK)
        fail_msg("%s", err.text);
    for (; set && *set; set++)
        if (job_set(job, *set, &err) != OK)
            fail_msg("%s", err.text);
    if (job_finish(job, &err) != OK)
        fail_msg("%s", err.text);
    return job;
}

static void put_change(void *user, const struct job_change *change)
{
    char *out = user;
    size_t n = strlen(out);
    snprintf(out + n, 1024 - n, "%s%s: %s > %s\n", change->breaks ? "! " : "", change->field,
             change->from, change->to);
}

static void expect_changes(const char *expected, const char *from, const char *to,
                           const char *const *set)
{
    char text[1024] = "";
    struct err err = {0};
    Paceline__Job *a = read_job(from, NULL), *b = read_job(to, set);
    assert_int_equal(job_diff(a, b, put_change, text, &err), OK);
    assert_string_equal(text, expected);
    job_free(a);
    job_free(b);
}

#define CHANGES(expected, ...) \
    expect_changes(expected, BASE, BASE, (const char *const[]){__VA_ARGS__, NULL})

static void test_job_diff_of_equal_jobs_is_empty(void **state)
{
    (void)state;
    expect_changes("", BASE, BASE, NULL);
    CHANGES("", "batch=64", "solver.base_lr=1e-1", "evaluate={}");
}

static void test_job_diff_names_free_changes(void **state)
{
    (void)state;
    CHANGES("solver.base_lr: 0.1 > 0.05\nstop.epochs: 2 > 3.5\n", "solver.base_lr=0.05",
            "stop.epochs=3.5");
    CHANGES("threads: not set > 3\nstrategy.sync.tau: 4 > 8\nworkers: 4 > 2\n", "workers=2",
            "threads=3", "strategy.sync.tau=8");
    CHANGES("checkpoint.every_seconds: 30 > 1\nstop.steps: not set > 7\n", "stop.steps=7",
            "checkpoint.every_seconds=1");
    CHANGES("train_data.cifar10.path: \"/d/c\" > \"/e/c\"\n", "train_data.cifar10.path=/e/c");
}

static void test_job_diff_marks_what_makes_another_run(void **state)
{
    (void)state;
    CHANGES("! net.zoo: \"lenet\" > \"resnet-20\"\n", "net.zoo=resnet-20");
    CHANGES("! net: zoo \"lenet\" > file \"/n\"\n", "net.file=/n");
    CHANGES("! seed: 1 > 2\n", "seed=2");
    CHANGES("! strategy: sync > mpca\n", "strategy.mpca={}");
    CHANGES("! train_data: cifar10 > idx\n", "train_data.idx={images:'/i' labels:'/l'}");
    CHANGES("! train_data.scale: 0.5 > 1\n! train_data.mean: not set > [1, 2, 3]\n",
            "train_data.scale=1", "train_data.mean=1,2,3");
    CHANGES("! test_data: not set > cifar10\n! validation: 0 > 9\n! batch: 64 > 32\n",
            "test_data.cifar10.path=/t", "validation=9", "batch=32");
    CHANGES("! solver.type: \"SGD\" > \"Adam\"\n! precision: f32 > bf16\n", "precision=bf16",
            "solver.type=Adam");
}

static void test_job_diff_reads_paths_as_paths(void **state)
{
    (void)state;
    CHANGES("", "train_data.cifar10.path=/d/./c");
    CHANGES("", "train_data.cifar10.path=//d//c");
    CHANGES("train_data.cifar10.path: \"/d/c\" > \"/d/.c\"\n", "train_data.cifar10.path=/d/.c");
    CHANGES("train_data.cifar10.path: \"/d/c\" > \"/d\"\n", "train_data.cifar10.path=/d");
}

static void test_job_diff_shows_no_secret_of_a_url(void **state)
{
    (void)state;
#define SHARDS(path) \
    "net { zoo: 'lenet' } train_data { shards { shards: '" path "' } } solver { base_lr: 1 }"
    expect_changes("train_data.shards.shards: \"/d\" > \"http://***@h/d?***\n", SHARDS("/d"),
                   SHARDS("http://me:word@h/d?token"), NULL);
}

static void test_job_diff_of_nets_that_are_given_whole(void **state)
{
    (void)state;
#define NET(layers) \
    "net { define { " layers " } } train_data { cifar10 { path: 'c' } } solver { base_lr: 1 }"
    expect_changes("! net.define.layer: 1 of them > 2 of them\n",
                   NET("layer { name: 'a' type: 'ReLU' }"),
                   NET("layer { name: 'a' type: 'ReLU' } layer { name: 'b' type: 'ReLU' }"), NULL);
    expect_changes("! net.define.layer: 1 of them > 1 of them\n",
                   NET("layer { name: 'a' type: 'ReLU' }"), NET("layer { name: 'b' type: 'ReLU' }"),
                   NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_diff_of_equal_jobs_is_empty),
        cmocka_unit_test(test_job_diff_names_free_changes),
        cmocka_unit_test(test_job_diff_marks_what_makes_another_run),
        cmocka_unit_test(test_job_diff_reads_paths_as_paths),
        cmocka_unit_test(test_job_diff_shows_no_secret_of_a_url),
        cmocka_unit_test(test_job_diff_of_nets_that_are_given_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

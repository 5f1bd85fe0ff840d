/* Data in jobs and on command lines: every field honoured or refused by name. */
#include "job/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Paceline__Job *parse_job(const char *text)
{
    struct err err = {0};
    Paceline__Job *job = NULL;
    if (job_parse("t", text, strlen(text), &job, &err) != OK)
        fail_msg("%s", err.text);
    return job;
}

/* "train_data { ... }" of a job that is well otherwise. */
static int finish_data(const char *data, Paceline__Job **out, struct err *err)
{
    char text[1024];
    snprintf(text, sizeof text, "net { zoo: 'lenet' } solver { base_lr: 0.1 } train_data { %s }",
             data);
    *out = parse_job(text);
    return job_finish(*out, err);
}

static void test_every_source(void **state)
{
    (void)state;
    static const char *const good[] = {
        "idx { images: 'i' labels: 'l' }",
        "cifar10 { path: 'd' } mirror: true pad: 4 crop: 32 mean: 125 mean: 123 mean: 114",
        "cifar100 { path: 'd' coarse: true } mean_file: 'm'",
        "images { list: 'l' root: 'r' color: bgr } resize: 256 crop: 224",
        "images { list: 'l' } resize_height: 64 resize_width: 48",
        "webdataset { shards: 'a-{000..147}.tar, b.tar' color: bgr } resize: 8",
        "webdataset { shards: 'a.tar' label_key: 'label.fine' } resize: 8",
        "lmdb { path: 'd' color: gray } scale: 0.00390625 crop: 16384",
        "csv { path: 't' } scale: 2",
        "csv { path: 't' target: 'price' target: 'weight' standardize: true }",
        "text { path: 't' unit: character window: 32 stride: 1 vocabulary: 'ab' }",
        "text { path: 't' window: 32 stride: 32 } streams: 65536",
        "shards { shards: 'a-{00000..00012}.shard' color: gray } crop: 8",
        "zip { field { name: 'x' dim: 2 data { npy { values: 'x' } scale: 2 crop: 3 } } "
        "field { data { csv { path: 't' target: 'y' } } } }",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        Paceline__Job *job;
        struct err err = {0};
        if (finish_data(good[i], &job, &err) != OK)
            fail_msg("%s: %s", good[i], err.text);
        job_free(job);
    }
}

static void test_every_field_that_is_wrong(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"lmdb { path: 'http://host/a' }",
         "train_data.lmdb.path: is a URL; only shards and webdataset are read from URLs"},
        {"", "train_data: is missing; give a source: idx, cifar10, cifar100, images, webdataset, "
             "lmdb, npy, csv, text, shards, zip or memory"},
        {"zip { }", "train_data.zip: has 0 fields; give 1 to 16"},
        {"zip { field { name: 'x' } }",
         "train_data.zip.field[0].data: is missing; give a source: idx, cifar10, cifar100, images, "
         "webdataset, lmdb, npy, csv, text, shards, zip or memory"},
        {"zip { field { data { npy { values: 'x' } } } field { data { npy { labels: 'y' } } } }",
         "train_data.zip.field[1].data.npy.values: is missing"},
        {"zip { field { data { zip { field { data { npy { values: 'x' } scale: 0 } } } } } }",
         "train_data.zip.field[0].data.zip.field[0].data.scale: must not be 0"},
        {"zip { field { dim: 1 dim: 1 dim: 1 dim: 1 dim: 1 dim: 1 dim: 1 dim: 1 "
         "data { npy { values: 'x' } } } }",
         "train_data.zip.field[0].dim: has 8 dimensions; give up to 7"},
        {"cifar10 { }", "train_data.cifar10.path: is missing"},
        {"cifar100 { path: '' }", "train_data.cifar100.path: is missing"},
        {"images { root: 'r' }", "train_data.images.list: is missing"},
        {"lmdb { }", "train_data.lmdb.path: is missing"},
        {"webdataset { }", "train_data.webdataset.shards: is missing"},
        {"shards { color: bgr }", "train_data.shards.shards: is missing"},
        {"cifar10 { path: 'd' coarse: true }",
         "train_data.cifar10.coarse: only cifar100 has coarse labels"},
        {"text { window: 3 }", "train_data.text.path: is missing"},
        {"text { path: 't' window: 65537 }",
         "train_data.text.window: must be from 1 to 65536, is 65537"},
        {"text { path: 't' stride: 2 } streams: 4",
         "train_data.streams: text.stride is set, and windows of a stream follow each other"},
        {"text { path: 't' } streams: 65537",
         "train_data.streams: must be from 0 to 65536, is 65537"},
        {"zip { field { data { npy { values: 'x' } streams: 2 } } }",
         "train_data.zip.field[0].data.streams: is for train_data"},
        {"csv { label: 'y' }", "train_data.csv.path: is missing"},
        {"csv { path: 't' label: 'y' delimiter: ', ' }",
         "train_data.csv.delimiter: is one character, and neither a quote nor a line break"},
        {"csv { path: 't' label: 'y' delimiter: '\"' }",
         "train_data.csv.delimiter: is one character, and neither a quote nor a line break"},
        {"csv { path: 't' label: 'y' missing: nan }",
         "train_data.csv.missing: must be a finite number, is nan"},
        {"csv { path: 't' label: 'y' column { kind: number } }",
         "train_data.csv.column[0]: is missing"},
        {"csv { path: 't' label: 'y' column { name: 'a' scale: inf } }",
         "train_data.csv.column[0]: must be a finite number, is inf"},
        {"lmdb { path: 'd' } scale: 0", "train_data.scale: must not be 0"},
        {"lmdb { path: 'd' } scale: inf", "train_data.scale: must be a finite number, is inf"},
        {"lmdb { path: 'd' } mean: nan", "train_data.mean[0]: must be a finite number, is nan"},
        {"lmdb { path: 'd' } mean: 1 mean_file: 'm'",
         "train_data.mean_file: `mean` is set, and one of the two may be"},
        {"lmdb { path: 'd' } pad: 1025 crop: 3", "train_data.pad: must be from 0 to 1024, is 1025"},
        {"lmdb { path: 'd' } pad: 4",
         "train_data.pad: is there to be cropped from; give `crop`, too"},
        {"lmdb { path: 'd' } crop: 16385", "train_data.crop: must be from 0 to 16384, is 16385"},
        {"lmdb { path: 'd' } resize: 16385",
         "train_data.resize: must be from 0 to 16384, is 16385"},
        {"lmdb { path: 'd' } resize_height: 16385 resize_width: 1",
         "train_data.resize_height: must be from 0 to 16384, is 16385"},
        {"lmdb { path: 'd' } resize_width: 9",
         "train_data.resize_height: is missing; both edges are given together"},
        {"lmdb { path: 'd' } resize_height: 9",
         "train_data.resize_width: is missing; both edges are given together"},
        {"lmdb { path: 'd' } resize: 8 resize_height: 9 resize_width: 9",
         "train_data.resize: resize_height is set, and one of the two may be"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Paceline__Job *job;
        struct err err = {0};
        assert_int_equal(finish_data(bad[i][0], &job, &err), ERR_INPUT);
        assert_string_equal(err.text, bad[i][1]);
        job_free(job);
    }
}

static void test_specs(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Data *data = NULL;
    assert_int_equal(
        job_set_data(&data, "cifar10:a/b?pad=4&crop=32&mirror=true&mean=125.3,123,114", &err), OK);
    assert_int_equal(data->source_case, PACELINE__DATA__SOURCE_CIFAR10);
    assert_string_equal(data->cifar10->path, "a/b");
    assert_true(data->pad == 4 && data->crop == 32 && data->mirror && data->n_mean == 3);
    assert_int_equal(job_set_data(&data, "cifar100:d?coarse=true&mean_file=/m.binaryproto", &err),
                     OK);
    assert_true(data->cifar100->coarse);
    assert_string_equal(data->mean_file, "/m.binaryproto");
    assert_int_equal(
        job_set_data(&data, "images:l.txt?root=/r&color=gray&resize=256&crop=224", &err), OK);
    assert_string_equal(data->images->list, "l.txt");
    assert_string_equal(data->images->root, "/r");
    assert_int_equal(data->images->color, PACELINE__DATA__COLOR__gray);
    assert_int_equal(data->resize, 256);
    assert_int_equal(
        job_set_data(&data, "lmdb:d?color=rgb&resize_height=3&resize_width=4&scale=2", &err), OK);
    assert_int_equal(data->lmdb->color, PACELINE__DATA__COLOR__rgb);
    assert_int_equal(job_set_data(&data, "csv:d/t.csv,y?delimiter=;&header=false&ignore=id", &err),
                     OK);
    assert_string_equal(data->csv->path, "d/t.csv");
    assert_string_equal(data->csv->label, "y");
    assert_true(!data->csv->header && data->csv->n_ignore == 1);
    assert_string_equal(data->csv->ignore[0], "id");
    assert_int_equal(job_set_data(&data, "text:t.txt?unit=character&window=32&stride=8", &err), OK);
    assert_true(data->text->unit == PACELINE__DATA__TEXT__UNIT__character);
    assert_true(data->text->window == 32 && data->text->stride == 8);
    assert_int_equal(
        job_set_data(&data, "lmdb:d?color=rgb&resize_height=3&resize_width=4&scale=2", &err), OK);
    assert_true(data->resize_height == 3 && data->resize_width == 4 && data->scale == 2);
    assert_int_equal(
        job_set_data(&data, "webdataset:a-{0..9}.tar,b.tar?color=gray&label_key=a.b", &err), OK);
    assert_string_equal(data->webdataset->label_key, "a.b");
    assert_string_equal(data->webdataset->shards, "a-{0..9}.tar,b.tar");
    assert_int_equal(data->webdataset->color, PACELINE__DATA__COLOR__gray);
    assert_int_equal(job_set_data(&data, "shards:https://me:x@h:1/{0..2}?key?crop=8", &err), OK);
    assert_string_equal(data->shards->shards, "https://me:x@h:1/{0..2}?key");
    assert_int_equal(data->crop, 8);
    assert_int_equal(job_set_data(&data, "shards:a-{00000..00012}.shard?color=bgr", &err), OK);
    assert_string_equal(data->shards->shards, "a-{00000..00012}.shard");
    assert_int_equal(data->shards->color, PACELINE__DATA__COLOR__bgr);
    protobuf_c_message_free_unpacked(&data->base, NULL);
}

static void test_specs_that_are_wrong(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"leveldb:d", "leveldb:d: a LevelDB cannot be read; make an LMDB of it: lmdb:PATH"},
        {"cifar10:", "cifar10:: expected cifar10:PATH"},
        {"csv:t.csv,", "csv:t.csv,: expected csv:TABLE[,LABEL]"},
        {"lmdb:?crop=3", "lmdb:?crop=3: expected lmdb:PATH"},
        {"webdataset:", "webdataset:: expected webdataset:PATH"},
        {"cifar10:d?coarse=true", "expected after `?` some of scale="},
        {"cifar100:d?colour=rgb", "resize_width=, coarse=, with `&` between them"},
        {"lmdb:d?root=r", "resize_width=, color=, with `&` between them"},
        {"images:l?path=r", "resize_width=, root=, color=, with `&` between them"},
        {"images:l?=r", "expected after `?` some of"},
        {"images:l?color=red", "images.color"},
        {"images:l?crop=-1", "crop: "},
        {"images:l?mirror=maybe", "mirror: "},
        {"images:l?root=a&root=b", "root is given twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Paceline__Data *data = NULL;
        struct err err = {0};
        assert_int_equal(job_set_data(&data, bad[i][0], &err), ERR_USAGE);
        assert_null(data);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("\"%s\" should say \"%s\"", err.text, bad[i][1]);
    }
}

static void test_paths_count_from_the_job(void **state)
{
    (void)state;
    static const struct {
        const char *data, *mean;
    } job_text[] = {
        {"cifar10 { path: 'c' } mean_file: 'm'", "jobs/m"},
        {"cifar100 { path: 'c' } mean_file: '/m'", "/m"},
        {"images { list: 'c' root: 'r' }", NULL},
        {"lmdb { path: 'c' }", NULL},
    };
    for (size_t i = 0; i < sizeof job_text / sizeof *job_text; i++) {
        char text[256];
        struct err err = {0};
        snprintf(text, sizeof text, "train_data { %s }", job_text[i].data);
        Paceline__Job *job = parse_job(text);
        const Paceline__Data *data = job->train_data;
        if (job_resolve_paths(job, "jobs/a.job", &err) != OK)
            fail_msg("%s", err.text);
        const char *path = data->source_case == PACELINE__DATA__SOURCE_CIFAR10 ? data->cifar10->path
                           : data->source_case == PACELINE__DATA__SOURCE_CIFAR100
                               ? data->cifar100->path
                           : data->source_case == PACELINE__DATA__SOURCE_IMAGES ? data->images->list
                                                                                : data->lmdb->path;
        assert_string_equal(path, "jobs/c");
        if (data->source_case == PACELINE__DATA__SOURCE_IMAGES)
            assert_string_equal(data->images->root, "jobs/r");
        if (job_text[i].mean)
            assert_string_equal(data->mean_file, job_text[i].mean);
        job_free(job);
    }
}

static void test_paths_count_from_another_root(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Job *job = parse_job("train_data { images { list: 'a/list' root: '/pictures' } "
                                   "mean_file: '/other/m' } test_data { cifar10 { path: 't' } }");
    assert_int_equal(job_resolve_paths(job, "jobs/a.job", &err), OK);
    assert_int_equal(job_move_data(job, "jobs/", "/mine", &err), OK);
    assert_string_equal(job->train_data->images->list, "/mine/a/list");
    assert_string_equal(job->train_data->images->root, "/pictures"); /* refused when opened */
    assert_string_equal(job->train_data->mean_file, "/other/m");
    assert_string_equal(job->test_data->cifar10->path, "/mine/t");
    assert_int_equal(job_move_data(job, "/mine/", "/new", &err), OK);
    assert_string_equal(job->test_data->cifar10->path, "/new/t");
    job_free(job);
    job = parse_job("train_data { cifar10 { path: 'c' } }"); /* of a job without a folder */
    assert_int_equal(job_move_data(job, "", "/mine", &err), OK);
    assert_string_equal(job->train_data->cifar10->path, "/mine/c");
    job_free(job);
    job = parse_job("train_data { webdataset { shards: 'a-{0..9}.tar, /b.tar,c/d.tar' } }");
    assert_int_equal(job_resolve_paths(job, "jobs/a.job", &err), OK);
    assert_string_equal(job->train_data->webdataset->shards,
                        "jobs/a-{0..9}.tar,/b.tar,jobs/c/d.tar");
    assert_int_equal(job_move_data(job, "jobs/", "/mine", &err), OK);
    assert_string_equal(job->train_data->webdataset->shards,
                        "/mine/a-{0..9}.tar,/b.tar,/mine/c/d.tar");
    job_free(job);
    job = parse_job("train_data { shards { shards: 'http://h/a,b,HTTPS://h/c' } }");
    assert_int_equal(job_resolve_paths(job, "jobs/a.job", &err), OK);
    assert_int_equal(job_move_data(job, "jobs/", "/mine", &err), OK);
    assert_string_equal(job->train_data->shards->shards, "http://h/a,/mine/b,HTTPS://h/c");
    job_free(job);
    job = parse_job(
        "train_data { zip { field { data { npy { values: 'x' labels: '/y' } } } "
        "field { data { zip { field { data { csv { path: 't' } mean_file: 'm' } } } } } } }");
    const Paceline__Data__Zip *zip = job->train_data->zip;
    assert_int_equal(job_resolve_paths(job, "jobs/a.job", &err), OK);
    assert_string_equal(job_data_path(job->train_data), "jobs/x");
    assert_int_equal(job_move_data(job, "jobs/", "/mine", &err), OK);
    assert_string_equal(zip->field[0]->data->npy->values, "/mine/x");
    assert_string_equal(zip->field[0]->data->npy->labels, "/y");
    const Paceline__Data *inner = zip->field[1]->data->zip->field[0]->data;
    assert_string_equal(inner->csv->path, "/mine/t");
    assert_string_equal(inner->mean_file, "/mine/m");
    char long_root[5000];
    memset(long_root, 'r', sizeof long_root - 1);
    long_root[sizeof long_root - 1] = '\0';
    assert_int_equal(job_move_data(job, "", long_root, &err), ERR_INPUT);
    job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_source),
        cmocka_unit_test(test_every_field_that_is_wrong),
        cmocka_unit_test(test_specs),
        cmocka_unit_test(test_specs_that_are_wrong),
        cmocka_unit_test(test_paths_count_from_the_job),
        cmocka_unit_test(test_paths_count_from_another_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A spool in memory, in a file, and half in each: what is read is what was written. */
#include "data/spool.h"

#include "base/rng.h"
#include "faulty_disk.h"
#include "folder.h"

enum { EACH = 7, PER_BLOCK = 10, BLOCK = EACH * PER_BLOCK };

struct place {
    struct folder folder;
    struct faulty_disk disk;
    char path[512];
};

static int setup(void **state)
{
    static struct place place;
    folder_make(&place.folder);
    snprintf(place.path, sizeof place.path, "%s/spool", place.folder.path);
    *state = &place;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(&((struct place *)*state)->folder);
    return 0;
}

static uint8_t value_of(size_t i, size_t k)
{
    return (uint8_t)rng_u64(5, i, k);
}

static void open_spool(struct spool *spool, struct place *place, size_t memory)
{
    struct err err = {0};
    const struct spool_config config = {.record_bytes = EACH,
                                        .block_bytes = BLOCK + 3,
                                        .memory = memory,
                                        .disk = &place->disk.disk,
                                        .path = place->path};
    faulty_init(&place->disk);
    assert_int_equal(spool_open(spool, &config, &err), OK);
}

/* Commit `count` records, a few at a time. Returns the first error. */
static int fill_spool(struct spool *spool, size_t count, struct err *err)
{
    while (spool->count < count) {
        void *values;
        uint32_t *labels;
        size_t room, n = 1 + (size_t)rng_below(3, 1, spool->count, 4);
        int rc = spool_acquire(spool, &values, &labels, &room, err);
        if (rc != OK)
            return rc;
        assert_in_range(room, 1, PER_BLOCK);
        n = n < room ? n : room;
        n = n < count - spool->count ? n : count - spool->count;
        for (size_t i = 0; i < n; i++) {
            labels[i] = (uint32_t)(spool->count + i) * 3;
            for (size_t k = 0; k < EACH; k++)
                ((uint8_t *)values)[i * EACH + k] = value_of(spool->count + i, k);
        }
        rc = spool_commit(spool, n, err);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static void expect_records(struct spool *spool, size_t count)
{
    assert_int_equal(spool->count, count);
    for (size_t t = 0; t < 2 * count; t++) {
        size_t i = (size_t)rng_below(1, 2, t, count);
        uint8_t values[EACH];
        assert_int_equal(spool_read(spool, i, values), OK);
        assert_int_equal(spool_label(spool, i), 3 * i);
        for (size_t k = 0; k < EACH; k++)
            assert_int_equal(values[k], value_of(i, k));
    }
}

static void test_records_are_those_that_were_committed(void **state)
{
    struct place *place = *state;
    static const size_t counts[] = {1, 9, 10, 11, 40, 47, 200};
    static const size_t memory[] = {0, 1, BLOCK, 3 * BLOCK + 1, 100 * BLOCK};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        uint64_t hash = 0;
        for (size_t m = 0; m < sizeof memory / sizeof *memory; m++) {
            struct spool spool;
            struct err err = {0};
            open_spool(&spool, place, memory[m]);
            assert_int_equal(fill_spool(&spool, counts[c], &err), OK);
            assert_int_equal(spool_seal(&spool, &err), OK);
            expect_records(&spool, counts[c]);
            assert_true(m == 0 || spool.hash_value == hash); /* wherever they are */
            hash = spool.hash_value;
            size_t full = counts[c] / PER_BLOCK, most = memory[m] / BLOCK;
            assert_int_equal(spool.kept_count, full < most ? full : most);
            assert_int_equal(spool.has_file, full > most);
            assert_false(file_is_regular(place->path)); /* it has no name any more */
            spool_close(&spool);
        }
    }
}

static void test_without_a_disk_all_stays_in_memory(void **state)
{
    (void)state;
    struct spool spool;
    struct err err = {0};
    const struct spool_config config = {.record_bytes = EACH, .block_bytes = BLOCK};
    assert_int_equal(spool_open(&spool, &config, &err), OK);
    assert_int_equal(fill_spool(&spool, 95, &err), OK);
    assert_int_equal(spool_seal(&spool, &err), OK);
    expect_records(&spool, 95);
    assert_int_equal(spool.kept_count, 9);
    spool_close(&spool);
}

/* A record is larger than a block. */
static void test_large_records(void **state)
{
    (void)state;
    struct spool spool;
    struct err err = {0};
    void *values;
    uint32_t *labels;
    size_t room;
    assert_int_equal(spool_open(&spool, &(struct spool_config){.record_bytes = 5 << 20}, &err), OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(spool_acquire(&spool, &values, &labels, &room, &err), OK);
        assert_int_equal(room, 1);
        memset(values, i, 5 << 20);
        *labels = 0;
        assert_int_equal(spool_commit(&spool, 1, &err), OK);
    }
    assert_int_equal(spool_seal(&spool, &err), OK);
    uint8_t *back = malloc(5 << 20);
    assert_non_null(back);
    assert_int_equal(spool_read(&spool, 1, back), OK);
    assert_int_equal(back[0] + back[(5 << 20) - 1], 2);
    free(back);
    spool_close(&spool);
}

/* Each call of the disk fails once: the error names what failed, and no file stays behind but where
 * the name cannot be removed. */
static void test_a_disk_that_fails(void **state)
{
    struct place *place = *state;
    int failures = 0;
    for (int at = 1;; at++) {
        struct spool spool;
        struct err err = {0};
        open_spool(&spool, place, BLOCK);
        place->disk.fail_at = at;
        int rc = fill_spool(&spool, 50, &err);
        if (rc == OK)
            rc = spool_seal(&spool, &err);
        spool_close(&spool);
        remove(place->path);
        if (rc == OK)
            break;
        assert_int_equal(rc, ERR_IO);
        assert_non_null(strstr(err.text, "the disk: cannot"));
        failures++;
    }
    assert_int_equal(failures, 7); /* open, remove, four writes, close */
}

/* Before it is sealed the full blocks are readable, and with `flushes` all records. */
static void expect_readable(struct place *place, bool flushes)
{
    struct spool spool;
    struct err err = {0};
    bool more;
    open_spool(&spool, place, 2 * BLOCK);
    assert_true(spool_readable(&spool, &more) == 0 && more);
    for (size_t count = 1; count < 900 * PER_BLOCK; count += 1 + count / 3) {
        assert_int_equal(fill_spool(&spool, count, &err), OK);
        if (flushes)
            assert_int_equal(spool_flush(&spool, &err), OK);
        size_t readable = spool_readable(&spool, &more);
        assert_true(more && readable == (flushes ? count : count / PER_BLOCK * PER_BLOCK));
        for (size_t k = 0; readable > 0 && k < 50; k++) {
            size_t i = (size_t)rng_below(4, 2, k, readable);
            uint8_t values[EACH];
            assert_int_equal(spool_read(&spool, i, values), OK);
            assert_int_equal(spool_label(&spool, i), 3 * i);
            assert_true(values[0] == value_of(i, 0) && values[EACH - 1] == value_of(i, EACH - 1));
        }
    }
    size_t count = spool.count;
    assert_int_equal(spool_seal(&spool, &err), OK);
    assert_true(spool_readable(&spool, &more) == count && !more);
    expect_records(&spool, count);
    spool_close(&spool);
}

static void test_records_are_readable_before_the_end(void **state)
{
    expect_readable(*state, false);
    expect_readable(*state, true);
}

/* Parts are readable as wholes, and their records are in memory or in the file as others are. */
static void test_parts(void **state)
{
    struct place *place = *state;
    static const size_t ends[] = {7, 10, 11, 95, 200};
    enum { PARTS = sizeof ends / sizeof *ends };
    struct spool spool;
    struct spool_part part[PARTS];
    struct err err = {0};
    bool more;
    const struct spool_config config = {.record_bytes = EACH,
                                        .block_bytes = BLOCK,
                                        .memory = 2 * BLOCK,
                                        .disk = &place->disk.disk,
                                        .path = place->path,
                                        .in_parts = true};
    faulty_init(&place->disk);
    assert_int_equal(spool_open(&spool, &config, &err), OK);
    assert_int_equal(spool_cut(&spool, 1, &err), ERR_USAGE);
    for (size_t p = 0; p < PARTS; p++) {
        size_t before = p > 0 ? ends[p - 1] : 0;
        assert_int_equal(fill_spool(&spool, ends[p], &err), OK);
        assert_int_equal(spool_readable(&spool, &more), before);
        assert_int_equal(spool_cut(&spool, 70 + p, &err), OK);
        assert_int_equal(spool_readable(&spool, &more), ends[p]);
        expect_records(&spool, ends[p]);
        assert_int_equal(spool_parts(&spool, part, PARTS), p + 1);
        assert_true(part[p].end == ends[p] && part[p].hash == 70 + p);
    }
    assert_int_equal(spool.kept_count, 2);
    assert_int_equal(spool_cut(&spool, 1, &err), ERR_USAGE);
    for (size_t p = PARTS; p < SPOOL_PARTS_MAX; p++) {
        assert_int_equal(fill_spool(&spool, spool.count + 1, &err), OK);
        assert_int_equal(spool_cut(&spool, p, &err), OK);
    }
    assert_int_equal(fill_spool(&spool, spool.count + 1, &err), OK);
    assert_int_equal(spool_cut(&spool, 1, &err), ERR_FULL);
    spool_close(&spool);
}

/* ---- a file that is kept ---- */

enum { KEPT_SET = 77 };

/* Its records of part p have values and labels as if they were records from 1000 p on. */
static const size_t kept_part[] = {7, 35, 20, 1};

enum { KEPT = sizeof kept_part / sizeof *kept_part };

static int open_kept(struct spool *spool, struct place *place, size_t memory, uint32_t classes,
                     struct err *err)
{
    struct file_open file;
    faulty_init(&place->disk);
    remove(place->path);
    assert_int_equal(real_disk_own(place->path, &file, err), OK);
    const struct spool_config config = {.record_bytes = EACH,
                                        .block_bytes = BLOCK,
                                        .memory = memory,
                                        .disk = &place->disk.disk,
                                        .path = place->path,
                                        .in_parts = true,
                                        .keep = &file,
                                        .set = KEPT_SET,
                                        .classes = classes};
    return spool_open(spool, &config, err);
}

static int put_part(struct spool *spool, size_t number, size_t records, struct err *err)
{
    for (size_t done = 0; done < records;) {
        void *values;
        uint32_t *labels;
        size_t room;
        int rc = spool_acquire(spool, &values, &labels, &room, err);
        if (rc != OK)
            return rc;
        room = room < records - done ? room : records - done;
        for (size_t i = 0; i < room; i++) {
            labels[i] = (uint32_t)(1000 * number + done + i);
            for (size_t k = 0; k < EACH; k++)
                ((uint8_t *)values)[i * EACH + k] = value_of(1000 * number + done + i, k);
        }
        rc = spool_commit(spool, room, err);
        if (rc != OK)
            return rc;
        done += room;
    }
    return OK;
}

/* Record `i` of the spool is record `at` of part `number`. */
static void expect_record(struct spool *spool, size_t i, size_t number, size_t at)
{
    uint8_t values[EACH];
    assert_int_equal(spool_read(spool, i, values), OK);
    assert_int_equal(spool_label(spool, i), 1000 * number + at);
    for (size_t k = 0; k < EACH; k++)
        assert_int_equal(values[k], value_of(1000 * number + at, k));
}

/* A file as a process has left it: four parts, and records of a fifth. */
static void leave_file(struct place *place)
{
    struct spool spool;
    struct err err = {0};
    assert_int_equal(open_kept(&spool, place, 0, 0, &err), OK);
    for (size_t p = 0; p < KEPT; p++) {
        assert_int_equal(put_part(&spool, p, kept_part[p], &err), OK);
        assert_int_equal(spool_cut(&spool, 100 + p, &err), OK);
    }
    assert_int_equal(put_part(&spool, KEPT, 25, &err), OK);
    spool_close(&spool);
}

/* Adopt from the file `path` all parts. Returns how many came, which are as they were. */
static size_t adopt_all(struct place *place, const char *path, size_t memory, uint32_t classes,
                        int *status)
{
    struct spool spool;
    struct file_open file;
    struct err err = {0};
    struct spool_wanted wanted[KEPT];
    bool adopted[KEPT];
    size_t came = 0, record = 3;
    for (size_t p = 0; p < KEPT; p++)
        wanted[p] = (struct spool_wanted){100 + p, kept_part[p]};
    assert_int_equal(open_kept(&spool, place, memory, classes, &err), OK);
    assert_int_equal(put_part(&spool, 9, 3, &err), OK);
    assert_int_equal(spool_cut(&spool, 9, &err), OK);
    assert_int_equal(real_disk_inherit(path, &file, &err), OK);
    *status = spool_adopt(&spool, &file, wanted, KEPT, adopted, &err);
    for (size_t p = 0; p < KEPT; p++) {
        for (size_t i = 0; adopted[p] && i < kept_part[p]; i++)
            expect_record(&spool, record++, p, i);
        came += adopted[p];
    }
    assert_int_equal(put_part(&spool, 8, 15, &err), OK); /* others follow */
    assert_int_equal(spool_cut(&spool, 8, &err), OK);
    for (size_t i = 0; i < 15; i++)
        expect_record(&spool, record + i, 8, i);
    expect_record(&spool, 0, 9, 0);
    bool more;
    assert_int_equal(spool_readable(&spool, &more), record + 15);
    assert_in_range(spool.kept_count, 0, memory / BLOCK);
    assert_true(memory < 9 * BLOCK || came < KEPT || spool.kept_count >= 9);
    spool_close(&spool);
    return came;
}

static void test_parts_outlive_their_spool(void **state)
{
    struct place *place = *state;
    static const size_t memory[] = {0, 3 * BLOCK, 100 * BLOCK};
    char left[560];
    int status;
    snprintf(left, sizeof left, "%s-left", place->path);
    leave_file(place);
    assert_int_equal(rename(place->path, left), 0);
    for (size_t m = 0; m < sizeof memory / sizeof *memory; m++) {
        assert_int_equal(adopt_all(place, left, memory[m], 0, &status), KEPT);
        assert_int_equal(status, OK);
    }
    assert_int_equal(adopt_all(place, left, 0, 3020, &status), KEPT);
    assert_int_equal(adopt_all(place, left, 0, 2005, &status), 2); /* labels from 2000 on */
    assert_int_equal(status, ERR_INPUT);
    remove(left);
}

static void test_only_wanted_parts_are_adopted(void **state)
{
    struct place *place = *state;
    char left[560];
    struct spool spool;
    struct file_open file;
    struct err err = {0};
    const struct spool_wanted wanted[] = {{102, 20}, {101, 36}, {555, 1}};
    bool adopted[3];
    snprintf(left, sizeof left, "%s-left", place->path);
    leave_file(place);
    assert_int_equal(rename(place->path, left), 0);
    assert_int_equal(open_kept(&spool, place, 0, 0, &err), OK);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(real_disk_inherit(left, &file, &err), OK);
        assert_int_equal(spool_adopt(&spool, &file, wanted, 3, adopted, &err), OK);
        assert_int_equal(adopted[0], again == 0); /* once */
        assert_false(adopted[1] || adopted[2]);
        assert_int_equal(spool.adopted_count, 1);
        if (again == 0)
            assert_int_equal(real_disk_inherit(left, &file, &err), ERR_USAGE); /* in use */
        if (again == 0)
            file_close(&spool.adopted[0]);
    }
    spool.adopted[0].fd = -1;
    assert_int_equal(put_part(&spool, 1, 1, &err), OK);
    assert_int_equal(real_disk_inherit(left, &file, &err), OK);
    assert_int_equal(spool_adopt(&spool, &file, wanted, 3, adopted, &err), ERR_USAGE);
    spool_close(&spool);
    remove(left);
}

/* Each byte in turn is another one, and the file ends at each byte: what is adopted is what was
 * written. */
static void test_damaged_parts_are_refused(void **state)
{
    struct place *place = *state;
    struct file_bytes bytes;
    char left[560];
    struct err err = {0};
    size_t refused = 0, whole = 0;
    int status;
    snprintf(left, sizeof left, "%s-left", place->path);
    leave_file(place);
    assert_int_equal(file_read(place->path, 1 << 20, &bytes, &err), OK);
    for (size_t i = 0; i < 2 * bytes.len; i++) {
        bool cut = i >= bytes.len;
        size_t at = i % bytes.len;
        struct file_open file;
        struct disk_file *out;
        const struct disk_ops *ops = real_disk()->ops;
        remove(left);
        assert_int_equal(real_disk_own(left, &file, &err), OK);
        assert_int_equal(ops->open(real_disk(), left, true, &out, &err), OK);
        bytes.data[at] ^= (uint8_t)(cut ? 0 : 1 << i % 8);
        assert_int_equal(ops->write(out, bytes.data, cut ? at : bytes.len, &err), OK);
        bytes.data[at] ^= (uint8_t)(cut ? 0 : 1 << i % 8);
        assert_int_equal(ops->close(out, &err), OK);
        file_close(&file);
        size_t came = adopt_all(place, left, 0, 0, &status);
        assert_true(cut ? status == OK : status == ERR_INPUT || came == KEPT);
        refused += came < KEPT;
        whole += came == KEPT;
    }
    assert_true(refused > bytes.len && whole > 0);
    file_release(&bytes);
    remove(left);
    leave_file(place);
    assert_int_equal(rename(place->path, left), 0);
    struct spool spool;
    struct file_open file;
    bool adopted;
    assert_int_equal(open_kept(&spool, place, 0, 0, &err), OK);
    spool.config.set++;
    assert_int_equal(real_disk_inherit(left, &file, &err), OK);
    assert_int_equal(spool_adopt(&spool, &file, &(struct spool_wanted){100, 7}, 1, &adopted, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.text, "another set"));
    spool_close(&spool);
    remove(left);
}

/* The file cannot be written from some call on: records that follow are in memory, as far as there
 * is room. */
static void test_a_kept_file_that_is_full(void **state)
{
    struct place *place = *state;
    char left[560];
    int status;
    snprintf(left, sizeof left, "%s-left", place->path);
    for (int at = 2; at < 30; at++) {
        struct spool spool;
        struct err err = {0};
        assert_int_equal(open_kept(&spool, place, at % 2 ? 100 * BLOCK : 0, 0, &err), OK);
        place->disk.fail_at = at;
        int rc = OK;
        for (size_t p = 0; rc == OK && p < KEPT; p++) {
            rc = put_part(&spool, p, kept_part[p], &err);
            if (rc == OK)
                rc = spool_cut(&spool, 100 + p, &err);
        }
        assert_int_equal(rc, OK);
        assert_int_equal(spool.logs, false);
        assert_non_null(strstr(spool.log_failed.text, "the disk: cannot write"));
        for (size_t p = 0, record = 0; p < KEPT; p++)
            for (size_t i = 0; i < kept_part[p]; i++)
                expect_record(&spool, record++, p, i);
        spool_close(&spool);
        assert_int_equal(rename(place->path, left), 0);
        assert_true(adopt_all(place, left, 0, 0, &status) < KEPT);
        assert_true(status == OK || status == ERR_INPUT);
    }
    remove(left);
}

/* Records and labels both are the identity. */
static void test_labels_are_part_of_the_hash(void **state)
{
    (void)state;
    uint64_t hash[3];
    for (uint32_t k = 0; k < 3; k++) {
        struct spool spool;
        struct err err = {0};
        void *values;
        uint32_t *labels;
        size_t room;
        assert_int_equal(spool_open(&spool, &(struct spool_config){.record_bytes = EACH}, &err),
                         OK);
        assert_int_equal(spool_acquire(&spool, &values, &labels, &room, &err), OK);
        memset(values, k == 2, EACH);
        labels[0] = k == 1;
        assert_int_equal(spool_commit(&spool, 1, &err), OK);
        assert_int_equal(spool_seal(&spool, &err), OK);
        hash[k] = spool.hash_value;
        spool_close(&spool);
    }
    assert_true(hash[0] != hash[1] && hash[1] != hash[2] && hash[2] != hash[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_are_those_that_were_committed),
        cmocka_unit_test(test_without_a_disk_all_stays_in_memory),
        cmocka_unit_test(test_large_records),
        cmocka_unit_test(test_a_disk_that_fails),
        cmocka_unit_test(test_records_are_readable_before_the_end),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_outlive_their_spool),
        cmocka_unit_test(test_only_wanted_parts_are_adopted),
        cmocka_unit_test(test_damaged_parts_are_refused),
        cmocka_unit_test(test_a_kept_file_that_is_full),
        cmocka_unit_test(test_labels_are_part_of_the_hash),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

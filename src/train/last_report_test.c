/* The files that workers leave when no driver returns, and the sums over their reports. */
#include "train/last_report.h"

#include "folder.h"
#include "real/disk.h"

static char logged[512];

static void on_log(void *user, enum log_level level, const char *line)
{
    (void)user, (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

static const struct logger log_here = {.write = on_log, .level = LOG_DEBUG};

struct scene {
    struct folder folder;
    struct rundir dir;
    struct last_reports reports;
};

static void begin_scene(struct scene *s)
{
    struct err err;
    *s = (struct scene){.dir.disk = real_disk()};
    folder_make(&s->folder);
    assert_int_equal(rundir_set_path(&s->dir, s->folder.path, &err), OK);
    logged[0] = '\0';
}

static void end_scene(struct scene *s)
{
    last_reports_release(&s->reports);
    folder_remove(&s->folder);
}

static struct last_report report_of(uint32_t incarnation, uint32_t node, uint32_t view,
                                    uint32_t last_member)
{
    struct last_report report = {.incarnation = incarnation,
                                 .node = node,
                                 .view = view,
                                 .step_samples = 48,
                                 .has_model = true,
                                 .version = 7};
    for (uint32_t k = 0; k <= last_member; k++)
        members_add(&report.members, k);
    for (uint32_t i = 0; i < GROUP_REPORT; i++)
        report.report[i] = (uint64_t)node << 40 | i;
    return report;
}

static void leave_report(struct scene *s, const struct last_report *report)
{
    struct err err;
    assert_int_equal(last_report_write(&s->dir, report, &err), OK);
}

static void read_reports(struct scene *s)
{
    struct err err;
    last_reports_release(&s->reports);
    assert_int_equal(last_reports_read(&s->dir, &log_here, &s->reports, &err), OK);
}

static void test_reports_are_read_as_written(void **state)
{
    struct scene s;
    (void)state;
    begin_scene(&s);
    read_reports(&s);
    assert_int_equal(s.reports.count, 0); /* there is no folder */
    for (uint32_t node = 3; node-- > 0;) {
        struct last_report report = report_of(2, node, 5, 3);
        leave_report(&s, &report);
    }
    read_reports(&s);
    assert_int_equal(s.reports.count, 3);
    assert_int_equal(s.reports.incarnation, 2);
    assert_int_equal(s.reports.view, 5);
    assert_int_equal(members_count(&s.reports.members), 4);
    assert_int_equal(members_count(&s.reports.here), 3);
    for (uint32_t node = 0; node < 3; node++) {
        const struct last_report expected = report_of(2, node, 5, 3), *got = &s.reports.at[node];
        assert_int_equal(got->node, node);
        assert_int_equal(got->step_samples, 48);
        assert_true(got->has_model && got->version == 7);
        assert_memory_equal(got->report, expected.report, sizeof got->report);
    }
    assert_string_equal(logged, "");
    end_scene(&s);
}

/* Whatever is lost of a file, it is named and passed over. */
static void test_a_torn_report_is_passed_over(void **state)
{
    struct scene s;
    char path[128];
    struct stat file;
    (void)state;
    begin_scene(&s);
    const struct last_report whole = report_of(1, 0, 3, 1), torn = report_of(1, 1, 3, 1);
    leave_report(&s, &whole);
    leave_report(&s, &torn);
    snprintf(path, sizeof path, "%s/recovery/1-1", s.folder.path);
    assert_int_equal(stat(path, &file), 0);
    for (off_t left = file.st_size - 1; left >= 0; left -= 7) {
        assert_int_equal(truncate(path, left), 0);
        logged[0] = '\0';
        read_reports(&s);
        assert_int_equal(s.reports.count, 1);
        assert_int_equal(s.reports.at[0].node, 0);
        assert_non_null(strstr(logged, "recovery/1-1"));
    }
    leave_report(&s, &torn);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, 200, SEEK_SET), 0);
    assert_int_equal(fputc(0x55, f), 0x55);
    fclose(f);
    logged[0] = '\0';
    read_reports(&s);
    assert_int_equal(s.reports.count, 1);
    assert_non_null(strstr(logged, "is no whole report"));
    end_scene(&s);
}

/* Only the newest driver's count, and of these only those that its newest view had. */
static void test_older_reports_do_not_count(void **state)
{
    struct scene s;
    (void)state;
    begin_scene(&s);
    const struct last_report earlier = report_of(1, 0, 9, 4), given_up = report_of(2, 4, 10, 4),
                             newest = report_of(2, 1, 12, 3), late = report_of(2, 2, 11, 4);
    leave_report(&s, &earlier);
    leave_report(&s, &given_up);
    leave_report(&s, &newest);
    leave_report(&s, &late);
    read_reports(&s);
    assert_int_equal(s.reports.incarnation, 2);
    assert_int_equal(s.reports.count, 2);
    assert_int_equal(s.reports.at[0].node, 1);
    assert_int_equal(s.reports.at[1].node, 2);
    last_reports_remove(&s.dir, 2);
    read_reports(&s);
    assert_int_equal(s.reports.count, 2);
    last_reports_remove(&s.dir, 3);
    read_reports(&s);
    assert_int_equal(s.reports.count, 0);
    end_scene(&s);
}

static void test_one_model_is_the_newest(void **state)
{
    struct scene s;
    (void)state;
    begin_scene(&s);
    struct last_report own = report_of(1, 1, 3, 2), other = report_of(1, 2, 3, 2);
    leave_report(&s, &own);
    leave_report(&s, &other);
    read_reports(&s);
    assert_null(last_reports_later(&s.reports, &own)); /* as new: the first one's */
    assert_non_null(last_reports_later(&s.reports, &other));
    other.version = 8;
    leave_report(&s, &other);
    read_reports(&s);
    assert_non_null(last_reports_later(&s.reports, &own));
    other.has_model = false;
    leave_report(&s, &other);
    read_reports(&s);
    assert_null(last_reports_later(&s.reports, &own));
    end_scene(&s);
}

/* By hand: two workers of three, and what earlier ones had done. */
static void test_sums_of_reports(void **state)
{
    static struct recovery_report reports[3];
    struct members nodes = {{0}};
    (void)state;
    reports[0] = (struct recovery_report){
        .samples = 100, .exchanges = 4, .lease.repeated = 10, .departed_totals = {30, 2, 5, 6}};
    reports[2] = (struct recovery_report){
        .samples = 200, .exchanges = 3, .lease.repeated = 20, .departed_totals = {20, 1, 5, 9}};
    members_add(&nodes, 0);
    members_add(&nodes, 2);
    struct progress least = {.sample_offset = 250, .samples_used = 240, .exchanges = 8};
    struct recovery_sum sum = recovery_sum(reports, &nodes, &least);
    assert_int_equal(sum.samples, 330);
    assert_int_equal(sum.exchanges, 9);
    assert_int_equal(sum.untaken, 30);
    assert_int_equal(sum.repeated_leases, 35);
    assert_int_equal(sum.repeated, 39);
    least = (struct progress){.sample_offset = 500, .samples_used = 440, .exchanges = 12};
    sum = recovery_sum(reports, &nodes, &least);
    assert_int_equal(sum.samples, 500);
    assert_int_equal(sum.exchanges, 12);
    assert_int_equal(sum.untaken, 200);
    assert_int_equal(sum.repeated_leases, 60); /* as the checkpoint had counted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_are_read_as_written),
        cmocka_unit_test(test_a_torn_report_is_passed_over),
        cmocka_unit_test(test_older_reports_do_not_count),
        cmocka_unit_test(test_one_model_is_the_newest),
        cmocka_unit_test(test_sums_of_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Members that have a net in slices read a part of the records each: every member has a table of
 * its own, in which the parts of others are wrong. */
#include "folder.h"
#include "paceline/predict.h"
#include "team_play.h"

#include <math.h>
#include <stdlib.h>

enum { RECORDS = 5, MEMBERS = 3, BATCH = 2 };

static const float value[RECORDS] = {0.5f, -1, 2, 0.25f, -3};
static const unsigned label[RECORDS] = {0, 2, 1, 1, 0};

static const char layers[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
    "  inner_product_param { num_output: 3 } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

/* Batches are of records 0 and 1, 2 and 3, and 4; of two records the first member has none, by
 * range_cut, and of one the last alone has it. */
static bool reads_record(uint32_t rank, unsigned i)
{
    unsigned n = i < 4 ? 2 : 1, at = i < 4 ? i % 2 : 0;
    return at >= n * rank / MEMBERS && at < n * (rank + 1) / MEMBERS;
}

static void put_table(const struct folder *f, uint32_t rank)
{
    char name[16], text[256];
    int n = snprintf(text, sizeof text, "x,k\n");
    for (unsigned i = 0; i < RECORDS; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%g,%u\n",
                      reads_record(rank, i) ? (double)value[i] : 1000.0, label[i]);
    snprintf(name, sizeof name, "%u.csv", rank);
    folder_put(f, name, text, (size_t)n);
}

/* Scores 0, x and 2 x: the mean of log(1 + e^x + e^2x) - k x. */
static double expected_loss(void)
{
    double sum = 0;
    for (unsigned i = 0; i < RECORDS; i++) {
        double x = (double)value[i];
        sum += log(1 + exp(x) + exp(2 * x)) - label[i] * x;
    }
    return sum / RECORDS;
}

static int make_net(struct team_member *m, const char *path, pl_net **net)
{
    const pl_net_options options = {.size = sizeof options,
                                    .batch = BATCH,
                                    .threads = 1,
                                    .kernels = "ref",
                                    .inference = true,
                                    .team = m->team};
    pl_net_spec *spec;
    pl_weights weights;
    CHECK(pl_net_spec_load(m->engine, path, &spec) == PL_OK);
    CHECK(pl_net_create(m->engine, spec, &options, net) == PL_OK);
    pl_net_spec_free(spec);
    CHECK(pl_net_form(*net, 1, 1, 1) == PL_OK);
    CHECK(pl_net_weights(*net, "ip", 0, &weights) == PL_OK && weights.count == 1);
    weights.at[0] = (float)m->rank;
    return 0;
}

static int read_records(struct team_member *m)
{
    const struct folder *f = m->arg;
    char path[256], name[16], table[300];
    float x[RECORDS];
    pl_test_result result;
    pl_data *data;
    pl_net *net;
    int line = make_net(m, folder_file(f, "net.prototxt", path), &net);
    if (line)
        return line;
    snprintf(name, sizeof name, "%u.csv", m->rank);
    snprintf(table, sizeof table, "csv:%s,k", folder_file(f, name, path));
    CHECK(pl_data_open(m->engine, table, false, &data) == PL_OK);
    for (size_t i = 0; i < RECORDS; i += BATCH)
        CHECK(pl_net_read(net, data, i, i < 4 ? 2 : 1, x + i, RECORDS - i) == PL_OK);
    CHECK(memcmp(x, value, sizeof x) == 0);
    CHECK(pl_net_read(net, data, 0, 2, x, 1) == PL_ERR_USAGE);
    CHECK(pl_net_read(net, data, RECORDS - 1, 2, x, RECORDS) == PL_ERR_USAGE);
    pl_data_close(data);
    CHECK(pl_net_set_validation_data(net, table, 0, 1) == PL_OK);
    CHECK(pl_net_test(net, 0, &result) == PL_OK);
    CHECK(result.count == RECORDS && fabs(result.loss - expected_loss()) < 1e-6);
    pl_net_free(net);
    return 0;
}

static void test_members_read_a_part_of_the_records_each(void **state)
{
    struct folder f;
    (void)state;
    folder_make(&f);
    folder_put(&f, "net.prototxt", layers, strlen(layers));
    for (uint32_t rank = 0; rank < MEMBERS; rank++)
        put_table(&f, rank);
    team_play(MEMBERS, read_records, &f);
    folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_read_a_part_of_the_records_each)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A solver of Caffe's in text, with its net within or in a second file, as a job. */
#include "support/fuzz.h"

#include "job/job.h"
#include "job/job_solver.h"
#include "job/text.h"
#include "model/caffe_upgrade.h"
#include "model/load.h"

#include <string.h>

#define NAME "in.prototxt"

/* The contents of a net's file. */
static const char sibling[] =
    "layer { name: 'd' type: 'Data' top: 'data' top: 'label' include { phase: TRAIN } "
    "  transform_param { scale: 0.5 mirror: true crop_size: 5 mean_value: 7 } "
    "  data_param { source: 'train_lmdb' batch_size: 20 backend: LMDB } } "
    "layer { name: 'd' type: 'ImageData' top: 'data' top: 'label' include { phase: TEST } "
    "  image_data_param { source: 'list.txt' batch_size: 11 new_height: 8 new_width: 8 } } "
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' "
    "  inner_product_param { num_output: 3 } } "
    "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'l' }";

static int net_of(const struct job_solver_net *where, Caffe__NetParameter **out, struct err *err)
{
    if (where->given) {
        int rc = model_copy_net(where->given, out, err);
        return rc == OK ? caffe_upgrade(*out, err) : rc;
    }
    ProtobufCMessage *msg;
    PL_ASSERT(text_parse(&caffe__net_parameter__descriptor, "sibling", sibling, strlen(sibling),
                         &msg, err) == OK);
    *out = (Caffe__NetParameter *)msg;
    return OK;
}

static void finish_job(Paceline__Job *job)
{
    struct err err = {0};
    int rc = job_finish(job, &err);
    fuzz_judge(rc, &err, NULL);
    if (rc == OK)
        fuzz_text(&job->base);
    job_free(job);
}

static void convert_solver(const Caffe__SolverParameter *solver)
{
    struct job_solver_net where_train, where_test;
    struct job_solver_wants wants;
    Caffe__NetParameter *train = NULL, *test = NULL;
    Paceline__Job *job = NULL;
    struct err err = {0};
    int rc = job_solver_nets(solver, &where_train, &where_test, &err);
    fuzz_judge(rc, &err, NULL);
    if (rc != OK)
        return;
    rc = net_of(&where_train, &train, &err);
    if (rc == OK && (where_test.given || where_test.file))
        rc = net_of(&where_test, &test, &err);
    if (rc == OK)
        rc = job_from_solver(solver, train, test, "fuzz", NULL, &job, &wants, &err);
    fuzz_judge(rc, &err, NULL);
    if (train)
        caffe__net_parameter__free_unpacked(train, NULL);
    if (test)
        caffe__net_parameter__free_unpacked(test, NULL);
    if (rc == OK)
        finish_job(job);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    Caffe__SolverParameter *solver = NULL;
    struct err err = {0};
    (void)job_is_solver((const char *)bytes, n);
    int rc = job_solver_parse(NAME, (const char *)bytes, n, &solver, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc != OK)
        return 0;
    convert_solver(solver);
    caffe__solver_parameter__free_unpacked(solver, NULL);
    return 0;
}

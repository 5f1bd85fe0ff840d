/* Runs and workers: pl_run and pl_work on a thread of Java's, which blocks until they end. */
#include "jni/native.h"
#include "paceline/run.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_BYTES = 1 << 20 };

struct task {
    struct object object;
    bool works; /* it is a worker; else it drives a run */
    bool begun; /* taskMain was called */
    struct texts texts;
    pl_job *job;
    pl_run_options run;
    pl_work_options work;
    pl_flag flag[paceline_spark_Native_PAUSE + 1]; /* by the numbers that taskSignal has */
    struct lines lines;
};

static const struct option run_options[] = {
    {"out", OPTION_TEXT, offsetof(pl_run_options, out)},
    {"resume", OPTION_FLAG, offsetof(pl_run_options, resume)},
    {"force_change", OPTION_FLAG, offsetof(pl_run_options, force_change)},
    {"take_over", OPTION_FLAG, offsetof(pl_run_options, take_over)},
    {"dry_run", OPTION_FLAG, offsetof(pl_run_options, dry_run)},
    {"trace", OPTION_TEXT, offsetof(pl_run_options, trace)},
    {"patience", OPTION_DOUBLE, offsetof(pl_run_options, patience_s)},
    {"listen", OPTION_TEXT, offsetof(pl_run_options, listen)},
    {"port", OPTION_PORT, offsetof(pl_run_options, port)},
    {"insecure", OPTION_FLAG, offsetof(pl_run_options, insecure)},
    {"key", OPTION_TEXT, offsetof(pl_run_options, key)},
    {"max_mbit", OPTION_DOUBLE, offsetof(pl_run_options, max_mbit)},
    {0},
};

static const struct option work_options[] = {
    {"listen", OPTION_TEXT, offsetof(pl_work_options, listen)},
    {"advertise", OPTION_TEXT, offsetof(pl_work_options, advertise)},
    {"insecure", OPTION_FLAG, offsetof(pl_work_options, insecure)},
    {"key", OPTION_TEXT, offsetof(pl_work_options, key)},
    {"data_root", OPTION_TEXT, offsetof(pl_work_options, data_root)},
    {"data_urls", OPTION_TEXT, offsetof(pl_work_options, data_urls)},
    {"max_mbit", OPTION_DOUBLE, offsetof(pl_work_options, max_mbit)},
    {"threads", OPTION_INT, offsetof(pl_work_options, threads)},
    {"retry", OPTION_DOUBLE, offsetof(pl_work_options, retry_s)},
    {"nice", OPTION_INT, offsetof(pl_work_options, nice)},
    {"cache", OPTION_TEXT, offsetof(pl_work_options, cache_directory)},
    {"one_machine", OPTION_FLAG, offsetof(pl_work_options, one_machine)},
    {"run_directory", OPTION_TEXT, offsetof(pl_work_options, run_directory)},
    {0},
};

/* ---- lines for Java ---- */

static cJSON *begin_line(const char *kind)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "kind", kind);
    return line;
}

/* Of a line for which there is no memory nothing is kept. */
static void end_line(struct lines *lines, cJSON *line, bool newest)
{
    char *text = line ? cJSON_PrintUnformatted(line) : NULL;
    if (text && newest)
        lines_put_newest(lines, text);
    else if (text)
        lines_put(lines, text);
    cJSON_free(text);
    cJSON_Delete(line);
}

static void put_text(void *user, const char *kind, const char *key, const char *value)
{
    struct task *task = user;
    cJSON *line = begin_line(kind);
    cJSON_AddStringToObject(line, key, value);
    end_line(&task->lines, line, false);
}

static void on_begin(void *user, const char *directory)
{
    put_text(user, "directory", "path", directory);
}

static void on_listen(void *user, const char *address)
{
    put_text(user, "listens", "address", address);
}

static void on_event(void *user, const char *line)
{
    struct task *task = user;
    lines_put(&task->lines, line);
}

static void on_progress(void *user, const pl_progress *p)
{
    struct task *task = user;
    cJSON *line = begin_line("progress");
    cJSON_AddNumberToObject(line, "t", p->t);
    cJSON_AddNumberToObject(line, "epoch", p->epoch);
    cJSON_AddNumberToObject(line, "epochs", p->epochs);
    cJSON_AddNumberToObject(line, "steps", (double)p->steps);
    cJSON_AddNumberToObject(line, "workers", p->workers);
    cJSON_AddNumberToObject(line, "loss", p->loss);
    cJSON_AddNumberToObject(line, "error", p->error);
    cJSON_AddNumberToObject(line, "samples_per_s", p->samples_per_s);
    cJSON_AddNumberToObject(line, "eta_s", p->eta_s);
    end_line(&task->lines, line, true);
}

static void on_stopping(void *user, const pl_stopping *s)
{
    struct task *task = user;
    static const char *const stage[] = {
        [PL_STOPPING_SOON] = "soon", [PL_STOPPING_NOW] = "now", [PL_STOPPING_DONE] = "done"};
    cJSON *line = begin_line("stopping");
    cJSON_AddStringToObject(line, "stage", stage[s->stage]);
    cJSON_AddNumberToObject(line, "commit_s", s->commit_s);
    end_line(&task->lines, line, false);
}

static void on_work(void *user, const pl_work_progress *p)
{
    struct task *task = user;
    static const char *const stage[] = {[PL_WORK_JOINED] = "joined",
                                        [PL_WORK_TRAINING] = "training",
                                        [PL_WORK_LEFT] = "left",
                                        [PL_WORK_OVER] = "over"};
    cJSON *line = begin_line("work");
    cJSON_AddStringToObject(line, "stage", stage[p->stage]);
    cJSON_AddStringToObject(line, "run", p->run);
    cJSON_AddNumberToObject(line, "worker", p->worker);
    cJSON_AddNumberToObject(line, "workers", p->workers);
    cJSON_AddNumberToObject(line, "steps", (double)p->steps);
    cJSON_AddNumberToObject(line, "loss", p->loss);
    cJSON_AddNumberToObject(line, "samples_per_s", p->samples_per_s);
    if (p->stage == PL_WORK_OVER)
        cJSON_AddStringToObject(line, "reason", p->reason);
    end_line(&task->lines, line, p->stage == PL_WORK_TRAINING);
}

static void put_report(struct task *task, const pl_run_report *r)
{
    cJSON *line = begin_line("report");
    cJSON_AddStringToObject(line, "reason", r->reason);
    cJSON_AddStringToObject(line, "directory", r->directory);
    cJSON_AddStringToObject(line, "model", r->model);
    if (r->has_validation)
        cJSON_AddNumberToObject(line, "validation_error", r->validation_error);
    if (r->has_validation)
        cJSON_AddNumberToObject(line, "validation_loss", r->validation_loss);
    if (r->has_test)
        cJSON_AddNumberToObject(line, "test_error", r->test_error);
    if (r->has_test)
        cJSON_AddNumberToObject(line, "test_loss", r->test_loss);
    if (r->has_train)
        cJSON_AddNumberToObject(line, "train_loss", r->train_loss);
    cJSON_AddNumberToObject(line, "epochs", r->epochs);
    cJSON_AddNumberToObject(line, "samples", (double)r->samples);
    cJSON_AddNumberToObject(line, "used", (double)r->used);
    cJSON_AddNumberToObject(line, "repeated", (double)r->repeated);
    cJSON_AddNumberToObject(line, "missed", (double)r->missed);
    cJSON_AddNumberToObject(line, "bad_records", (double)r->bad_records);
    cJSON_AddNumberToObject(line, "workers", r->workers);
    cJSON_AddNumberToObject(line, "wall_s", r->wall_s);
    end_line(&task->lines, line, false);
}

/* Spark starts a worker in the place of one that ends. Those of an earlier driver ended with it:
 * pl_run does not wait for them where the host counts lost workers. */
static uint32_t count_lost(void *user)
{
    (void)user;
    return 0;
}

/* ---- opening ---- */

static void end_task(struct object *object)
{
    struct task *task = (struct task *)object;
    pl_job_free(task->job);
    texts_release(&task->texts);
    lines_release(&task->lines);
}

static struct task *make_task(bool works)
{
    struct task *task = calloc(1, sizeof *task);
    if (!task || !lines_init(&task->lines, EVENT_BYTES)) {
        free(task);
        fail(PL_ERR_NOMEM, "out of memory for a task");
        return NULL;
    }
    task->works = works;
    task->run = (pl_run_options){.size = sizeof(pl_run_options),
                                 .begins = on_begin,
                                 .event = on_event,
                                 .progress = on_progress,
                                 .stopping = on_stopping,
                                 .listens = on_listen,
                                 .workers_lost = count_lost,
                                 .stop = &task->flag[paceline_spark_Native_STOP],
                                 .workers = &task->flag[paceline_spark_Native_WORKERS],
                                 .follows_batch = true,
                                 .user = task};
    task->work = (pl_work_options){.size = sizeof(pl_work_options),
                                   .progress = on_work,
                                   .leave = &task->flag[paceline_spark_Native_LEAVE],
                                   .pause = &task->flag[paceline_spark_Native_PAUSE],
                                   .user = task};
    return task;
}

/* The task as an object of the engine, whose use ends. A task that could not be opened is freed. */
static jlong admit_task(struct task *task, struct engine *engine, int rc)
{
    jlong handle =
        rc == PL_OK ? object_add(&task->object, OBJECT_TASK, &engine->object, end_task) : (jlong)rc;
    if (handle < 0 && task)
        end_task(&task->object);
    if (handle < 0)
        free(task);
    object_release(engine, USE_ALONE, false);
    return handle;
}

static int take_run_option(void *user, char *text)
{
    return option_store(run_options, text, &((struct task *)user)->run);
}

static int take_work_option(void *user, char *text)
{
    return option_store(work_options, text, &((struct task *)user)->work);
}

struct overriding {
    const struct engine *engine;
    pl_job *job;
};

static int override_job(void *user, char *text)
{
    const struct overriding *o = user;
    return fail_by_engine(o->engine, pl_job_override(o->job, text));
}

static int open_job(JNIEnv *env, struct task *task, const struct engine *engine, jstring path,
                    jobjectArray overrides)
{
    const char *file;
    int rc = texts_take(&task->texts, env, path, &file);
    if (rc != PL_OK)
        return rc;
    if (file)
        rc = pl_job_load(engine->engine, file, &task->job);
    else if (task->run.resume && task->run.out)
        rc = pl_job_load_directory(engine->engine, task->run.out, &task->job);
    else
        rc = pl_job_create(engine->engine, &task->job);
    if (rc != PL_OK)
        return fail_by_engine(engine, rc);
    struct overriding o = {engine, task->job};
    return texts_take_all(&task->texts, env, overrides, override_job, &o);
}

jlong NATIVE(runOpen)(JNIEnv *env, jclass class, jlong handle, jstring job, jobjectArray overrides,
                      jobjectArray options)
{
    (void)class;
    struct engine *engine = object_use(handle, OBJECT_ENGINE, USE_ALONE);
    if (!engine)
        return PL_ERR_USAGE;
    struct task *task = make_task(false);
    int rc =
        task ? texts_take_all(&task->texts, env, options, take_run_option, task) : PL_ERR_NOMEM;
    if (rc == PL_OK)
        rc = open_job(env, task, engine, job, overrides);
    return admit_task(task, engine, rc);
}

jlong NATIVE(workOpen)(JNIEnv *env, jclass class, jlong handle, jstring driver,
                       jobjectArray options)
{
    (void)class;
    struct engine *engine = object_use(handle, OBJECT_ENGINE, USE_ALONE);
    if (!engine)
        return PL_ERR_USAGE;
    struct task *task = make_task(true);
    int rc = task ? texts_take(&task->texts, env, driver, &task->work.driver) : PL_ERR_NOMEM;
    if (rc == PL_OK)
        rc = texts_take_all(&task->texts, env, options, take_work_option, task);
    return admit_task(task, engine, rc);
}

/* ---- running ---- */

/* Threads that OpenMP starts here have this thread's mask. Those that Paceline starts block all
 * signals by themselves. The others are the JVM's, which sends some to single threads of Java. */
static void block_signals(sigset_t *before)
{
    static const int processes[] = {SIGHUP,  SIGINT,  SIGTERM, SIGPWR,
                                    SIGPIPE, SIGCHLD, SIGALRM, SIGUSR1};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof processes / sizeof *processes; i++)
        sigaddset(&set, processes[i]);
    pthread_sigmask(SIG_BLOCK, &set, before);
}

static const struct engine *engine_of(const struct task *task)
{
    return (const struct engine *)task->object.parent;
}

static int run_task(struct task *task)
{
    const struct engine *engine = engine_of(task);
    sigset_t before;
    pl_run_report report;
    block_signals(&before);
    int rc = task->works ? pl_work(engine->engine, &task->work)
                         : pl_run(engine->engine, task->job, &task->run, &report);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == PL_OK && !task->works)
        put_report(task, &report);
    return fail_by_engine(engine, rc);
}

static int job_text(const struct task *task, char **out)
{
    if (!task->job)
        return fail(PL_ERR_USAGE, "task: a worker has no job of its own");
    return fail_by_engine(engine_of(task), pl_job_text(task->job, out));
}

jbyteArray NATIVE(taskJob)(JNIEnv *env, jclass class, jlong handle)
{
    (void)class;
    char *text = NULL;
    struct task *task = object_use(handle, OBJECT_TASK, USE_ALONE);
    if (!task)
        return NULL;
    jbyteArray bytes = job_text(task, &text) == PL_OK ? text_bytes(env, text) : NULL;
    free(text);
    object_release(task, USE_ALONE, false);
    return bytes;
}

jint NATIVE(taskMain)(JNIEnv *env, jclass class, jlong handle)
{
    (void)env, (void)class;
    struct task *task = object_use(handle, OBJECT_TASK, USE_ALONE);
    if (!task)
        return PL_ERR_USAGE;
    bool again = task->begun;
    task->begun = true;
    int rc = again ? fail(PL_ERR_USAGE, "task: it has ended, and runs once") : run_task(task);
    object_release(task, USE_ALONE, false);
    return rc;
}

jint NATIVE(taskSignal)(JNIEnv *env, jclass class, jlong handle, jint what, jint value)
{
    (void)env, (void)class;
    struct task *task = object_use(handle, OBJECT_TASK, USE_SHARED);
    if (!task)
        return PL_ERR_USAGE;
    bool of_worker = what == paceline_spark_Native_LEAVE || what == paceline_spark_Native_PAUSE;
    bool known = what >= 0 && what <= paceline_spark_Native_PAUSE && of_worker == task->works;
    if (known)
        pl_flag_set(&task->flag[what], value);
    object_release(task, USE_SHARED, false);
    return known ? PL_OK
                 : fail(PL_ERR_USAGE, "task: signal %d is none of a %s", (int)what,
                        task->works ? "worker" : "run");
}

static void stop_task(struct object *object)
{
    struct task *task = (struct task *)object;
    pl_flag_set(&task->flag[paceline_spark_Native_STOP], 2);
    pl_flag_set(&task->flag[paceline_spark_Native_LEAVE], 2);
}

jint NATIVE(endCalls)(JNIEnv *env, jclass class)
{
    (void)env, (void)class;
    return (jint)objects_end(stop_task);
}

jint NATIVE(taskPoll)(JNIEnv *env, jclass class, jlong handle, jobject buffer)
{
    (void)class;
    unsigned long dropped;
    char *out = buffer_memory(env, buffer, LINE_MAX_BYTES, "taskPoll");
    struct task *task = out ? object_use(handle, OBJECT_TASK, USE_SHARED) : NULL;
    if (!task)
        return PL_ERR_USAGE;
    size_t n = lines_collect(&task->lines, out, LINE_MAX_BYTES - LINE_NOTE_BYTES, &dropped);
    if (dropped > 0)
        n += (size_t)sprintf(out + n, "{\"kind\":\"dropped\",\"lines\":%lu}\n", dropped);
    object_release(task, USE_SHARED, false);
    return (jint)n;
}

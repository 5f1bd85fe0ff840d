#define _GNU_SOURCE
#include "cli/map_runs.h"

#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 640, MESSAGE_BYTES = 4096 };

extern char **environ;

/* ---- files ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static void remove_folder(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void path_of(const struct map_runs *runs, size_t cell, const char *name,
                    char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s/%zu%s", runs->folder, cell, name);
}

static bool write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    bool good = f && fputs(text, f) >= 0;
    if (f)
        good = fclose(f) == 0 && good;
    if (!good)
        fprintf(stderr, "paceline plan: %s: cannot be written: %s\n", path, strerror(errno));
    return good;
}

bool map_runs_open(struct map_runs *runs, size_t parallel)
{
    const char *folder = getenv("TMPDIR");
    *runs = (struct map_runs){.parallel = parallel};
    snprintf(runs->folder, sizeof runs->folder, "%s/paceline-map-XXXXXX",
             folder && *folder ? folder : "/tmp");
    if (mkdtemp(runs->folder))
        return true;
    fprintf(stderr, "paceline plan: no folder for simulations, %s: %s; set TMPDIR\n", runs->folder,
            strerror(errno));
    return false;
}

void map_runs_close(struct map_runs *runs)
{
    for (size_t i = 0; i < runs->parallel; i++) {
        if (runs->run[i].pid == 0)
            continue;
        kill(runs->run[i].pid, SIGKILL);
        waitpid(runs->run[i].pid, NULL, 0);
    }
    remove_folder(runs->folder);
}

/* ---- a simulation ---- */

size_t map_runs_count(const struct map_runs *runs)
{
    size_t count = 0;
    for (size_t i = 0; i < runs->parallel; i++)
        count += runs->run[i].pid != 0;
    return count;
}

bool map_runs_has_room(const struct map_runs *runs)
{
    return map_runs_count(runs) < runs->parallel;
}

/* Ctrl-C is for the command, which ends its simulations. */
static int spawn_sim(const char *log, const char *const *argv, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t mask;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGHUP);
    posix_spawnattr_setsigmask(&attributes, &mask);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    int code = posix_spawn(pid, "/proc/self/exe", &actions, &attributes,
                           (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* Exchanges and evaluations take no time worth mentioning: the map counts steps alone. */
static bool write_files(const struct map_runs *runs, size_t cell, uint32_t workers, const char *job)
{
    char path[PATH_BYTES], cluster[256];
    snprintf(cluster, sizeof cluster,
             "node { count: %" PRIu32 " } step_seconds: 0.01\n"
             "driver { speed: 1000000 } link { mbit: 100000 latency_us: 1 }\n",
             workers);
    path_of(runs, cell, ".cluster", path);
    if (!write_text(path, cluster))
        return false;
    path_of(runs, cell, ".job", path);
    return write_text(path, job);
}

bool map_runs_start(struct map_runs *runs, size_t cell, uint32_t workers, const char *job)
{
    char path[4][PATH_BYTES];
    static const char *const name[4] = {".job", ".cluster", "", ".log"};
    size_t place = 0;
    while (runs->run[place].pid != 0)
        place++;
    if (!write_files(runs, cell, workers, job))
        return false;
    for (int i = 0; i < 4; i++)
        path_of(runs, cell, name[i], path[i]);
    const char *const argv[] = {"paceline", "sim",   path[0], "--cluster", path[1],
                                "--out",    path[2], "-q",    NULL};
    int code = spawn_sim(path[3], argv, &runs->run[place].pid);
    runs->run[place].cell = cell;
    if (code == 0)
        return true;
    runs->run[place].pid = 0;
    fprintf(stderr, "paceline plan: a simulation cannot be started: %s\n", strerror(code));
    return false;
}

/* ---- its result ---- */

/* The first evaluation at or below the target, or else the newest. */
static void take_evaluation(const char *line, double target, struct map_cell *cell)
{
    cJSON *event = cJSON_Parse(line);
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
    const cJSON *error = cJSON_GetObjectItem(event, "error");
    const cJSON *step = cJSON_GetObjectItem(event, "step");
    if (kind && strcmp(kind, "eval") == 0 && cJSON_IsNumber(error) && cJSON_IsNumber(step) &&
        !cell->is_reached && step->valuedouble > 0) {
        cell->steps = (uint64_t)step->valuedouble;
        cell->error = error->valuedouble;
        cell->is_reached = cell->error <= target;
    }
    cJSON_Delete(event);
}

static void read_events(const struct map_runs *runs, size_t at, double target,
                        struct map_cell *cell)
{
    char path[PATH_BYTES], *line = NULL;
    size_t room = 0;
    path_of(runs, at, "/events.jsonl", path);
    FILE *f = fopen(path, "r");
    while (f && getline(&line, &room, f) > 0)
        take_evaluation(line, target, cell);
    free(line);
    if (f)
        fclose(f);
}

static void read_log(const struct map_runs *runs, size_t at, char text[MESSAGE_BYTES])
{
    char path[PATH_BYTES];
    path_of(runs, at, ".log", path);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, MESSAGE_BYTES - 1, f) : 0;
    text[n] = '\0';
    if (f)
        fclose(f);
}

/* A run that diverged ends with a message, and has not reached the target. */
static int take_result(const struct map_runs *runs, size_t at, int status, struct map_cells *map)
{
    struct map_cell *cell = &map->cell[at];
    char log[MESSAGE_BYTES];
    read_log(runs, at, log);
    read_events(runs, at, map->target, cell);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
    bool diverged = code == EXIT_FAILED && strstr(log, "diverged");
    cell->is_reached = cell->is_reached && !diverged;
    cell->steps = diverged && cell->steps == 0 ? cell->tau : cell->steps;
    cell->is_done = (code == EXIT_DONE && cell->steps > 0) || diverged;
    if (cell->is_done)
        return -1;
    fprintf(stderr,
            "paceline plan: the simulation of %" PRIu32 " workers, tau %" PRIu32 ", failed:\n%s",
            cell->workers, cell->tau,
            code == EXIT_DONE ? "it made no evaluation with an error rate: the map needs a net "
                                "with an accuracy, and validation or test data\n"
                              : log);
    return code == EXIT_DONE ? EXIT_BAD_INPUT : code;
}

int map_runs_poll(struct map_runs *runs, struct map_cells *map, size_t *ended)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    char path[PATH_BYTES];
    *ended = SIZE_MAX;
    for (size_t i = 0; i < runs->parallel; i++) {
        struct map_run *run = &runs->run[i];
        int status;
        if (run->pid == 0 || waitpid(run->pid, &status, WNOHANG) != run->pid)
            continue;
        run->pid = 0;
        *ended = run->cell;
        int code = take_result(runs, run->cell, status, map);
        path_of(runs, run->cell, "", path);
        remove_folder(path);
        return code;
    }
    nanosleep(&pause, NULL);
    return -1;
}

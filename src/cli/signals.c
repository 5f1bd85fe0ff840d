#include "cli/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* One request may arrive as several signals: timeout(1) sends its own to the command and once more
 * to the command's group. */
#define ONE_WISH_NS (INT64_C(300) * 1000 * 1000)

pl_flag signals_stop, signals_leave, signals_pause, signals_heeded;

static _Atomic int64_t wished_at; /* on the monotonic clock; 0: never */

static void die_of(int number)
{
    signal(number, SIG_DFL);
    raise(number);
}

/* Is it another wish than the one before? */
static bool is_wish(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec, before = wished_at;
    if (before > 0 && now - before < ONE_WISH_NS)
        return false;
    wished_at = now;
    return true;
}

static void write_text(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; /* it is closed */
}

/* Closing a terminal may send SIGHUP more than once, which is not a second request. Until a run
 * reads the flag there is no state to save. */
static void on_stop(int number)
{
    int level = pl_flag_get(&signals_stop), error = errno;
    bool heeded = pl_flag_get(&signals_heeded);
    if ((level == 0 || number != SIGHUP) && is_wish()) {
        if (level >= (heeded ? 2 : 1))
            die_of(number);
        pl_flag_set(&signals_stop, level + 1);
        if (!heeded)
            write_text("interrupted: ends when the run is open; again: at once\n");
    }
    errno = error;
}

static void on_leave(int number)
{
    int error = errno, leaving = pl_flag_get(&signals_leave);
    bool heeded = pl_flag_get(&signals_heeded);
    if ((!leaving || number != SIGHUP) && is_wish()) {
        if (leaving)
            die_of(number);
        pl_flag_set(&signals_leave, 1);
        write_text(heeded ? "leaving at the next commit point; again: at once\n"
                          : "leaving; again: at once\n");
    }
    errno = error;
}

static void on_pause(int number)
{
    pl_flag_set(&signals_pause, number == SIGUSR1);
}

/* Unless it is ignored already. */
static void catch (int number, void (*handler)(int number))
{
    struct sigaction before, action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void signals_catch_run(void)
{
    signal(SIGPIPE, SIG_IGN);
    catch (SIGINT, on_stop);
    catch (SIGTERM, on_stop);
    catch (SIGHUP, on_stop);
}

void signals_catch_worker(void)
{
    signal(SIGPIPE, SIG_IGN);
    catch (SIGINT, on_leave);
    catch (SIGTERM, on_leave);
    catch (SIGHUP, on_leave);
    catch (SIGUSR1, on_pause);
    catch (SIGUSR2, on_pause);
}

#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

pl_flag signals_stop, signals_leave, signals_pause;

static void die_of(int number)
{
    signal(number, SIG_DFL);
    raise(number);
}

/* Closing a terminal may send SIGHUP more than once, which nobody means as a second wish. */
static void on_stop(int number)
{
    int level = pl_flag_get(&signals_stop);
    if (level >= 2 && number != SIGHUP)
        die_of(number);
    else if (level < 2 && (level == 0 || number != SIGHUP))
        pl_flag_set(&signals_stop, level + 1);
}

static void on_leave(int number)
{
    static const char text[] = "leaving at the next commit point; again: at once\n";
    if (pl_flag_get(&signals_leave)) {
        die_of(number);
        return;
    }
    pl_flag_set(&signals_leave, 1);
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        return; /* nobody reads it */
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

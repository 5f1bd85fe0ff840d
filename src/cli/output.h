/* All output of a command on stderr goes through here: lines, and on a terminal one progress line
 * below them, which is cut to the terminal's width and updated in place. Log lines come from
 * several threads: every function here may be called from any thread, and each takes a lock. The
 * object is the process's own, as stderr is.
 *
 * On a terminal warnings are yellow, errors red and results bold, unless NO_COLOR is set and not
 * empty or TERM is dumb. No other file of the command has colours of text. */
#ifndef PL_CLI_OUTPUT_H
#define PL_CLI_OUTPUT_H

#include "cli/progress_line.h"
#include "paceline/engine.h"

#include <stdbool.h>

struct output_options {
    bool quiet;        /* only warnings and errors */
    double progress_s; /* between two progress lines where there is no terminal; 0: 2 s */
};

/* Before anything is printed. Without it a command prints all. */
void output_configure(const struct output_options *options);

/* A line of its own, without its newline. When quiet nothing is printed. */
__attribute__((format(printf, 1, 2))) void output_line(const char *format, ...);

/* The same for a measurement that is the best so far. */
__attribute__((format(printf, 1, 2))) void output_best(const char *format, ...);

/* The same for an error that ends the command, also when quiet. */
__attribute__((format(printf, 1, 2))) void output_error(const char *format, ...);

/* The line on stdout that matters most of a result; bold where stdout is a terminal. */
void output_result(const char *line);

/* As output_line for warnings, which `quiet` does not suppress; no prefix is added. Lines that
 * differ in numbers alone are of one kind. At most one of a kind is printed a second, and the next
 * one states how many there were. The number after the word "worker" and those in a machine's name
 * or address distinguish kinds, so that each worker and machine is always named. */
void output_warning(const char *line);

/* How far the work is: drawn at most four times a second on a terminal, or a line every
 * progress_s. */
void output_progress(const struct progress_field *field, size_t count);

/* Print warnings that were held back long enough. Call it regularly while no other function here is
 * called. */
void output_tick(void);

/* The progress line is finished: it stays as a line. Prints the warnings that were held back. */
void output_finish(void);

/* For pl_engine_options.log; `user` is not used. */
void output_log(void *user, pl_log_level level, const char *line);

/* A line that another process of this command wrote to its stderr. */
void output_relay(const char *line);

#endif

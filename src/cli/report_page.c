#include "cli/report_page.h"

#include "cli/page_files.h"
#include "cli/svg_page.h"

#include <errno.h>
#include <math.h>
#include <string.h>

const char report_first_bytes[] = "<!DOCTYPE html>\n<html lang=\"en\" data-drawn-by=\"paceline\"";
const char report_csv_head[] = "run,curve,unit,time_s,epochs,samples,value\n";

/* ---- the page ---- */

/* Nothing is loaded, and no form leads away; the live page asks its own driver for events. */
static void put_policy(FILE *out, bool live)
{
    fprintf(out,
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
            "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
            "form-action 'none'%s\">\n",
            live ? "; connect-src 'self'" : "");
}

static void put_colors(FILE *out, const char *const color[SVG_SERIES])
{
    fputs(":root{", out);
    for (int i = 0; i < SVG_SERIES; i++)
        fprintf(out, "--s%d:%s;", i, color[i]);
    fputs("}\n", out);
}

static void put_head(FILE *out, const char *title, bool live)
{
    fprintf(out, "%s%s>\n<head>\n<meta charset=\"utf-8\">\n", report_first_bytes,
            live ? " data-live=\"yes\"" : "");
    fputs("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n", out);
    fputs("<meta name=\"referrer\" content=\"no-referrer\">\n", out);
    put_policy(out, live);
    fputs("<title>", out);
    svg_put_quoted(out, title);
    fputs("</title>\n<style>\n", out);
    put_colors(out, svg_light_colors);
    fputs("@media screen and (prefers-color-scheme:dark){", out);
    put_colors(out, svg_dark_colors);
    fputs("}\n", out);
    fputs((const char *)page_css, out);
    fputs(
        "</style>\n</head>\n<body>\n<noscript>This page draws its data with a script.</noscript>\n",
        out);
}

static void put_script(FILE *out)
{
    fputs("<script>\n", out);
    fputs((const char *)page_js, out);
    fputs("</script>\n</body>\n</html>\n", out);
}

void report_page_live(FILE *out, const char *title)
{
    put_head(out, title, true);
    put_script(out);
}

/* The file is closed. */
static bool close_file(FILE *f, const char *path)
{
    bool failed = !f || ferror(f);
    int error = errno;
    if (f && fclose(f) != 0 && !failed) {
        failed = true;
        error = errno;
    }
    if (failed)
        fprintf(stderr, "paceline report: %s: cannot be written: %s\n", path, strerror(error));
    return !failed;
}

bool report_page_write(const char *path, const struct report_run *run, size_t count)
{
    FILE *out = fopen(path, "w");
    bool room = true;
    if (out) {
        put_head(out, run[0].name, false);
        fputs("<script type=\"application/json\" id=\"data\">", out);
        room = report_document_write(out, run, count, NULL);
        fputs("</script>\n", out);
        put_script(out);
    }
    if (!room)
        fprintf(stderr, "paceline report: %s: out of memory\n", path);
    return close_file(out, path) && room;
}

/* ---- the table ---- */

/* In quotes where it must be. */
static void put_cell(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, *text == '"' ? "\"%c" : "%c", *text);
    fputc('"', out);
}

static void put_curve(FILE *out, const struct report_run *run, enum run_curve curve)
{
    const struct run_series *series = &run->summary->curve[curve];
    for (size_t i = 0; i < series->count; i++) {
        const struct run_point *p = &series->point[i];
        put_cell(out, run->name);
        fprintf(out, ",%s,%s,%.10g,%.9g,%.17g,", run_curve_keys[curve], run_curve_units[curve],
                p->t, p->epoch, p->samples);
        if (isfinite(p->value))
            fprintf(out, "%.9g", p->value);
        fputc('\n', out);
    }
}

bool report_csv_write(const char *path, const struct report_run *run, size_t count)
{
    FILE *out = fopen(path, "w");
    if (out)
        fputs(report_csv_head, out);
    for (size_t i = 0; out && i < count; i++)
        for (int curve = 0; curve < CURVES; curve++)
            put_curve(out, &run[i], (enum run_curve)curve);
    return close_file(out, path);
}

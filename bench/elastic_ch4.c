/* Chapter 4 of Elastic again: prices u, v, z, g from its Tables 4.3 and 4.4, and with them
 * Paceline's all-reduces on 8, 16 and 32 simulated nodes, vectors of a hundred to 150 million
 * floats: the fastest, by how much, and the paper's measurements.
 *   elastic_ch4 FIGURE.svg TIMES.csv       tables on stdout */
#include "coll/cost_fit.h"
#include "elastic_cluster.h"
#include "elastic_figure.h"

enum { TREE, BUTTERFLY, SHARED_TREE = LINES, SERIES };

/* The compared series; the paper's first. As there, a tree and a ring serialise and reduce on one
 * core and all others on every core; the last series shows the part of a speed-up that is due to
 * that. */
static const struct series {
    enum coll_algorithm algorithm;
    bool serial;
    const char *name, *label;
} series[SERIES] = {
    {COLL_TREE, true, "tree", "tree"},
    {COLL_BUTTERFLY, false, "butterfly", "butterfly"},
    {COLL_RING, true, "ring", "ring"},
    {COLL_CHUNKED_RING, false, "chunked_ring", "chunked ring"},
    {COLL_HALVING_DOUBLING, false, "halving_doubling", "halving-doubling"},
    {COLL_SCATTER_GATHER, false, "scatter_gather", "scatter-gather"},
    {COLL_TREE, false, "tree/cores", NULL},
};

static const size_t nodes[COLUMNS] = {8, 16, 32};
static const char *const row_name[ROWS] = {"fitted z", "z = 0"};
static const double longest = 1.5e8;
static const double paper_block = 4.0 * 1024 * 1024; /* of a broadcast, Eq. 4.2 */

struct study {
    struct cost_paper paper;
    double floats[SIZES];
    double seconds[ROWS][COLUMNS][SIZES][SERIES];
    bool failed;
};

static struct trial trial_of(const struct study *s, size_t row, size_t ranks, double floats,
                             size_t line)
{
    struct trial t = {.algorithm = series[line].algorithm,
                      .ranks = ranks,
                      .floats = floats,
                      .price = s->paper.model};
    if (row == 1)
        t.price.z = 0;
    if (series[line].serial)
        t.price.cores = 1;
    return t;
}

static double run_trial(struct study *s, struct trial *t)
{
    double seconds = trial_run(t);
    s->failed |= isnan(seconds);
    return seconds;
}

static void simulate_all(struct study *s)
{
    for (size_t i = 0; i < SIZES; i++)
        s->floats[i] = i + 1 < SIZES ? floor(pow(10, 2 + 0.5 * (double)i) + 0.5) : longest;
    for (size_t row = 0; row < ROWS; row++)
        for (size_t c = 0; c < COLUMNS; c++)
            for (size_t i = 0; i < SIZES && !s->failed; i++)
                for (size_t k = 0; k < SERIES; k++) {
                    struct trial t = trial_of(s, row, nodes[c], s->floats[i], k);
                    s->seconds[row][c][i][k] = run_trial(s, &t);
                }
}

/* ---- tables ---- */

/* Each published figure, with the formula's value, our collectives, and our collectives kept from
 * overlapping: every step's vector in one piece. */
static void print_published(struct study *s)
{
    const struct cost_model *m = &s->paper.model;
    printf("Fit of Eq. 4.1 + 4.2 and 4.7 to Tables 4.3 and 4.4 (%g cores, blocks of 4 MiB)\n"
           "  u %.4g s   v %.4g s/B (%.3g GB/s)   z %.4g s/B   g %.4g s/B\n"
           "  root mean square of log(fitted / published) %.3f\n\n",
           m->cores, m->u, m->v, 1e-9 / m->v, m->z, m->g, s->paper.residual);
    printf("Published figures, in seconds\n"
           "  nodes      floats  %-10s %9s %8s %7s | simulated: %9s %7s %10s\n",
           "", "published", "formula", "ratio", "in pieces", "ratio", "one piece");
    for (size_t i = 0; i < COST_PAPER_FIGURES && !s->failed; i++) {
        const struct cost_figure *f = &s->paper.figure[i];
        size_t line = f->algorithm == COLL_TREE ? TREE : BUTTERFLY;
        struct trial t = trial_of(s, 0, (size_t)f->ranks, f->floats, line);
        double in_pieces = run_trial(s, &t);
        t.whole = true;
        double whole = run_trial(s, &t);
        printf("  %5.0f  %10.0f  %-10s %9.3f %8.3f %7.2f | %20.3f %7.2f %10.3f\n", f->ranks,
               f->floats, series[line].name, f->published, f->fitted, f->fitted / f->published,
               in_pieces, in_pieces / f->published, whole);
    }
}

static double formula_seconds(const struct study *s, size_t row, size_t ranks, double floats,
                              size_t line)
{
    struct cost_model m = s->paper.model;
    if (row == 1)
        m.z = 0;
    return cost_allreduce(series[line].algorithm, &m, ranks, floats * sizeof(float), paper_block);
}

static void print_winners(const char *before, unsigned winners)
{
    for (size_t k = 0; k < LINES; k++)
        if (winners >> k & 1) {
            printf("%s%s", before, series[k].name);
            before = " = ";
        }
}

static void print_times(const struct study *s, size_t row, size_t column)
{
    printf("\nSimulated all-reduce, %zu nodes, %s, in seconds\n%11s", nodes[column], row_name[row],
           "floats");
    for (size_t k = 0; k < SERIES; k++)
        printf(" %*s", k < LINES - 2 ? 12 : 16, series[k].name);
    printf("  winner; of the paper's four; by formula\n");
    for (size_t i = 0; i < SIZES; i++) {
        const double *seconds = s->seconds[row][column][i];
        double by_formula[LINES];
        printf("%11.0f", s->floats[i]);
        for (size_t k = 0; k < SERIES; k++)
            printf(" %*.4f", k < LINES - 2 ? 12 : 16, seconds[k]);
        for (size_t k = 0; k < LINES; k++)
            by_formula[k] = formula_seconds(s, row, nodes[column], s->floats[i], k);
        print_winners("  ", figure_winners(seconds, LINES));
        print_winners("; ", figure_winners(seconds, PAPERS));
        print_winners("; ", figure_winners(by_formula, LINES));
        printf("\n");
    }
}

/* The values that the text states for Figure 4.7. */
static const char *published_speed_up(double floats)
{
    if (floats == longest)
        return "9 (\"in the order of 10^8\")";
    return floats >= 9e6 ? "7 (10^7 to 10^8)" : "";
}

static void print_speed_up(const struct study *s)
{
    printf("\nParallel butterfly over reduce-broadcast; in brackets over a tree on all cores\n"
           "%11s",
           "floats");
    for (size_t row = 0; row < ROWS; row++)
        for (size_t c = 0; c < COLUMNS; c++)
            printf("  %2zu nodes, %-8s", nodes[c], row_name[row]);
    printf("  formula, 32   published, 32\n");
    for (size_t i = 0; i < SIZES; i++) {
        double n = s->floats[i];
        printf("%11.0f", n);
        for (size_t row = 0; row < ROWS; row++)
            for (size_t c = 0; c < COLUMNS; c++) {
                const double *seconds = s->seconds[row][c][i];
                printf("  %9.2f (%6.2f)", seconds[TREE] / seconds[BUTTERFLY],
                       seconds[SHARED_TREE] / seconds[BUTTERFLY]);
            }
        printf("  %11.2f   %s\n",
               formula_seconds(s, 0, 32, n, TREE) / formula_seconds(s, 0, 32, n, BUTTERFLY),
               published_speed_up(n));
    }
}

/* Table 4.3 has a butterfly's time by log2 p. */
static void print_stages(struct study *s)
{
    static const double published[COLUMNS] = {0.95, 0.93, 0.99};
    printf("\nSeconds a stage of the butterfly of 1.5e8 floats (Table 4.3)\n"
           "  nodes  published  formula  in pieces  one piece\n");
    for (size_t c = 0; c < COLUMNS && !s->failed; c++) {
        struct trial t = trial_of(s, 0, nodes[c], longest, BUTTERFLY);
        double stages = log2((double)nodes[c]);
        t.whole = true;
        printf("  %5zu %10.2f %8.3f %10.3f %10.3f\n", nodes[c], published[c],
               formula_seconds(s, 0, nodes[c], longest, BUTTERFLY) / stages,
               s->seconds[0][c][SIZES - 1][BUTTERFLY] / stages, run_trial(s, &t) / stages);
    }
}

/* cost_predict knows no z. Checks that the simulated figures are those of the request. */
static double predict_trial(struct trial *t)
{
    double rate[RANKS_MAX];
    trial_scale(t);
    for (size_t i = 0; i < t->ranks; i++)
        rate[i] = 1 / (t->price.v * t->stands_for);
    const struct cost_links links = {
        .ranks = t->ranks,
        .send_rate = rate,
        .recv_rate = rate,
        .latency = t->price.u,
        .reduce_rate = t->price.cores / (t->price.g * t->stands_for),
    };
    return cost_predict(t->algorithm, &links, t->n, t->chunk, NULL);
}

static void print_predictions(const struct study *s)
{
    printf("\nSimulated over cost_predict, z = 0, 32 nodes\n%11s", "floats");
    for (size_t k = 0; k < LINES; k++)
        printf(" %16s", series[k].name);
    printf("\n");
    for (size_t i = 0; i < SIZES; i += i < 12 ? 4 : 1) {
        printf("%11.0f", s->floats[i]);
        for (size_t k = 0; k < LINES; k++) {
            struct trial t = trial_of(s, 1, 32, s->floats[i], k);
            printf(" %16.3f", s->seconds[1][2][i][k] / predict_trial(&t));
        }
        printf("\n");
    }
}

static void print_credit(struct study *s)
{
    printf("\nThe same links with the 8 MiB that the world lets wait at a peer, 32 nodes, 1.5e8 "
           "floats, fitted z\n");
    for (size_t k = BUTTERFLY; k < LINES && !s->failed; k++) {
        struct trial t = trial_of(s, 0, 32, longest, k);
        t.own_credit = true;
        double own = series[k].serial ? NAN : run_trial(s, &t);
        if (!series[k].serial)
            printf("  %-16s %8.3f s, where credit for two vectors gives %8.3f s\n", series[k].name,
                   own, s->seconds[0][2][SIZES - 1][k]);
    }
}

static void print_remarks(void)
{
    fputs(
        "\nWhere this is not the paper\n"
        "  Pieces overlap: work hides behind links and one stage behind another; the paper's "
        "stages "
        "follow\n  one another, as here in one piece.\n"
        "  A tree broadcasts through a tree, log2 p times u; Eq. 4.2 charges (b / 4 MiB) u.\n"
        "  u is latency: messages to many fly at once. The formulas have a rank start them one by "
        "one,\n  which is what scatter_gather wins by here.\n"
        "  Links are full duplex, of one rate, and meet no crowd at a switch.\n",
        stdout);
}

/* ---- files ---- */

static bool save_file(FILE *out, const char *path)
{
    bool good = out && !ferror(out);
    good = (!out || fclose(out) == 0) && good;
    if (!good)
        fprintf(stderr, "elastic_ch4: %s: cannot be written\n", path);
    return good;
}

static bool write_times(const struct study *s, const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out)
        return save_file(out, path);
    fprintf(out, "z,nodes,floats,algorithm,serial,seconds,formula_seconds,winner\n");
    for (size_t row = 0; row < ROWS; row++)
        for (size_t c = 0; c < COLUMNS; c++)
            for (size_t i = 0; i < SIZES; i++)
                for (size_t k = 0; k < SERIES; k++) {
                    const double *seconds = s->seconds[row][c][i];
                    fprintf(out, "%.6g,%zu,%.0f,%s,%d,%.9g,", row ? 0 : s->paper.model.z, nodes[c],
                            s->floats[i], coll_algorithm_name(series[k].algorithm),
                            series[k].serial, seconds[k]);
                    if (k < LINES) /* there is none for a tree on all cores */
                        fprintf(out, "%.9g", formula_seconds(s, row, nodes[c], s->floats[i], k));
                    fprintf(out, ",%d\n", k < LINES && figure_winners(seconds, LINES) >> k & 1);
                }
    return save_file(out, path);
}

static bool draw_figure(const struct study *s, const char *path)
{
    struct figure f = {.row = {"fitted z", "z = 0"}, .column = {"8 nodes", "16 nodes", "32 nodes"}};
    char meta[320];
    for (size_t k = 0; k < LINES; k++)
        f.line[k] = series[k].label;
    for (size_t i = 0; i < SIZES; i++)
        f.floats[i] = s->floats[i];
    for (size_t row = 0; row < ROWS; row++)
        for (size_t c = 0; c < COLUMNS; c++)
            for (size_t i = 0; i < SIZES; i++)
                for (size_t k = 0; k < LINES; k++)
                    f.seconds[row][c][i][k] = s->seconds[row][c][i][k];
    const struct cost_model *m = &s->paper.model;
    snprintf(meta, sizeof meta,
             "u %.1f ms, v %.3f ns/B, z %.2f ns/B, g %.2f ns/B over %g cores (tree, ring: one). "
             "Bands: the quickest of all six, and of the four that the paper has; stacked "
             "where within 1 %%",
             m->u * 1e3, m->v * 1e9, m->z * 1e9, m->g * 1e9, m->cores);
    FILE *out = fopen(path, "w");
    if (out)
        figure_draw(out, &f, "All-reduce at the prices of Elastic, Tables 4.3 and 4.4: simulated",
                    meta);
    return save_file(out, path);
}

int main(int argc, char **argv)
{
    static struct study s;
    if (argc != 3) {
        fprintf(stderr, "usage: elastic_ch4 FIGURE.svg TIMES.csv\n");
        return 2;
    }
    s.paper = cost_fit_paper();
    print_published(&s);
    simulate_all(&s);
    for (size_t row = 0; row < ROWS && !s.failed; row++)
        for (size_t c = 0; c < COLUMNS; c++)
            print_times(&s, row, c);
    if (s.failed)
        return 1;
    print_speed_up(&s);
    print_stages(&s);
    print_predictions(&s);
    print_credit(&s);
    print_remarks();
    return !s.failed && write_times(&s, argv[2]) && draw_figure(&s, argv[1]) ? 0 : 1;
}

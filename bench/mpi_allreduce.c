/* MPI_Allreduce of floats, timed as `paceline bench allreduce` times its own.
 *   mpirun … mpi_allreduce FLOATS…
 * One JSON object a size, from rank 0: the median and the 90th percentile of 20 repetitions after
 * 3, each the time of its slowest rank. Every repetition has data of its own, and its sums are
 * checked.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARMUP = 3, REPETITIONS = 20 };

/* Whole numbers below 64: a sum of many is exact, in whichever order. */
static float input_value(size_t i, int rank, int repetition)
{
    return (float)((i * 7 + (size_t)rank * 13 + (size_t)repetition * 5) % 61);
}

static void fill_vector(float *x, size_t n, int rank, int repetition)
{
    for (size_t i = 0; i < n; i++)
        x[i] = input_value(i, rank, repetition);
}

static void check_sum(const float *x, size_t n, int ranks, int repetition)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += input_value(i, r, repetition);
        if (x[i] != sum) {
            fprintf(stderr, "mpi_allreduce: repetition %d: x[%zu] is %g and should be %g\n",
                    repetition, i, (double)x[i], (double)sum);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

/* Milliseconds of the slowest rank. */
static double reduce_once(float *x, size_t n, int rank, int ranks, int repetition)
{
    fill_vector(x, n, rank, repetition);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double ms = (MPI_Wtime() - start) * 1e3;
    check_sum(x, n, ranks, repetition);
    MPI_Allreduce(MPI_IN_PLACE, &ms, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return ms;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_size(size_t n, int rank, int ranks)
{
    double ms[REPETITIONS];
    float *x = malloc(n * sizeof *x);
    if (!x) {
        fprintf(stderr, "mpi_allreduce: no memory for %zu floats\n", n);
        MPI_Abort(MPI_COMM_WORLD, 1);
        return;
    }
    for (int i = -WARMUP; i < REPETITIONS; i++) {
        double once = reduce_once(x, n, rank, ranks, i + WARMUP);
        if (i >= 0)
            ms[i] = once;
    }
    free(x);
    qsort(ms, REPETITIONS, sizeof ms[0], by_size);
    if (rank == 0)
        printf("{\"floats\":%zu,\"median_ms\":%.4f,\"p90_ms\":%.4f}\n", n,
               (ms[REPETITIONS / 2 - 1] + ms[REPETITIONS / 2]) / 2, ms[REPETITIONS * 9 / 10 - 1]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i++)
        measure_size((size_t)strtoul(argv[i], NULL, 10), rank, ranks);
    MPI_Finalize();
    return 0;
}

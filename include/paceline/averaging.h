/* When does averaging models pay? SparkNet's model (§3.1) of K workers that take τ steps each and
 * then average their models. Times are in steps of one worker, so C(b) = 1. */
#ifndef PACELINE_AVERAGING_H
#define PACELINE_AVERAGING_H

#ifdef __cplusplus
extern "C" {
#endif

/* The speed-up of averaging over one worker, N_a/((τ + S)·M_a) (Eq. 1 over Eq. 2; Fig. 3 has S = 0,
 * and its caption the inverse). `alone` is N_a, the steps that one worker needs for the accuracy;
 * `rounds` is M_a, the rounds of `tau` steps that the workers need; `exchange` is S, what gathering
 * and broadcasting the models takes. NAN unless the first three are above 0, and S is 0 or more.
 * Any thread may call it. */
double pl_averaging_speedup(double alone, double tau, double rounds, double exchange);

/* The speed-up of dividing each batch among K workers (§3.1.1, "naive"), 1/(1/K + S), if a Kth of a
 * batch takes a Kth of its time, which is the least it can. NAN unless K ≥ 1 and S ≥ 0. Any thread
 * may call it. */
double pl_dividing_speedup(double workers, double exchange);

#ifdef __cplusplus
}
#endif
#endif

#include "coll/outlier.h"

#include "base/fault.h"
#include "group/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void outlier_measure(struct outlier_history *h, const struct vec_angle *angle, double print,
                     struct outlier_claim *claim)
{
    size_t kept = h->count < OUTLIER_KEPT ? (size_t)h->count : OUTLIER_KEPT;
    claim->norm = sqrt(angle->uu);
    claim->usual = claim->norm;
    claim->repeats = 0;
    for (size_t i = 0; i < kept; i++) {
        claim->usual = h->norm[i] > claim->usual ? h->norm[i] : claim->usual;
        if (h->print[i] == print && print > 0)
            claim->repeats = 1;
    }
    h->norm[h->count % OUTLIER_KEPT] = claim->norm;
    h->print[h->count++ % OUTLIER_KEPT] = print;
    double length = sqrt(angle->uu) * sqrt(angle->vv);
    if (length > 0 && isfinite(length)) {
        double last = (double)(h->sides < OUTLIER_SIDES ? ++h->sides : h->sides);
        h->cosine += (angle->uv / length - h->cosine) / last;
    }
    claim->cosine = h->sides >= OUTLIER_SIDES ? h->cosine : OUTLIER_NO_SIDE;
}

static bool is_there(const struct outlier_claim *claim)
{
    return isfinite(claim->weight) && claim->weight > 0 && isfinite(claim->norm) &&
           isfinite(claim->usual);
}

static bool has_side(const struct outlier_claim *claim)
{
    return claim->cosine >= -1.001 && claim->cosine <= 1.001;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lower one of an even number, so that of two outliers among four neither sets it. */
static double median_of(double *value, size_t n)
{
    qsort(value, n, sizeof *value, compare_doubles);
    return n > 0 ? value[(n - 1) / 2] : 0;
}

struct medians {
    size_t count, sides, repeats; /* contributions; with a cosine; repeated ones */
    double usual, cosine;
};

static struct medians medians_of(const struct outlier_claim *claim, size_t n)
{
    double value[VIEW_MEMBERS_MAX + 1];
    struct medians m = {0};
    PL_ASSERT(n <= VIEW_MEMBERS_MAX + 1);
    for (size_t i = 0; i < n; i++)
        if (is_there(&claim[i])) {
            m.repeats += claim[i].repeats != 0;
            value[m.count++] = claim[i].usual;
        }
    m.usual = median_of(value, m.count);
    for (size_t i = 0; i < n; i++)
        if (is_there(&claim[i]) && has_side(&claim[i]))
            value[m.sides++] = claim[i].cosine;
    m.cosine = median_of(value, m.sides);
    return m;
}

static enum outlier_cause judge_claim(const struct outlier_claim *c, const struct medians *m)
{
    if (!is_there(c))
        return OUTLIER_SOUND;
    if (m->usual > 0 && c->norm > OUTLIER_NORM * m->usual)
        return OUTLIER_NORM_TOO_LARGE;
    if (c->repeats && 2 * m->repeats < m->count)
        return OUTLIER_REPEATED;
    bool against = m->sides >= OUTLIER_LEAST && m->cosine >= OUTLIER_ALONG && has_side(c) &&
                   c->cosine < -m->cosine / 2;
    return against ? OUTLIER_AGAINST : OUTLIER_SOUND;
}

size_t outlier_judge(const struct outlier_claim *claim, size_t n, enum outlier_cause *cause)
{
    const struct medians m = medians_of(claim, n);
    size_t refused = 0;
    for (size_t i = 0; i < n; i++) {
        cause[i] = m.count < OUTLIER_LEAST ? OUTLIER_SOUND : judge_claim(&claim[i], &m);
        refused += cause[i] != OUTLIER_SOUND;
    }
    return refused;
}

void outlier_explain(const struct outlier_claim *claim, size_t n, size_t i,
                     enum outlier_cause cause, char out[OUTLIER_TEXT_MAX])
{
    const struct medians m = medians_of(claim, n);
    const struct outlier_claim *c = &claim[i];
    switch (cause) {
    case OUTLIER_NORM_TOO_LARGE:
        snprintf(out, OUTLIER_TEXT_MAX, "its norm is %.3g, the median of the usual ones %.3g",
                 c->norm, m.usual);
        break;
    case OUTLIER_AGAINST:
        snprintf(out, OUTLIER_TEXT_MAX,
                 "its cosine with the average is %.2f, the median of all %.2f", c->cosine,
                 m.cosine);
        break;
    case OUTLIER_REPEATED:
        snprintf(out, OUTLIER_TEXT_MAX, "it is one of its last %d, sent again", OUTLIER_KEPT);
        break;
    default: snprintf(out, OUTLIER_TEXT_MAX, "it is sound");
    }
}

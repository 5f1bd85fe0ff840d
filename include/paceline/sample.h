/* Texts that a recurrent net over text draws, one byte or character after the other. */
#ifndef PACELINE_SAMPLE_H
#define PACELINE_SAMPLE_H

#include "paceline/data.h"
#include "paceline/net.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Name the text whose bytes or characters the net reads and scores: that of `text`, or, where it is
 * NULL, the training data of `job`. Only a job that does not have the vocabulary has its data
 * opened: job.prototxt in a run's directory has it (pl_job_load_run). A net without a form gets the
 * one for that text. It replaces the text of an earlier call, and comes before that of the net's
 * training data. `text` may be closed afterwards.
 *
 * PL_ERR_USAGE  neither `text` nor `job` is given
 * PL_ERR_INPUT  the data is no text, or cannot be opened
 * PL_ERR_NOMEM and the errors of pl_net_create, if this call builds the net */
int pl_net_form_text(pl_net *net, const pl_job *job, const pl_data *text);

typedef struct pl_net_sample_options {
    size_t size; /* sizeof(pl_net_sample_options) */
    /* The text that is continued; NULL or "": a line end or, where the vocabulary has none, its
     * first character. */
    const char *prime;
    uint64_t length; /* bytes or characters to draw, 1 to 100,000,000 */
    /* 0: always the most probable one, of equal ones the first. Else one is drawn with a
     * probability ∝ p^(1/temperature), where p is that of the net's softmax; of scores without a
     * softmax, exp(score). */
    double temperature;
    uint64_t seed; /* equal ones give equal texts */
} pl_net_sample_options;

/* Draw a text from a net over text: one that pl_net_form_text has named, or the net's training
 * data. The recurrent layers carry their state from unit to unit, from 0 before the prime. The net
 * must have a form; its weights are used as they are. The time of a unit is that of a forward pass
 * over a sequence of one step, on one thread; the first call plans a net for it. Members of a team
 * that have the net in slices draw the same text together: they make the call with equal options,
 * on machines of one kind, whose scores are equal to the last bit.
 *
 * *text is what was drawn, without the prime, *bytes its length; a zero follows. Both are valid
 * until the next call with the net.
 *
 * PL_ERR_USAGE        the length or the temperature is out of range; the net has no text, or no
 *                     form
 * PL_ERR_INPUT        the prime has a character that the text has not; the net has not one score
 *                     for each
 * PL_ERR_UNSUPPORTED  no layer carries a state, or the net cannot be planned for one unit
 * PL_ERR_DIVERGED     a score is not finite
 * PL_ERR_PEER         a slice of the net is lost
 * PL_ERR_NOMEM */
int pl_net_sample(pl_net *net, const pl_net_sample_options *options, const char **text,
                  size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif

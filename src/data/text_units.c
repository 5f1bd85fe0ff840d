#include "data/text_units.h"

#include "base/fault.h"
#include "data/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>

enum { BYTES = UINT8_MAX + 1 };

struct text_units {
    struct vocabulary *vocabulary; /* NULL: units are bytes */
    uint32_t *code;                /* of each number */
};

/* The characters by their numbers, which ascend with their code points. */
static bool list_codes(struct text_units *units)
{
    const struct vocabulary *v = units->vocabulary;
    uint32_t n = 0;
    units->code = malloc(v->n * sizeof *units->code);
    for (uint32_t word = 0; units->code && word < v->words; word++)
        for (uint64_t bits = v->has[word]; bits > 0; bits &= bits - 1)
            units->code[n++] = word * 64 + (uint32_t)__builtin_ctzll(bits);
    return units->code;
}

static int read_vocabulary(struct text_units *units, const char *text, struct err *err)
{
    if (!text || !*text)
        return err_set(err, ERR_INPUT, "text.vocabulary: is unknown");
    units->vocabulary = calloc(1, sizeof *units->vocabulary);
    if (!units->vocabulary)
        return err_set(err, ERR_NOMEM, "text.vocabulary: out of memory");
    const char *wrong = vocabulary_read(units->vocabulary, text);
    if (wrong)
        return err_set(err, ERR_INPUT, "text.vocabulary: %s", wrong);
    vocabulary_number(units->vocabulary);
    return list_codes(units) ? OK : err_set(err, ERR_NOMEM, "text.vocabulary: out of memory");
}

int text_units_create(const Paceline__Data__Text *spec, struct text_units **out, struct err *err)
{
    struct text_units *units = calloc(1, sizeof *units);
    if (!units)
        return err_set(err, ERR_NOMEM, "text: out of memory");
    int rc = spec->unit == PACELINE__DATA__TEXT__UNIT__character
                 ? read_vocabulary(units, spec->vocabulary, err)
                 : OK;
    if (rc == OK)
        *out = units;
    else
        text_units_free(units);
    return rc;
}

void text_units_free(struct text_units *units)
{
    if (!units)
        return;
    free(units->vocabulary);
    free(units->code);
    free(units);
}

uint32_t text_units_count(const struct text_units *units)
{
    return units->vocabulary ? units->vocabulary->n : BYTES;
}

const char *text_units_name(const struct text_units *units)
{
    return units->vocabulary ? "characters" : "bytes";
}

int text_units_take(const struct text_units *units, const char *text, size_t n, uint32_t *id,
                    size_t *length, struct err *err)
{
    uint32_t code;
    if (!units->vocabulary) {
        *id = (uint8_t)text[0];
        *length = 1;
        return OK;
    }
    size_t taken = utf8_take(text, n, &code);
    if (taken == 0)
        return err_set(err, ERR_INPUT, "byte \\x%02x is no character of UTF-8", (uint8_t)text[0]);
    if (!vocabulary_has(units->vocabulary, code))
        return err_set(err, ERR_INPUT,
                       "character U+%04" PRIX32 " is none of the %" PRIu32 " in the vocabulary",
                       code, units->vocabulary->n);
    *id = vocabulary_id(units->vocabulary, code);
    *length = taken;
    return OK;
}

void text_units_put(const struct text_units *units, uint32_t id, struct buf *text)
{
    uint8_t bytes[UTF8_BYTES_MAX];
    PL_ASSERT(id < text_units_count(units));
    if (!units->vocabulary)
        buf_put_u8(text, (uint8_t)id);
    else
        buf_put(text, bytes, utf8_put(units->code[id], bytes));
}

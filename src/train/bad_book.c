#include "train/bad_book.h"

#include <stdlib.h>

int bad_book_add(struct bad_book *book, uint64_t machine, const struct bad_record *bad,
                 bool *confirmed)
{
    struct err none;
    if (!book->seen) {
        book->seen = bad_records_create(BAD_RECORDS_MOST);
        book->machine = calloc(BAD_RECORDS_MOST + 1, sizeof *book->machine);
    }
    if (!book->seen || !book->machine)
        return ERR_NOMEM;
    size_t count = bad_records_count(book->seen);
    *confirmed = false;
    for (size_t i = 0; i < count; i++) {
        const struct bad_record *known = bad_records_at(book->seen, i);
        if (known->record == bad->record && known->of == bad->of) {
            *confirmed = book->machine[i] != machine;
            return OK;
        }
    }
    bad_records_add(book->seen, bad->of, bad->record, bad->cause, &none);
    if (bad_records_count(book->seen) > count)
        book->machine[count] = machine;
    return OK;
}

void bad_book_release(struct bad_book *book)
{
    bad_records_free(book->seen);
    free(book->machine);
    *book = (struct bad_book){0};
}

#include "group/master_service.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct numbered_item {
    struct inbox_item link;
    uint32_t number;
};

static void test_inbox_gives_all_items_oldest_first(void **state)
{
    (void)state;
    struct inbox inbox = {0};
    struct numbered_item items[5];
    assert_null(inbox_take(&inbox));
    for (uint32_t from = 0; from < 5; from += 3) { /* 0 1 2, then 3 4 */
        uint32_t end = from ? 5 : 3, next = from;
        for (uint32_t i = from; i < end; i++) {
            items[i].number = i;
            inbox_push(&inbox, &items[i].link);
        }
        for (const struct numbered_item *item = inbox_take(&inbox); item; item = item->link.next)
            assert_int_equal(item->number, next++);
        assert_int_equal(next, end);
        assert_null(inbox_take(&inbox));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inbox_gives_all_items_oldest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

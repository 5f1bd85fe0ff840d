/* A net cannot be built where memory ends, wherever that is: an error, and all of it given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/zoo.h"

/* Not under sanitizers, which have allocators of their own. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static long left = -1, live; /* allocations until one fails, -1: none does; not yet freed */

static int run_to_end(void)
{
    return left >= 0 && left-- == 0;
}

void *malloc(size_t n)
{
    void *p = run_to_end() ? NULL : __libc_malloc(n);
    live += p != NULL;
    return p;
}

void *calloc(size_t n, size_t size)
{
    void *p = run_to_end() ? NULL : __libc_calloc(n, size);
    live += p != NULL;
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p = run_to_end() ? NULL : __libc_realloc(old, n);
    live += p != NULL && old == NULL;
    return p;
}

void free(void *p)
{
    live -= p != NULL;
    __libc_free(p);
}
#else
#define COUNTS 0
static long left, live;
#endif

static void ends_everywhere(const char *name)
{
    int rc = ERR_NOMEM;
    long n = 0;
    for (; rc == ERR_NOMEM; n++) {
        Caffe__NetParameter *net = NULL;
        struct err err = {0};
        long before = live;
        left = n;
        rc = zoo_net(name, &net, &err);
        left = -1;
        if (net)
            caffe__net_parameter__free_unpacked(net, NULL);
        long after = live;
        assert_int_equal(after, before);
        assert_true(rc == OK ? net != NULL : net == NULL);
    }
    assert_int_equal(rc, OK);
    print_message("    %s: %ld pieces of memory\n", name, n - 1);
    assert_true(n > 100);
}

static void test_memory_ends(void **state)
{
    (void)state;
    if (!COUNTS)
        skip();
    ends_everywhere("lenet");
    ends_everywhere("alexnet");
    ends_everywhere("googlenet");
    ends_everywhere("resnet-20");
    ends_everywhere("inception-v3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#define _GNU_SOURCE
#include "cli/secret_heap.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Blocks of powers of two, cut from chunks and kept for reuse. Larger ones have pages of their own.
 */
enum {
    CLASSES = 12,
    SMALLEST = 32,
    LARGEST = SMALLEST << (CLASSES - 1),
    CHUNK = 8 * LARGEST,
    HEAD = alignof(max_align_t),
    PAGE = 4096, /* a multiple of it is mapped */
};

/* Before each block. */
struct head {
    size_t size; /* with the head */
    struct head *next;
};

_Static_assert(sizeof(struct head) <= HEAD, "a block is aligned as malloc's");

static struct {
    pthread_mutex_t lock;
    struct head *unused[CLASSES];
    char *chunk;
    size_t left; /* of the chunk */
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *map_pages(size_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    (void)madvise(pages, size, MADV_DONTDUMP);
    (void)mlock(pages, size);
    return pages;
}

/* The lock is held. The rest of a chunk that is too short is given up. */
static struct head *take_block(size_t class)
{
    size_t size = (size_t)SMALLEST << class;
    struct head *block = heap.unused[class];
    if (block) {
        heap.unused[class] = block->next;
        return block;
    }
    if (heap.left < size) {
        char *chunk = map_pages(CHUNK);
        if (!chunk)
            return NULL;
        heap.chunk = chunk;
        heap.left = CHUNK;
    }
    block = (struct head *)heap.chunk;
    heap.chunk += size;
    heap.left -= size;
    return block;
}

static size_t class_of(size_t size)
{
    size_t class = 0;
    while (((size_t)SMALLEST << class) < size)
        class ++;
    return class;
}

void *secret_heap_take(size_t n)
{
    struct head *block;
    if (n > SIZE_MAX - HEAD - PAGE)
        return NULL;
    size_t size = n + HEAD;
    if (size > LARGEST) {
        size = (size + PAGE - 1) / PAGE * PAGE;
        block = map_pages(size);
    } else {
        size_t class = class_of(size);
        size = (size_t)SMALLEST << class;
        pthread_mutex_lock(&heap.lock);
        block = take_block(class);
        pthread_mutex_unlock(&heap.lock);
    }
    if (!block)
        return NULL;
    *block = (struct head){.size = size};
    return (char *)block + HEAD;
}

static struct head *head_of(void *block)
{
    return (struct head *)((char *)block - HEAD);
}

void secret_heap_give(void *at)
{
    if (!at)
        return;
    struct head *block = head_of(at);
    size_t size = block->size;
    explicit_bzero(at, size - HEAD);
    if (size > LARGEST) {
        munmap(block, size);
        return;
    }
    size_t class = class_of(size);
    pthread_mutex_lock(&heap.lock);
    block->next = heap.unused[class];
    heap.unused[class] = block;
    pthread_mutex_unlock(&heap.lock);
}

void *secret_heap_resize(void *at, size_t n)
{
    if (!at)
        return secret_heap_take(n);
    size_t room = head_of(at)->size - HEAD;
    if (n <= room && n > room / 4)
        return at;
    void *larger = secret_heap_take(n);
    if (larger)
        memcpy(larger, at, n < room ? n : room);
    if (larger)
        secret_heap_give(at);
    return larger;
}

static void *take_memory(size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    return secret_heap_take(n);
}

static void *resize_memory(void *at, size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    return secret_heap_resize(at, n);
}

static void give_memory(void *at, const char *file, int line)
{
    (void)file;
    (void)line;
    secret_heap_give(at);
}

void secret_heap_install(void)
{
    (void)CRYPTO_set_mem_functions(take_memory, resize_memory, give_memory);
}

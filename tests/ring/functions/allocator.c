/*
 * A traced program with an instrumented allocator: the library that records its functions allocates by it, too.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void __libc_free(void *memory);

void *malloc(size_t size) { return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *memory, size_t size) { return __libc_realloc(memory, size); }
void free(void *memory) { __libc_free(memory); }

void allocate(void)
{
    void *volatile memory = malloc(100);
    free(memory);
}

int main(void)
{
    errno = 77;
    for (int n = 0; n < 1000; n++) {
        allocate();
    }
    if (errno != 77) {
        fprintf(stderr, "errno is %d\n", errno);
        return 1;
    }
    return 0;
}

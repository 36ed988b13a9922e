/* A function whose rule for unwinding is an expression that never ends, as in a broken library. */

#include <stdlib.h>

void *loops_allocate(size_t size);

__attribute__((noinline)) void *loops_allocate(size_t size)
{
    /* DW_CFA_def_cfa_expression of three bytes: DW_OP_skip to itself. */
    __asm__ volatile(".cfi_escape 0x0f, 3, 0x2f, 0xfd, 0xff");
    char *block = malloc(size);
    if (block)
        block[0] = 1;
    return block;
}

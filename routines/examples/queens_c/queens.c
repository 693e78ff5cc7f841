/* The placements of N queens on a board, as a tree search in C. */
#include "routines.h"

/* The rows that are filled, and the attacked columns and diagonals of the next one. The state is a stack of these. */
struct board {
    unsigned all, columns, left, right;
};

static int start(rt_cx *cx, rt_bytes *stack) {
    double n;
    if (rt_to_number(rt_argument(cx, 0, "n"), &n) || n < 1 || n > 31) return rt_fail(cx, "n must be a number from 1 to 31");
    struct board board = {(1U << (unsigned)n) - 1, 0, 0, 0};
    rt_append(stack, &board, sizeof board);
    return 0;
}

static int search(rt_cx *cx, rt_bytes *stack) {
    struct board board;
    while (stack->size && !rt_asked()) {
        stack->size -= sizeof board;
        memcpy(&board, stack->data + stack->size, sizeof board);
        rt_count(cx, "states", 1);
        if (board.columns == board.all) rt_count(cx, "solutions", 1);
        unsigned free = board.all & ~(board.columns | board.left | board.right);
        for (unsigned queen; free; free ^= queen) {
            queen = free & -free;
            struct board next = {board.all, board.columns | queen, (board.left | queen) << 1, (board.right | queen) >> 1};
            rt_append(stack, &next, sizeof next);
        }
    }
    return 0;
}

/* Gives away every second board, so that both parts have large and small subtrees. */
static int split(rt_bytes *stack, rt_bytes *part) {
    size_t size = sizeof(struct board), kept = 0;
    if (stack->size < 2 * size) return 0;
    for (size_t i = 0; i < stack->size / size; i++) {
        char *board = stack->data + i * size;
        if (i % 2) rt_append(part, board, size);
        else memmove(stack->data + kept++ * size, board, size);
    }
    stack->size = kept * size;
    return 1;
}

int main(void) {
    static const rt_routine routines[] = {{.name = "Queens", .start = start, .search = search, .split = split}, {.name = NULL}};
    return rt_main(routines);
}

"""The ways to place n queens on a board of n by n squares, none of which attacks another."""

import routines


class Queens(routines.Search):
    def __init__(self, n):
        self.n = n
        # The occupied columns and diagonals above the current row, as bits.
        self.stack = [(0, 0, 0)]

    def search(self, cx):
        asked, full, stack = cx.asked, (1 << self.n) - 1, self.stack
        states = solutions = 0
        while stack and not asked[0]:
            columns, left, right = stack.pop()
            states += 1
            if columns == full:
                solutions += 1
                continue
            free = full & ~(columns | left | right)
            while free:
                queen = free & -free
                free ^= queen
                stack.append((columns | queen, (left | queen) << 1 & full, (right | queen) >> 1))
        cx.count["states"] += states
        cx.count["solutions"] += solutions

    def split(self):
        if len(self.stack) < 2:
            return None
        give, self.stack = self.stack[::2], self.stack[1::2]
        return self.but(stack=give)

// The ways to place n queens on a board of n by n squares, none of which attacks another.

/* global routines */

export class Queens extends routines.Search {
  constructor(n) {
    super();
    this.n = n;
    // The occupied columns and diagonals above the current row, as bits.
    this.stack = [[0, 0, 0]];
  }

  search(cx) {
    const full = (1 << this.n) - 1;
    let [states, solutions] = [0, 0];
    while (this.stack.length && !cx.asked) {
      const [columns, left, right] = this.stack.pop();
      states += 1;
      if (columns === full) solutions += 1;
      for (let free = full & ~(columns | left | right); free; free &= free - 1) {
        const queen = free & -free;
        this.stack.push([columns | queen, ((left | queen) << 1) & full, (right | queen) >> 1]);
      }
    }
    cx.count("states", states);
    cx.count("solutions", solutions);
  }

  split() {
    if (this.stack.length < 2) return null;
    const [give, keep] = [0, 1].map((parity) => this.stack.filter((_, place) => place % 2 === parity));
    this.stack = keep;
    return this.but({ stack: give });
  }
}

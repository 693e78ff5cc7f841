//! A handwritten N-Queens: a recursion over bits.

/// Returns the number of ways to place this many queens.
pub(crate) fn sequential(size: u32) -> u64 {
    fn below(all: u32, columns: u32, left: u32, right: u32) -> u64 {
        if columns == all {
            return 1;
        }
        let mut boards = 0;
        let mut free = all & !(columns | left | right);
        while free != 0 {
            let column = free & free.wrapping_neg();
            free ^= column;
            boards += below(all, columns | column, (left | column) << 1, (right | column) >> 1);
        }
        boards
    }
    below((1 << size) - 1, 0, 0, 0)
}

import java.util.ArrayList;
import java.util.List;
import routines.Routines;

/** The ways to place n queens on a board of n by n squares, none of which attacks another. */
public final class Queens extends Routines.Search {
    private final int n;
    /** The occupied columns and diagonals above the current row, as bits. */
    private List<int[]> stack = new ArrayList<>();

    public Queens(int n) {
        this.n = n;
        stack.add(new int[3]);
    }

    @Override
    public void search(Routines.Context cx) {
        int full = (1 << n) - 1;
        long states = 0, solutions = 0;
        while (!stack.isEmpty() && !cx.asked()) {
            int[] row = stack.remove(stack.size() - 1);
            states++;
            if (row[0] == full) solutions++;
            for (int free = full & ~(row[0] | row[1] | row[2]); free != 0; free &= free - 1) {
                int queen = free & -free;
                stack.add(new int[] {row[0] | queen, (row[1] | queen) << 1 & full, (row[2] | queen) >> 1});
            }
        }
        cx.count("states", states);
        cx.count("solutions", solutions);
    }

    @Override
    public Queens split() {
        if (stack.size() < 2) return null;
        Queens part = new Queens(n);
        List<int[]> all = stack;
        stack = new ArrayList<>();
        part.stack.clear();
        for (int place = 0; place < all.size(); place++) (place % 2 == 0 ? part : this).stack.add(all.get(place));
        return part;
    }
}

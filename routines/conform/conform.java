import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import routines.Routines;

/** The routines that {@code routines conform} calls, as in {@code conform.py}. */
final class conform {
    static Object echo(Object value) {
        return value;
    }

    static double[] doubled(double[] values) {
        return Arrays.stream(values).map(value -> 2 * value).toArray();
    }

    static List<?> pair(Object first) {
        return pair(first, 2);
    }

    static List<?> pair(Object first, Object second) {
        return Arrays.asList(first, second);
    }

    static long fails(long number) {
        if (number < 0) throw new IllegalArgumentException("the number " + number);
        return number;
    }

    static Object invalid(Object value) {
        return new Object();
    }

    static String large(int size) {
        return "x".repeat(size);
    }

    static int prints(int size) {
        System.out.println("to standard output ".repeat(size / 19));
        System.err.println("to standard error");
        return size;
    }

    static long process() {
        return ProcessHandle.current().pid();
    }

    static Object calls(String routine, Object argument) {
        return Routines.call(routine, argument);
    }

    static Object caught(String routine, Object argument) {
        try {
            return Routines.call(routine, argument);
        } catch (Routines.CallError error) {
            return List.of(error.kind, !error.getMessage().isEmpty());
        }
    }

    record State(long number, long total, long restarts, String text) implements Serializable {}

    static List<Long> adds(long last) throws InterruptedException {
        return adds(last, -1);
    }

    static List<Long> adds(long last, long hold) throws InterruptedException {
        return adds(last, hold, 0);
    }

    /** Sums the numbers below {@code last}, and counts its restarts. Without one, it waits at the number {@code hold} for its stop. */
    static List<Long> adds(long last, long hold, int size) throws InterruptedException {
        State state = Routines.restored(new State(0, 0, -1, ""));
        long number = state.number, total = state.total, restarts = state.restarts + 1;
        while (number < last) {
            Routines.checkpoint(new State(number, total, restarts, "x".repeat(size)));
            if (number == hold && restarts == 0) {
                Thread.sleep(0, 100_000);
                continue;
            }
            total += number++;
        }
        return List.of(total, restarts);
    }

    static final class Count extends Routines.Search {
        private final Object cost;
        private Object left;
        private long hold;
        private boolean isOffered;

        Count(Object left) {
            this(left, 0);
        }

        Count(Object left, long hold) {
            this(left, hold, null);
        }

        Count(Object left, long hold, Object cost) {
            this.left = left;
            this.hold = hold;
            this.cost = cost;
        }

        @Override
        public void search(Routines.Context cx) {
            for (long number = (Long) left; number > 0; left = --number) {
                if (number == hold) {
                    hold = 0;
                    // A shim need not split a search that has only started.
                    sleep(10_000_000);
                    while (!cx.asked()) sleep(100_000);
                }
                if (cx.asked()) return;
                cx.count("states", 1);
                if (Double.isFinite(cx.bound())) cx.count("bound", (long) cx.bound());
            }
            if (hold < 0) {
                hold = 0;
                while (!cx.asked()) sleep(100_000);
                return;
            }
            if (cost != null && !isOffered) {
                isOffered = true;
                cx.offer((Double) cost, Map.of("cost", cost));
            }
        }

        @Override
        public Count split() {
            long give = (Long) left / 2;
            if (give == 0) return null;
            left = (Long) left - give;
            return new Count(give, hold, cost);
        }

        private static void sleep(int nanoseconds) {
            java.util.concurrent.locks.LockSupport.parkNanos(nanoseconds);
        }
    }
}

package routines;

import java.io.*;
import java.lang.invoke.*;
import java.lang.reflect.*;
import java.math.BigInteger;
import java.net.*;
import java.nio.*;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.stream.*;
import javax.tools.ToolProvider;

/**
 * Runs the routines of a package for a host: reads frames from one pipe and answers on another.
 *
 * <p>A frame is {@code u32 length, u32 JSON length, JSON, bytes}, little endian. Each call is answered once, by a {@code result}
 * or an {@code error}. Standard output and standard error are the log, so routines may print. JDK 17 or later, no dependencies.
 *
 * <p>A search, or a function with checkpoints, reads the first byte of a mapped page in its loop. When it is set, the shim sends
 * the state.
 */
public final class Routines {
    private static final int FRAME_BYTES_MAX = 64 << 20;
    // Room for the rest of a message around a value.
    private static final int VALUE_BYTES_MAX = FRAME_BYTES_MAX - 1024;
    private static final int DEPTH_MAX = 100;
    private static final long INTEGER_MAX = 1L << 53;
    private static final long FLUSH_NS = 10_000_000;
    private static final int FLUSH_BYTES = 1 << 20;
    private static final int STATE_BYTES_MAX = 1 << 20;
    private static final int SOLUTION_BYTES_MAX = 64 << 10;
    private static final int NAMES_MAX = 1000;
    // Requests in the first byte of the page: 1 and 2 to a search, 3 also to a function, 4 to a function.
    private static final int BOUND = 1, SPLIT = 2, PAUSE = 3;
    // The time that a search runs before it is split again, so that it advances however often parts are requested.
    private static final long SPLIT_NS = 1_000_000;
    private static final Set<Class<?>> INTEGERS = Set.of(Long.class, Integer.class, Short.class, Byte.class, BigInteger.class);
    private static final VarHandle INTS = MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle LONGS = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());

    private static DataInputStream input;
    private static OutputStream output;
    private static MappedByteBuffer page;
    private static ClassLoader loader;
    // The bytes of the last frame.
    private static byte[] bytes = {};
    private static boolean hasSpecial;
    private static StringBuilder results = new StringBuilder();
    private static long flushed = System.nanoTime();
    // The thread of the running function, its id, the state from which it continues, and whether it was stopped.
    private static Thread running;
    private static long id;
    private static byte[] restored;
    private static boolean hasStates, isStopped;

    /** A call has failed. */
    public static final class CallError extends RuntimeException {
        public final String kind, trace;

        CallError(String kind, String message, String trace) {
            super(message);
            this.kind = kind;
            this.trace = trace;
        }
    }

    /** A value that is no argument or result. */
    private static final class Invalid extends RuntimeException {
        Invalid(String message) {
            super(message);
        }
    }

    /** Ends a call that continues elsewhere from its state. */
    private static final class Stopped extends Error {}

    /** A part of a search tree, which is serialized. */
    public abstract static class Search implements Serializable {
        /** Searches until nothing is left, or {@code cx.asked()}. */
        public abstract void search(Context cx);

        /** Removes and returns a part, or null. */
        public abstract Search split();
    }

    /** An array of numbers, row by row in little endian. */
    public record Array(String dtype, List<Long> shape, byte[] data) {
        private static final Map<String, Class<?>> TYPES = Map.of(
            "f64", double.class, "f32", float.class, "i64", long.class, "i32", int.class, "i16", short.class, "i8", byte.class);

        public Array {
            long size = "i8u8i16u16i32u32f32i64u64f64".contains(dtype) ? Integer.parseInt(dtype.substring(1)) / 8 : 0;
            BigInteger count = BigInteger.valueOf(size);
            for (long length : shape) count = length < 0 ? BigInteger.TWO.negate() : count.multiply(BigInteger.valueOf(length));
            if (size == 0 || !count.equals(BigInteger.valueOf(data.length)))
                throw new Invalid("an array of " + data.length + " bytes has the type " + dtype + " and the shape " + shape);
        }

        private static boolean isPossible(Class<?> type) {
            return type != null && TYPES.containsValue(type);
        }

        /** Returns an array of Java as one. */
        public static Array of(Object numbers) {
            Class<?> type = numbers.getClass().getComponentType();
            String dtype = TYPES.entrySet().stream().filter(it -> it.getValue() == type).findAny().get().getKey();
            int count = java.lang.reflect.Array.getLength(numbers), size = Integer.parseInt(dtype.substring(1)) / 8;
            ByteBuffer data = ByteBuffer.allocate(count * size).order(ByteOrder.LITTLE_ENDIAN);
            if (numbers instanceof double[] all) data.asDoubleBuffer().put(all);
            if (numbers instanceof float[] all) data.asFloatBuffer().put(all);
            if (numbers instanceof long[] all) data.asLongBuffer().put(all);
            if (numbers instanceof int[] all) data.asIntBuffer().put(all);
            if (numbers instanceof short[] all) data.asShortBuffer().put(all);
            if (numbers instanceof byte[] all) data.put(all);
            return new Array(dtype, List.of((long) count), data.array());
        }

        /** Returns the numbers in one array of Java, such as {@code double[]} for f64. Unsigned types have the bits of signed ones. */
        public Object numbers() {
            ByteBuffer all = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
            int size = Integer.parseInt(dtype.substring(1)) / 8;
            Object to = java.lang.reflect.Array.newInstance(TYPES.get(dtype.replace('u', 'i')), data.length / size);
            if (to instanceof double[] numbers) all.asDoubleBuffer().get(numbers);
            if (to instanceof float[] numbers) all.asFloatBuffer().get(numbers);
            if (to instanceof long[] numbers) all.asLongBuffer().get(numbers);
            if (to instanceof int[] numbers) all.asIntBuffer().get(numbers);
            if (to instanceof short[] numbers) all.asShortBuffer().get(numbers);
            if (to instanceof byte[] numbers) all.get(numbers);
            return to;
        }
    }

    /** The job of a running search. */
    public static final class Context {
        private final Map<String, Long> counts = new HashMap<>();
        private double bound = Double.POSITIVE_INFINITY;

        /** Returns whether the search must return. */
        public boolean asked() {
            return request() != 0;
        }

        /** Returns the least cost that is known. */
        public double bound() {
            return bound;
        }

        /** Adds to a number that is summed over the whole tree. */
        public void count(String name, long number) {
            counts.merge(name, number, Math::addExact);
        }

        /** Offers a solution. Returns whether its cost is less than that of the best known one. */
        public boolean offer(double cost, Object solution) {
            if (!Double.isFinite(cost)) throw new IllegalArgumentException("the cost of a solution is " + cost + ", which is not finite");
            if (cost >= bound) return false;
            String encoded = encode(solution, SOLUTION_BYTES_MAX);
            Routines.send("{\"type\":\"offer\",\"cost\":" + cost + ",\"solution\":" + encoded + "}");
            bound = cost;
            return true;
        }

        // Reads the bound. While it is written, its copies differ.
        private void begin() {
            long word;
            do word = (long) LONGS.getVolatile(page, 8);
            while (word != (long) LONGS.getVolatile(page, 16));
            bound = Math.min(bound, Double.longBitsToDouble(word));
        }

        private void send(String type, int part, byte[]... states) {
            if (counts.size() > NAMES_MAX) throw new Invalid("cx.count has more than " + NAMES_MAX + " names");
            if (counts.values().stream().anyMatch(number -> Math.abs(number) > INTEGER_MAX))
                throw new Invalid("a number of cx.count exceeds 2^53: add less at a time");
            Routines.send("{\"type\":\"" + type + "\",\"part\":" + part + ",\"counts\":" + encode(counts, VALUE_BYTES_MAX) + "}", states);
            counts.clear();
        }
    }

    /** Calls another routine from a running one, and returns its result. */
    public static Object call(String routine, Object... arguments) {
        check("call");
        flush();
        String encoded = encode(Arrays.asList(arguments), VALUE_BYTES_MAX);
        send("{\"type\":\"call\",\"routine\":" + encode(routine, VALUE_BYTES_MAX) + ",\"argument\":" + encoded + "}");
        Map<?, ?> answer = receive();
        if (answer.get("error") instanceof Map<?, ?> error)
            throw new CallError((String) error.get("kind"), (String) error.get("message"), Objects.toString(error.get("trace"), ""));
        return decode(answer.get("value"));
    }

    /** Offers a state from which the running call can continue, in case it is interrupted here or later. */
    public static void checkpoint(Serializable state) {
        check("checkpoint");
        if (isStopped) throw new Stopped();
        // The first state of a process is due, since the host learns by it.
        if (hasStates && request() == 0) return;
        hasStates = true;
        flush();
        byte[] encoded = serialized(state);
        isStopped = request() == PAUSE;
        // Before the state is sent. The host repeats a request that is cleared here.
        if (!isStopped) page.put(0, (byte) 0);
        send("{\"type\":\"checkpoint\",\"id\":" + id + "}", encoded);
        if (isStopped) throw new Stopped();
    }

    /** Returns the state from which the running call continues, or the default if it starts. */
    @SuppressWarnings("unchecked")
    public static <T> T restored(T initial) {
        check("restored");
        return restored.length == 0 ? initial : (T) deserialized(restored);
    }

    private static void check(String name) {
        if (Thread.currentThread() != running)
            throw new IllegalStateException("Routines." + name + " works in the thread of a running routine that is a function");
    }

    private static int request() {
        return (int) INTS.getVolatile(page, 0) & 0xff;
    }

    private static byte[] serialized(Object state) {
        ByteArrayOutputStream to = new ByteArrayOutputStream();
        try (ObjectOutputStream objects = new ObjectOutputStream(to)) {
            objects.writeObject(state);
        } catch (IOException error) {
            throw new Invalid("the state cannot be serialized: " + error);
        }
        if (to.size() > STATE_BYTES_MAX) throw new Invalid("the state has more than " + STATE_BYTES_MAX + " bytes: keep large data in files");
        return to.toByteArray();
    }

    private static Object deserialized(byte[] state) {
        try (ObjectInputStream objects = new ObjectInputStream(new ByteArrayInputStream(state)) {
            @Override
            protected Class<?> resolveClass(ObjectStreamClass type) throws IOException, ClassNotFoundException {
                try {
                    return Class.forName(type.getName(), false, loader);
                } catch (ClassNotFoundException error) {
                    return super.resolveClass(type);
                }
            }
        }) {
            return objects.readObject();
        } catch (IOException | ClassNotFoundException error) {
            throw new IllegalStateException("the state cannot be read: " + error);
        }
    }

    /** A parser of valid JSON: maps, lists, strings, {@code Long}, {@code Double}, {@code Boolean} and null. */
    private static final class Parser {
        private final String text;
        private int at;

        Parser(String text) {
            this.text = text;
        }

        Object parse() {
            char first = next();
            switch (first) {
                case '{': {
                    Map<String, Object> map = new LinkedHashMap<>();
                    at++;
                    if (next() != '}') do {
                        String key = (String) parse();
                        at(':');
                        map.put(key, parse());
                    } while (at(','));
                    return end(map);
                }
                case '[': {
                    List<Object> list = new ArrayList<>();
                    at++;
                    if (next() != ']') do list.add(parse()); while (at(','));
                    return end(list);
                }
                case '"':
                    return string();
                default:
                    int from = at;
                    while (at < text.length() && ",]} \n\r\t".indexOf(text.charAt(at)) < 0) at++;
                    return word(text.substring(from, at));
            }
        }

        // Returns the next character that is no space.
        private char next() {
            while (" \n\r\t".indexOf(text.charAt(at)) >= 0) at++;
            return text.charAt(at);
        }

        private boolean at(char expected) {
            boolean is = next() == expected;
            if (is) at++;
            return is;
        }

        private Object end(Object value) {
            next();
            at++;
            return value;
        }

        private Object word(String word) {
            if (word.equals("null")) return null;
            if (word.equals("true") || word.equals("false")) return word.equals("true");
            return word.matches("-?[0-9]+") && !word.equals("-0") ? (Object) Long.valueOf(word) : (Object) Double.valueOf(word);
        }

        private String string() {
            StringBuilder to = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char c = text.charAt(at);
                if (c != '\\') {
                    to.append(c);
                    continue;
                }
                c = text.charAt(++at);
                int place = "bfnrt".indexOf(c);
                if (c == 'u') {
                    c = (char) Integer.parseInt(text.substring(at + 1, at + 5), 16);
                    at += 4;
                }
                to.append(place < 0 ? c : "\b\f\n\r\t".charAt(place));
            }
            at++;
            return to.toString();
        }
    }

    /** Converts maps that stand for numbers, arrays and paths of files. */
    private static Object decode(Object value) {
        if (!hasSpecial) return value;
        if (value instanceof List<?> list) return list.stream().map(Routines::decode).collect(Collectors.toCollection(ArrayList::new));
        if (!(value instanceof Map<?, ?> map)) return value;
        String key = map.size() == 1 ? (String) map.keySet().iterator().next() : "";
        Object inner = map.get(key);
        try {
            switch (key) {
                case "$file": return inner;
                case "$i": {
                    BigInteger integer = new BigInteger(String.valueOf(inner));
                    return isExact(integer) ? (Object) integer.longValue() : integer;
                }
                case "$f": return switch (String.valueOf(inner)) {
                    case "nan" -> Double.NaN;
                    case "inf" -> Double.POSITIVE_INFINITY;
                    case "-inf" -> Double.NEGATIVE_INFINITY;
                    default -> Double.parseDouble(String.valueOf(inner));
                };
                case "$a": {
                    Map<?, ?> array = (Map<?, ?>) inner;
                    List<Long> shape = ((List<?>) array.get("shape")).stream().map(Long.class::cast).toList();
                    return new Array((String) array.get("dtype"), shape, Base64.getDecoder().decode((String) array.get("data")));
                }
                default: {
                    Map<Object, Object> decoded = new LinkedHashMap<>();
                    map.forEach((name, part) -> decoded.put(name, decode(part)));
                    return decoded;
                }
            }
        } catch (ClassCastException | IllegalArgumentException | NullPointerException error) {
            throw new Invalid("the argument is invalid: " + error.getMessage());
        }
    }

    private static boolean isExact(BigInteger integer) {
        return integer.abs().compareTo(BigInteger.valueOf(INTEGER_MAX)) <= 0;
    }

    private static String encode(Object value, int most) {
        StringBuilder to = new StringBuilder();
        write(value, to, 0);
        if (to.length() > most || to.toString().getBytes(StandardCharsets.UTF_8).length > most)
            throw new Invalid("the result has more than " + most + " bytes as JSON");
        return to.toString();
    }

    private static void write(Object value, StringBuilder to, int depth) {
        if (value == null || value instanceof Boolean) to.append(value);
        else if (value instanceof Double || value instanceof Float) {
            double number = ((Number) value).doubleValue();
            if (Double.isFinite(number)) to.append(number);
            else to.append("{\"$f\":\"").append(Double.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf").append("\"}");
        } else if (value instanceof Number) {
            if (!INTEGERS.contains(value.getClass()))
                throw new Invalid("a " + value.getClass().getName() + " is no result: return a long, BigInteger or double");
            if (isExact(new BigInteger(value.toString()))) to.append(value);
            else to.append("{\"$i\":\"").append(value).append("\"}");
        } else if (value instanceof CharSequence || value instanceof Character) writeText(value.toString(), to);
        else if (value instanceof Array array) {
            to.append("{\"$a\":{\"dtype\":\"").append(array.dtype).append("\",\"shape\":").append(array.shape);
            to.append(",\"data\":\"").append(Base64.getEncoder().encodeToString(array.data)).append("\"}}");
        } else if (Array.isPossible(value.getClass().getComponentType())) write(Array.of(value), to, depth);
        else if (depth >= DEPTH_MAX) throw new Invalid("the result is nested more than " + DEPTH_MAX + " deep");
        else if (value instanceof Object[] list) write(Arrays.asList(list), to, depth);
        else if (value instanceof List<?> list) {
            String separator = "[";
            for (Object part : list) {
                to.append(separator);
                write(part, to, depth + 1);
                separator = ",";
            }
            to.append(list.isEmpty() ? "[]" : "]");
        } else if (value instanceof Map<?, ?> map) {
            String separator = "{";
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                if (!(entry.getKey() instanceof String key))
                    throw new Invalid("a map in the result has the key " + entry.getKey() + ", which is no String");
                if (map.size() == 1 && key.startsWith("$")) throw new Invalid("a map with one key that starts with $ in the result is reserved");
                writeText(key, to.append(separator));
                write(entry.getValue(), to.append(':'), depth + 1);
                separator = ",";
            }
            to.append(map.isEmpty() ? "{}" : "}");
        } else throw new Invalid("a " + value.getClass().getName() + " is no result: return null, a Boolean, number, String, List, Map or array");
    }

    private static void writeText(String text, StringBuilder to) {
        to.append('"');
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            if (c == '"' || c == '\\') to.append('\\').append(c);
            else if (c < 0x20) to.append(String.format("\\u%04x", (int) c));
            else if (Character.isSurrogate(c)) {
                if (!Character.isHighSurrogate(c) || at + 1 == text.length() || !Character.isLowSurrogate(text.charAt(at + 1)))
                    throw new Invalid("a String in the result has half of a surrogate pair, which is no character");
                to.append(c).append(text.charAt(++at));
            } else to.append(c);
        }
        to.append('"');
    }

    private static Map<?, ?> receive() {
        try {
            int length = Integer.reverseBytes(input.readInt()), jsonLength = Integer.reverseBytes(input.readInt());
            if (length < 4 || length > FRAME_BYTES_MAX || jsonLength < 0 || jsonLength > length - 4)
                throw exit("the host has sent a frame of " + length + " bytes with JSON of " + jsonLength + " bytes");
            byte[] content = new byte[length - 4];
            input.readFully(content);
            String text = new String(content, 0, jsonLength, StandardCharsets.UTF_8);
            bytes = Arrays.copyOfRange(content, jsonLength, content.length);
            hasSpecial = text.contains("$") || text.contains("\\u0024");
            return (Map<?, ?>) new Parser(text).parse();
        } catch (EOFException error) {
            System.out.flush();
            // Threads and hooks of the routine cannot delay the end.
            Runtime.getRuntime().halt(0);
        } catch (IOException | RuntimeException error) {
            throw exit("the host has sent a wrong message: " + error);
        }
        return null;
    }

    private static Error exit(String message) {
        try {
            System.err.println(message);
        } finally {
            // Threads and hooks of the routine cannot delay the end.
            Runtime.getRuntime().halt(1);
        }
        return new Error(message);
    }

    private static void send(String message, byte[]... states) {
        byte[] json = message.getBytes(StandardCharsets.UTF_8);
        int size = json.length + Stream.of(states).mapToInt(state -> state.length).sum();
        ByteBuffer frame = ByteBuffer.allocate(8 + size).order(ByteOrder.LITTLE_ENDIAN).putInt(4 + size).putInt(json.length).put(json);
        for (byte[] state : states) frame.put(state);
        try {
            output.write(frame.array());
        } catch (IOException error) {
            throw exit("the host does not read: " + error);
        }
    }

    private static void flush() {
        if (results.length() > 0) send("{\"type\":\"result\",\"values\":[" + results + "]}");
        results = new StringBuilder();
        flushed = System.nanoTime();
    }

    private static void answer(String encoded) {
        if (results.length() + encoded.length() > FLUSH_BYTES) flush();
        results.append(results.length() > 0 ? ",[" : "[").append(id).append(',').append(encoded).append(']');
        if (System.nanoTime() - flushed > FLUSH_NS) flush();
    }

    /** Reports the failure of a call, of a search, or of the load. */
    private static void fail(Throwable error, boolean isCall) {
        flush();
        if (error instanceof InvocationTargetException && error.getCause() != null) error = error.getCause();
        boolean isInvalid = error instanceof Invalid;
        String message, lines;
        try {
            message = String.valueOf(isInvalid || error instanceof CallError ? error.getMessage() : error.toString());
            lines = trace(error);
        } catch (Throwable other) {
            // The routine may define the methods of its exceptions.
            message = "a " + error.getClass().getName() + ", which throws a " + other.getClass().getName() + " when it is described";
            lines = "";
        }
        if (error instanceof AccessDeniedException && System.getenv("ROUTINES_ISOLATED") != null)
            message += ": routines are isolated: --read, --write and --network grant files and ports";
        StringBuilder json = new StringBuilder("{\"type\":\"error\",\"kind\":\"" + (isInvalid ? "invalid" : "user") + "\",\"message\":");
        writeText(clean(message, 4096), json);
        writeText(isInvalid ? "" : clean(lines, 16384), json.append(",\"trace\":"));
        send(json.append(isCall ? ",\"id\":" + id + "}" : "}").toString());
    }

    // Returns the stack without methods of this class and of reflection.
    private static String trace(Throwable error) {
        StringWriter trace = new StringWriter();
        error.printStackTrace(new PrintWriter(trace, true));
        String own = "\\s*at (routines\\.Routines|java\\.base/(java\\.lang|jdk\\.internal)\\.reflect)\\b.*";
        String lines = trace.toString().lines().filter(line -> !line.matches(own)).collect(Collectors.joining("\n"));
        return error instanceof CallError called ? lines + "\n\n" + called.trace : lines;
    }

    // Replaces halves of surrogate pairs, which are no characters.
    private static String clean(String text, int most) {
        String cut = text.substring(0, Math.min(text.length(), most));
        return new String(cut.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
    }

    /** Makes a call of a method, or creates a search. A list has positional arguments, a map named ones, another value is the only one. */
    private static Object invoke(List<? extends Executable> all, Object argument) throws ReflectiveOperationException {
        Map<?, ?> named = argument instanceof Map<?, ?> map ? map : null;
        List<?> list = argument instanceof List<?> positional ? positional : Collections.singletonList(argument);
        String reason = null;
        for (Executable method : all) {
            Parameter[] parameters = method.getParameters();
            List<String> names = Stream.of(parameters).map(Parameter::getName).toList();
            if (named != null ? !named.keySet().equals(Set.copyOf(names)) : list.size() != parameters.length) continue;
            Object[] values = new Object[parameters.length];
            try {
                for (int i = 0; i < values.length; i++)
                    values[i] = convert(named != null ? named.get(names.get(i)) : list.get(i), parameters[i]);
            } catch (ArithmeticException | ClassCastException error) {
                reason = error.getMessage();
                continue;
            }
            return method instanceof Method it ? it.invoke(null, values) : ((Constructor<?>) method).newInstance(values);
        }
        if (reason != null) throw new IllegalArgumentException(reason);
        String found = named != null ? "the parameters " + named.keySet() : list.size() + " parameters";
        throw new IllegalArgumentException(all.get(0).getName() + " has no overload with " + found);
    }

    private static Object convert(Object value, Parameter parameter) {
        Class<?> type = parameter.getType();
        if (value instanceof Number number) {
            boolean isWhole = value instanceof Long || value instanceof Double real && real == Math.rint(real) && Math.abs(real) <= INTEGER_MAX;
            if (type == double.class || type == Double.class) return number.doubleValue();
            if (type == float.class || type == Float.class) return number.floatValue();
            if (isWhole && (type == long.class || type == Long.class)) return number.longValue();
            if (isWhole && (type == int.class || type == Integer.class)) return Math.toIntExact(number.longValue());
            if (isWhole && type == BigInteger.class) return BigInteger.valueOf(number.longValue());
        }
        if (value instanceof Array array && type.isArray()) value = array.numbers();
        if (value instanceof List<?> list && type == double[].class) return list.stream().mapToDouble(it -> ((Number) it).doubleValue()).toArray();
        if (value instanceof List<?> list && type == long[].class) return list.stream().mapToLong(it -> (Long) it).toArray();
        if (type == boolean.class && value instanceof Boolean || value == null && !type.isPrimitive() || type.isInstance(value)) return value;
        String found = value == null ? "null" : "a " + value.getClass().getSimpleName();
        throw new ClassCastException("the argument " + parameter.getName() + " is " + found + ", not a " + type.getSimpleName());
    }

    /** Returns the methods, or the constructors of the search, with the name of an entry. */
    private static List<? extends Executable> load(Map<?, ?> message) throws ReflectiveOperationException, IOException {
        String[] entry = ((String) message.get("entry")).split(":");
        Path folder = Path.of((String) message.get("folder")), classes = Path.of(System.getProperty("routines.cache", ""), "classes");
        List<Path> files;
        try (Stream<Path> all = Files.walk(folder)) {
            files = all.toList();
        }
        List<Path> path = new ArrayList<>(List.of(folder, classes.toAbsolutePath()));
        files.stream().filter(file -> file.toString().endsWith(".jar")).forEach(path::add);
        List<String> sources = files.stream().map(Path::toString).filter(file -> file.endsWith(".java")).toList();
        if (!sources.isEmpty() && !Files.exists(classes)) compile(sources, path, classes);
        URL[] urls = new URL[path.size()];
        for (int i = 0; i < urls.length; i++) urls[i] = path.get(i).toUri().toURL();
        loader = new URLClassLoader(urls, Routines.class.getClassLoader());
        Thread.currentThread().setContextClassLoader(loader);
        Class<?> module = Class.forName(entry[0], true, loader);
        List<? extends Executable> found;
        boolean isSearch = message.get("kind").equals("search");
        if (isSearch) {
            Class<?> search = entry[1].equals(module.getSimpleName()) ? module : Class.forName(entry[0] + "$" + entry[1], true, loader);
            if (!Search.class.isAssignableFrom(search)) throw new ClassCastException(search.getName() + " is no subclass of Routines.Search");
            found = List.of(search.getDeclaredConstructors());
        } else {
            Stream<Method> methods = Stream.of(module.getDeclaredMethods()).filter(it -> it.getName().equals(entry[1]));
            found = methods.filter(it -> Modifier.isStatic(it.getModifiers())).toList();
        }
        if (found.isEmpty()) throw new NoSuchMethodException(module.getName() + " has no static method " + entry[1]);
        found.forEach(method -> method.setAccessible(true));
        return found;
    }

    /** Compiles the sources of a package, whose processes share the classes. */
    private static void compile(List<String> sources, List<Path> path, Path to) throws IOException {
        Path own = Files.createTempDirectory(to.toAbsolutePath().getParent(), "classes-");
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        String classes = path.stream().map(file -> file + ":").collect(Collectors.joining()) + System.getProperty("java.class.path");
        List<String> words = new ArrayList<>(List.of("-parameters", "-nowarn", "-proc:none", "-d", own.toString(), "-cp", classes));
        words.addAll(sources);
        int status = ToolProvider.getSystemJavaCompiler().run(null, errors, errors, words.toArray(String[]::new));
        if (status != 0) throw new Invalid(errors.toString().trim());
        try {
            Files.move(own, to, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            // Another process was faster.
            if (!Files.exists(to)) throw error;
        }
    }

    /** Makes calls until one is stopped. */
    private static void runAll(List<? extends Executable> routine, List<?> calls) {
        // A single call may continue from its state. Later frames replace the bytes, and whether there are special values.
        byte[] state = bytes;
        boolean isSpecial = hasSpecial;
        isStopped = false;
        running = Thread.currentThread();
        for (Iterator<?> all = calls.iterator(); all.hasNext() && !isStopped; ) {
            List<?> call = (List<?>) all.next();
            id = (Long) call.get(0);
            restored = state;
            hasSpecial = isSpecial;
            try {
                String encoded = encode(invoke(routine, decode(call.get(1))), VALUE_BYTES_MAX);
                // Also if the routine has caught the stop.
                if (!isStopped) answer(encoded);
            } catch (Throwable error) {
                if (!isStopped) fail(error, true);
            }
        }
        running = null;
        System.out.flush();
        flush();
        if (isStopped) send("{\"type\":\"stopped\"}");
    }

    /** Runs a search from its state or its argument. Returns the message that has replaced it, if there is one. */
    private static Map<?, ?> runSearch(List<? extends Executable> routine, Object argument) {
        try {
            Search search = (Search) (bytes.length > 0 ? deserialized(bytes) : invoke(routine, decode(argument)));
            Context cx = new Context();
            for (long since = System.nanoTime(); ; ) {
                cx.begin();
                search.search(cx);
                int asked = request();
                if (asked == 0) {
                    cx.send("result", 0);
                    return null;
                }
                if (asked == BOUND || asked == SPLIT && System.nanoTime() - since < SPLIT_NS) {
                    // Before the bound is read. The host repeats a request that is cleared here.
                    page.put(0, (byte) 0);
                    continue;
                }
                Search part = asked == SPLIT ? search.split() : null;
                byte[] given = part == null ? new byte[0] : serialized(part);
                cx.send(part == null ? "paused" : "child", given.length, given, serialized(search));
                Map<?, ?> message = receive();
                if (!message.get("type").equals("go")) return message;
                since = System.nanoTime();
            }
        } catch (Throwable error) {
            fail(error, false);
            return null;
        }
    }

    /** Prints the paths that the Java machine reads, for its isolation. */
    private static void printPaths() throws IOException {
        Path home = Path.of(System.getProperty("java.home"));
        Set<String> paths = new LinkedHashSet<>(List.of(home.resolve("bin/java").toString(), home.toRealPath().toString()));
        for (String folder : List.of("conf", "lib/security")) {
            try (Stream<Path> files = Files.walk(home.resolve(folder))) {
                for (Path file : files.filter(Files::exists).toList()) paths.add(file.toRealPath().toString());
            }
        }
        System.out.print(String.join("\0", paths));
    }

    public static void main(String[] arguments) {
        try {
            if (arguments.length > 0) printPaths();
            else serve();
        } catch (Throwable error) {
            try {
                error.printStackTrace();
            } finally {
                // Otherwise threads of the routine keep the process alive, and its call waits for it.
                Runtime.getRuntime().halt(1);
            }
        }
    }

    /** Answers messages until the host ends. */
    private static void serve() throws IOException {
        input = new DataInputStream(new BufferedInputStream(new FileInputStream(System.getenv("ROUTINES_IN")), 1 << 16));
        output = new FileOutputStream(System.getenv("ROUTINES_OUT"));
        try (RandomAccessFile file = new RandomAccessFile(System.getenv("ROUTINES_PAGE"), "rw")) {
            page = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 24);
        }
        List<? extends Executable> routine = null;
        for (Map<?, ?> following = null; ; ) {
            Map<?, ?> message = following == null ? receive() : following;
            following = null;
            switch (String.valueOf(message.get("type"))) {
                case "hello" -> {
                    List<?> versions = (List<?>) message.get("versions");
                    if (!versions.contains(1L)) throw exit("the host speaks versions " + versions + " of the protocol, this shim 1");
                    send("{\"type\":\"ready\",\"version\":1,\"language\":\"java " + Runtime.version().feature() + "\"}");
                }
                case "load" -> {
                    try {
                        routine = load(message);
                        send("{\"type\":\"ready\"}");
                    } catch (Throwable error) {
                        fail(error instanceof Invalid ? new IllegalArgumentException(error.getMessage()) : error, false);
                    }
                }
                case "call" -> runAll(routine, List.of(Arrays.asList(message.get("id"), message.get("argument"))));
                case "many" -> runAll(routine, (List<?>) message.get("calls"));
                case "search" -> following = runSearch(routine, message.get("argument"));
                default -> throw exit("the host has sent the unknown message " + message.get("type"));
            }
        }
    }
}

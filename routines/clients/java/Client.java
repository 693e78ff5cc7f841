package routines;

import java.io.IOException;
import java.lang.reflect.Array;
import java.math.BigInteger;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * Calls functions of a library of routines that runs on a cluster. Java 17 or later, no dependencies.
 *
 * <pre>{@code
 * Client r = Client.connect("http://127.0.0.1:8790");
 * r.call("square@1.0", 12);                                 // one call; Client.named(Map.of("n", 12)) has named arguments
 * Client.Job job = r.map("square@1.0", Client.range(0, 1000));  // a job of many calls
 * job.progress(Duration.ofSeconds(1), state -> System.out.println(state.get("ended")));
 * job.values();                                             // or results(), each with a value or an error
 * r.job("j-0000000003");                                    // later, or elsewhere
 * Client.Space cases = Client.product(Map.of("x", Client.range(0, 1_000_000), "y", List.of(0.1, 0.2)));
 * r.submit("f@1.0", cases, Map.of("reduce", List.of("mean"))).reduced().get("mean");
 * }</pre>
 *
 * <p>Values are null, Boolean, Long, BigInteger, Double, String, List and Map; arguments also arrays of numbers. An array of numbers
 * in a result is an {@link Numbers}.
 *
 * <p>A token is in the variable ROUTINES_TOKEN, or in the file of the variable ROUTINES_TOKEN_FILE.
 */
public final class Client {
    private static final long INTEGER_MAX = 1L << 53;
    private static final int WAIT_SECONDS = 30;
    private static final Set<String> OVER = Set.of("successful", "incomplete", "failed", "cancelled");

    private final String url;
    private final Duration timeout;
    private final String token;
    private final HttpClient http = HttpClient.newHttpClient();

    /** The gateway refuses a request, or is not reached: then the status is 0. */
    public static final class RequestError extends RuntimeException {
        public final int status;

        RequestError(int status, String detail, Exception cause) {
            super(detail, cause);
            this.status = status;
        }
    }

    /** A job has no results. */
    public static final class JobError extends RuntimeException {
        JobError(String message) {
            super(message);
        }
    }

    /** A call has failed. The kind is user, invalid, crash, timeout or outcome-unknown; the trace is that of the routine. */
    public static final class CallError extends RuntimeException {
        public final String kind, trace;

        CallError(Map<?, ?> error) {
            super((String) error.get("message"));
            kind = (String) error.get("kind");
            trace = Objects.toString(error.get("trace"), "");
        }
    }

    /** The outcome of one call. */
    public static final class Result {
        public final long index;
        /** Null if the call was successful. */
        public final CallError error;
        private final Object value;

        private Result(Object line) {
            Map<?, ?> map = (Map<?, ?>) line;
            index = (Long) map.get("index");
            value = map.get("value");
            error = map.get("error") instanceof Map<?, ?> failed ? new CallError(failed) : null;
        }

        /** Returns the value; throws the error of a failed call. */
        public Object value() {
            if (error != null) throw error;
            return value;
        }
    }

    /** A file that was uploaded by {@code put}. As a part of an argument, the routine gets the path of a local copy. */
    public record Resource(String name) {}

    /** The arguments of the calls of a job, or an axis of others, which nodes compute. */
    public record Space(Object document) {}

    /** The named arguments of a call. */
    public record Named(Map<String, ?> values) {}

    /** An array of numbers with a shape, row by row: {@code numbers} is a double[], float[], long[], int[], short[] or byte[]. */
    public record Numbers(String dtype, List<?> shape, Object numbers) {}

    private Client(String url, Duration timeout) {
        this.url = url.replaceAll("/+$", "");
        this.timeout = timeout;
        this.token = tokenFor(URI.create(url));
    }

    /** Returns the token for a gateway, which is sent over TLS or to this machine only. */
    private static String tokenFor(URI url) {
        String file = System.getenv("ROUTINES_TOKEN_FILE"), token = System.getenv("ROUTINES_TOKEN");
        try {
            if (file != null && !file.isEmpty()) token = Files.readString(Path.of(file));
        } catch (IOException error) {
            throw new IllegalArgumentException("ROUTINES_TOKEN_FILE: " + error, error);
        }
        token = token == null ? "" : token.strip();
        boolean isHere = String.valueOf(url.getHost()).matches("localhost|127(\\.\\d+){3}|\\[::1\\]");
        if (!token.isEmpty() && !"https".equalsIgnoreCase(url.getScheme()) && !isHere) {
            throw new IllegalArgumentException("the token is not sent to " + url + ", which others could read: use https, or unset ROUTINES_TOKEN");
        }
        return token;
    }

    public static Client connect(String url) {
        return new Client(url, Duration.ofSeconds(90));
    }

    /** Returns a client of the gateway at this address. Each request may take this time. */
    public static Client connect(String url, Duration timeout) {
        return new Client(url, timeout);
    }

    public static Named named(Map<String, ?> values) {
        return new Named(values);
    }

    /** Returns the integers from one, excluding another. */
    public static Space range(long from, long to) {
        return new Space(Map.of("range", List.of(from, Math.max(from, to))));
    }

    /** Returns all combinations of the values of axes: a list of them, or a map with names. The last axis changes fastest. */
    public static Space product(Object axes) {
        return new Space(Map.of("product", documents(axes)));
    }

    /** Returns the values of axes with the same index. */
    public static Space zipped(Object axes) {
        return new Space(Map.of("zip", documents(axes)));
    }

    private static Object documents(Object axes) {
        if (axes instanceof List<?> list) return list.stream().map(Client::document).toList();
        Map<Object, Object> documents = new LinkedHashMap<>();
        ((Map<?, ?>) axes).forEach((name, axis) -> documents.put(name, document(axis)));
        return documents;
    }

    private static Object document(Object axis) {
        return axis instanceof Space space ? space.document : axis;
    }

    /** Calls a routine with positional arguments, or with one {@link Named}, and returns its result. */
    public Object call(String routine, Object... arguments) {
        return new Result(ask("POST", "/v1/routines/" + place(routine) + "/call", argument("argument", arguments))).value();
    }

    /** Starts a job with one call for each value, which is its only argument, or with the arguments of a space. */
    public Job map(String routine, Object values) {
        return submit(routine, values instanceof Space ? values : ((List<?>) values).stream().map(Collections::singletonList).toList(), Map.of());
    }

    /**
     * Starts a job in which each list has positional arguments, and each map named ones, or with those of a space. Options: "reduce"
     * and "by" as in REST.
     */
    public Job submit(String routine, Object points, Map<String, ?> options) {
        Map<String, Object> body = new HashMap<>(options);
        body.putAll(Map.of("routine", routine, "arguments", document(points)));
        return job((String) map(ask("POST", "/v1/jobs", body)).get("job"));
    }

    /** Starts a search with positional arguments, or with one {@link Named}. */
    public Job search(String routine, Object... arguments) {
        Map<String, Object> body = argument("argument", arguments);
        body.put("routine", routine);
        return job((String) map(ask("POST", "/v1/jobs", body)).get("job"));
    }

    /** Returns a job that was started earlier or elsewhere. */
    public Job job(String id) {
        return new Job(id);
    }

    /** Uploads a file as a resource. An earlier one with this name is replaced for new jobs. */
    public Resource put(String name, Path file) throws IOException {
        send("PUT", "/v1/resources/" + place(name), BodyPublishers.ofFile(file), "*/*", BodyHandlers.ofString());
        return new Resource(name);
    }

    private static Map<String, Object> argument(String name, Object[] arguments) {
        boolean isNamed = arguments.length == 1 && arguments[0] instanceof Named;
        return new HashMap<>(Map.of(name, isNamed ? ((Named) arguments[0]).values : Arrays.asList(arguments)));
    }

    private static String place(String name) {
        return URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20").replace("%40", "@");
    }

    private static Map<?, ?> map(Object value) {
        return (Map<?, ?>) value;
    }

    private Object ask(String method, String path, Object body) {
        StringBuilder json = new StringBuilder();
        if (body != null) write(body, json);
        BodyPublisher content = body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(json.toString());
        return decode(new Parser(send(method, path, content, "application/json", BodyHandlers.ofString())).parse());
    }

    private <T> T send(String method, String path, BodyPublisher body, String accept, HttpResponse.BodyHandler<T> handler) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path)).timeout(timeout).method(method, body).header("accept", accept);
        if (method.equals("POST")) request.header("content-type", "application/json");
        if (!token.isEmpty()) request.header("authorization", "Bearer " + token);
        try {
            HttpResponse<T> answer = http.send(request.build(), handler);
            if (answer.statusCode() < 300) return answer.body();
            boolean isStream = answer.body() instanceof Stream<?>;
            String text = isStream ? ((Stream<?>) answer.body()).toList().toString() : answer.body().toString();
            boolean isProblem = answer.headers().firstValue("content-type").orElse("").contains("json");
            throw new RequestError(answer.statusCode(), isProblem ? (String) map(new Parser(text).parse()).get("detail") : text, null);
        } catch (IOException error) {
            throw new RequestError(0, method + " " + url + path + ": " + error, error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new RequestError(0, "the request was interrupted", error);
        }
    }

    /** A job of calls. Its id is enough to find it again. */
    public final class Job {
        public final String id;

        private Job(String id) {
            this.id = id;
        }

        /** Returns the state, with the numbers of calls and of those that have ended. */
        public Map<?, ?> status() {
            return status(0);
        }

        private Map<?, ?> status(long seconds) {
            return map(ask("GET", path() + "?wait=" + seconds, null));
        }

        /** Passes the state to a display at intervals of at least a second, and at last that of the job that is over. */
        public void progress(Duration every, Consumer<Map<?, ?>> display) {
            for (Map<?, ?> status = status(); ; status = status(Math.min(Math.max(1, every.toSeconds()), WAIT_SECONDS))) {
                display.accept(status);
                if (OVER.contains(status.get("state"))) return;
            }
        }

        /** Waits until the job is over, and returns its state. */
        public Map<?, ?> await() {
            long most = Math.max(1, Math.min(WAIT_SECONDS, timeout.toSeconds() / 2));
            while (true) {
                Map<?, ?> status = status(most);
                if (OVER.contains(status.get("state"))) return status;
            }
        }

        /** Waits until the job is over, and returns all results, sorted by index. Close the stream, or read it to its end. */
        public Stream<Result> results() {
            succeed();
            return send("GET", path() + "/results", BodyPublishers.noBody(), "application/x-ndjson", BodyHandlers.ofLines())
                .map(line -> new Result(decode(new Parser(line).parse())));
        }

        /** Waits until the job is over, and returns the values. Throws the error of the first failed call. */
        public List<Object> values() {
            List<Object> values = new ArrayList<>();
            try (Stream<Result> results = results()) {
                results.forEach(result -> values.add(result.value()));
            }
            return values;
        }

        /** Waits until a search is over, and returns its {@code counts} and the {@code best} solution with its cost, or null. */
        public Map<?, ?> found() {
            succeed();
            return map(ask("GET", path() + "/results", null));
        }

        /** Waits until the job is over, and returns the numbers that "reduce" has requested; with "by", a list of groups. */
        public Map<?, ?> reduced() {
            Map<?, ?> status = succeed();
            Map<?, ?> failed = map(map(status.get("tally")).get("failed"));
            if (!failed.isEmpty()) throw new JobError("calls of job " + id + " have failed: " + failed);
            if (status.get("reason") != null) throw new JobError("job " + id + ": " + status.get("reason"));
            return map(status.get("reduced"));
        }

        public void cancel() {
            ask("POST", path() + "/cancel", null);
        }

        /** Starts a job of the failed calls of this one, which is over. Their indices remain. It is started once. */
        public Job rerun() {
            return new Job((String) map(ask("POST", path() + "/rerun", null)).get("job"));
        }

        private Map<?, ?> succeed() {
            Map<?, ?> status = await();
            if (status.get("state").equals("successful")) return status;
            throw new JobError("job " + id + " is " + status.get("state") + ": " + Objects.toString(status.get("reason"), ""));
        }

        private String path() {
            return "/v1/jobs/" + place(id);
        }
    }

    private static void write(Object value, StringBuilder to) {
        if (value instanceof Resource resource) write(Map.of("$resource", resource.name), to);
        else if (value instanceof Double || value instanceof Float) {
            double number = ((Number) value).doubleValue();
            String special = Double.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf";
            to.append(Double.isFinite(number) ? value : "{\"$f\":\"" + special + "\"}");
        } else if (value instanceof Number) {
            boolean isExact = new BigInteger(value.toString()).abs().compareTo(BigInteger.valueOf(INTEGER_MAX)) <= 0;
            to.append(isExact ? value : "{\"$i\":\"" + value + "\"}");
        } else if (value == null || value instanceof Boolean) to.append(value);
        else if (value instanceof Numbers array) writeArray(array.dtype, array.shape, array.numbers, to);
        else if (value.getClass().isArray() && value.getClass().getComponentType().isPrimitive()) {
            String dtype = (value instanceof double[] || value instanceof float[] ? "f" : "i") + 8 * sizeOf(value);
            writeArray(dtype, List.of(Array.getLength(value)), value, to);
        } else if (value instanceof Object[] list) write(Arrays.asList(list), to);
        else if (value instanceof List<?> list) {
            to.append('[');
            for (Object part : list) {
                write(part, to);
                to.append(',');
            }
            end(list.isEmpty(), ']', to);
        } else if (value instanceof Map<?, ?> map) {
            to.append('{');
            map.forEach((key, part) -> {
                writeText((String) key, to);
                write(part, to.append(':'));
                to.append(',');
            });
            end(map.isEmpty(), '}', to);
        } else if (value instanceof CharSequence) writeText(value.toString(), to);
        else {
            String type = value.getClass().getName();
            throw new IllegalArgumentException("a " + type + " is no value: pass null, a Boolean, number, String, List, Map or array");
        }
    }

    private static void end(boolean isEmpty, char last, StringBuilder to) {
        if (!isEmpty) to.setLength(to.length() - 1);
        to.append(last);
    }

    private static void writeText(String text, StringBuilder to) {
        to.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') to.append('\\');
            to.append(c < 0x20 ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        to.append('"');
    }

    private static int sizeOf(Object array) {
        if (array instanceof double[] || array instanceof long[]) return 8;
        return array instanceof float[] || array instanceof int[] ? 4 : array instanceof short[] ? 2 : 1;
    }

    private static void writeArray(String dtype, List<?> shape, Object numbers, StringBuilder to) {
        ByteBuffer data = ByteBuffer.allocate(Array.getLength(numbers) * sizeOf(numbers)).order(ByteOrder.LITTLE_ENDIAN);
        if (numbers instanceof double[] all) data.asDoubleBuffer().put(all);
        else if (numbers instanceof float[] all) data.asFloatBuffer().put(all);
        else if (numbers instanceof long[] all) data.asLongBuffer().put(all);
        else if (numbers instanceof int[] all) data.asIntBuffer().put(all);
        else if (numbers instanceof short[] all) data.asShortBuffer().put(all);
        else data.put((byte[]) numbers);
        write(Map.of("$a", Map.of("dtype", dtype, "shape", shape, "data", Base64.getEncoder().encodeToString(data.array()))), to);
    }

    /** Converts maps that stand for numbers and arrays. */
    private static Object decode(Object value) {
        if (value instanceof List<?> list) return Arrays.asList(list.stream().map(Client::decode).toArray());
        if (!(value instanceof Map<?, ?> map)) return value;
        String key = map.size() == 1 ? (String) map.keySet().iterator().next() : "";
        if (key.equals("$i")) return new BigInteger((String) map.get(key));
        if (key.equals("$f")) {
            String text = (String) map.get(key);
            return Double.valueOf(text.replace("nan", "NaN").replace("inf", "Infinity"));
        }
        if (key.equals("$a")) return numbers(map(map.get(key)));
        Map<Object, Object> decoded = new LinkedHashMap<>();
        map.forEach((name, part) -> decoded.put(name, decode(part)));
        return decoded;
    }

    private static Numbers numbers(Map<?, ?> array) {
        String dtype = (String) array.get("dtype");
        ByteBuffer data = ByteBuffer.wrap(Base64.getDecoder().decode((String) array.get("data"))).order(ByteOrder.LITTLE_ENDIAN);
        int size = Integer.parseInt(dtype.substring(1)) / 8, count = data.remaining() / size;
        Object to = switch (dtype.replace('u', 'i')) {
            case "f64" -> new double[count];
            case "f32" -> new float[count];
            case "i64" -> new long[count];
            case "i32" -> new int[count];
            case "i16" -> new short[count];
            default -> new byte[count];
        };
        if (to instanceof double[] all) data.asDoubleBuffer().get(all);
        else if (to instanceof float[] all) data.asFloatBuffer().get(all);
        else if (to instanceof long[] all) data.asLongBuffer().get(all);
        else if (to instanceof int[] all) data.asIntBuffer().get(all);
        else if (to instanceof short[] all) data.asShortBuffer().get(all);
        else data.get((byte[]) to);
        return new Numbers(dtype, (List<?>) array.get("shape"), to);
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
}

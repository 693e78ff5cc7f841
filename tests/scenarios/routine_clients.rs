//! The clients of routines in all languages but Python.

use std::fs;

use crate::{
    routine_languages::{of_routines, succeed},
    routine_site::{Gateway, Site},
};

/// A program of each client, with the address of a gateway as its argument.
const JAVASCRIPT: &str = r#"
import assert from "node:assert/strict";
import { connect, named, product, range, CallError, JobError, RequestError } from "CLIENT";

assert.throws(() => connect("http://192.0.2.1"), /the token is not sent/);
const r = connect(process.argv[2]);
const typed = await r.call("python3-relay@1", [], Float64Array.of(1.5, NaN));
assert.deepEqual([...typed], [1.5, NaN]);
assert.equal(await r.call("python3-relay@1", named({ path: [], value: 2n ** 64n })), 2n ** 64n);
assert.equal(await r.call("python3-relay@1", [], 1e300), 1e300);
const job = await r.map("checked@1", range(0, 1000), { reduce: ["sum"] });
const states = [];
for await (const state of job.progress()) states.push(state.state);
assert.equal(states.at(-1), "successful");
assert.deepEqual(await job.values(), Array.from({ length: 1000 }, (_, n) => 2 * n));
assert.equal((await job.reduced()).sum, 999_000);
assert.equal((await (await r.starmap("checked@1", product([range(0, 3)]))).wait({ timeout: 60 })).state, "successful");
const isCallError = (error) =>
  error instanceof CallError && error.kind === "user" && error.message.includes("negative") && error.trace.includes("checked");
await assert.rejects(r.call("checked@1", -1), isCallError);
const failed = await r.map("checked@1", [1, -1, 2], { reduce: ["sum"] });
const results = [];
for await (const result of failed.results()) results.push(result);
assert.deepEqual([results[0].value, results[2].value], [2, 4]);
assert.throws(() => results[1].value, isCallError);
await assert.rejects(failed.reduced(), JobError);
await assert.rejects(r.call("missing@1"), (error) => error instanceof RequestError && error.status === 404);
"#;

const JAVA: &str = r#"
import java.math.BigInteger;
import java.time.Duration;
import java.util.*;
import java.util.stream.*;
import routines.Client;

final class Program {
    static void check(boolean is, Object found) {
        if (!is) throw new AssertionError(String.valueOf(found));
    }

    static <T extends Throwable> T thrown(Class<T> type, Runnable code) {
        try {
            code.run();
        } catch (Throwable error) {
            return type.cast(error);
        }
        throw new AssertionError("no " + type);
    }

    static void checkError(Client.CallError error) {
        check(error.kind.equals("user") && error.getMessage().contains("negative") && error.trace.contains("checked"), error);
    }

    public static void main(String[] arguments) {
        thrown(IllegalArgumentException.class, () -> Client.connect("http://192.0.2.1"));
        Client r = Client.connect(arguments[0]);
        Client.Numbers typed = (Client.Numbers) r.call("python3-relay@1", List.of(), new double[] {1.5, Double.NaN});
        check(Arrays.equals((double[]) typed.numbers(), new double[] {1.5, Double.NaN}), typed);
        BigInteger big = BigInteger.TWO.pow(64);
        check(r.call("python3-relay@1", Client.named(Map.of("path", List.of(), "value", big))).equals(big), big);
        check(r.call("python3-relay@1", List.of(), Double.POSITIVE_INFINITY).equals(Double.POSITIVE_INFINITY), "infinity");
        Client.Job job = r.submit("checked@1", Client.product(List.of(Client.range(0, 1000))), Map.of("reduce", List.of("sum")));
        List<Object> states = new ArrayList<>();
        job.progress(Duration.ofSeconds(1), state -> states.add(state.get("state")));
        check(states.get(states.size() - 1).equals("successful"), states);
        check(job.values().equals(LongStream.range(0, 1000).map(n -> 2 * n).boxed().toList()), "values");
        check(((Number) job.reduced().get("sum")).doubleValue() == 999_000, job.reduced());
        checkError(thrown(Client.CallError.class, () -> r.call("checked@1", -1)));
        Client.Job failed = r.map("checked@1", List.of(1, -1, 2));
        List<Client.Result> results = failed.results().toList();
        check(results.get(0).value().equals(2L) && results.get(2).value().equals(4L) && results.get(2).index == 2, results);
        checkError(thrown(Client.CallError.class, () -> results.get(1).value()));
        thrown(Client.JobError.class, failed::reduced);
        check(thrown(Client.RequestError.class, () -> r.call("missing@1")).status == 404, "missing@1");
    }
}
"#;

const R: &str = r#"
source("CLIENT")
same <- function(found, expected) if (!identical(found, expected)) stop(deparse(found), " is not ", deparse(expected))
thrown <- function(code) tryCatch({ code; NULL }, error = function(error) error)
stopifnot(grepl("the token is not sent", conditionMessage(thrown(routines$connect("http://192.0.2.1")))))
r <- routines$connect(commandArgs(TRUE))
typed <- r$call("python3-relay@1", list(), array(c(1.5, NaN), 2))
same(as.vector(typed), c(1.5, NaN))
same(r$call("python3-relay@1", path = list(), value = routines$integer("18446744073709551616")), routines$integer("18446744073709551616"))
same(r$call("python3-relay@1", list(), 0.1 + 0.2), 0.1 + 0.2)
job <- r$starmap("checked@1", list(range = list(0, 1000)), reduce = "sum")
same(as.numeric(unlist(job$values())), 2 * (0:999))
same(as.numeric(job$reduced()$sum), 999000)
error <- thrown(r$call("checked@1", -1))
stopifnot(inherits(error, "routines_call_error"), error$kind == "user", grepl("negative", conditionMessage(error)), grepl("checked", error$trace))
failed <- r$map("checked@1", c(1, -1, 2), reduce = "sum")
results <- failed$results()
stopifnot(results[[1]]$value == 2, results[[2]]$error$kind == "user", results[[3]]$value == 4)
stopifnot(inherits(thrown(failed$values()), "routines_call_error"), inherits(thrown(failed$reduced()), "routines_job_error"))
stopifnot(thrown(r$call("missing@1"))$status == 404)
writeLines("one line", "r.txt")
stopifnot(endsWith(r$call("python3-relay@1", list(), r$put("text", "r.txt")), r$call("python3-relay@1", list(), r$put("text", "r.txt"))))
"#;

const OCTAVE: &str = r#"
source("CLIENT");
function failure = thrown(code)
  failure = [];
  try
    code();
  catch failure
  end
end
assert(!isempty(strfind(thrown(@() routines_connect("http://192.0.2.1")).message, "the token is not sent")));
r = routines_connect(argv(){end});
typed = r.call("python3-relay@1", {}, [1.5; NaN]);
assert(typed.numbers, [1.5; NaN]);
assert(r.call_named("python3-relay@1", struct("path", {{}}, "value", uint64(18446744073709551615))).integer, uint8("18446744073709551615"));
assert(r.call("python3-relay@1", {}, 0.1 + 0.2) == 0.1 + 0.2);
job = r.starmap("checked@1", struct("range", {{0, 1000}}), struct("reduce", {{"sum"}}));
assert([job.values(){:}], 2 * (0:999));
assert(job.reduced().sum, 999000);
failure = thrown(@() r.call("checked@1", -1));
assert(failure.identifier, "routines:call:user");
assert(!isempty(strfind(failure.message, "negative")));
failed = r.map("checked@1", [1, -1, 2], struct("reduce", {{"sum"}}));
results = failed.results();
assert({results{1}.value, results{2}.error.kind, results{3}.value}, {2, "user", 4});
assert(thrown(@() failed.values()).identifier, "routines:call:user");
assert(thrown(@() failed.reduced()).identifier, "routines:job");
assert(thrown(@() r.call("missing@1")).identifier, "routines:request:404");
"#;

/// A routine in JavaScript that the clients call.
const CHECKED: &str = r"
export function checked(n) {
  if (n < 0) throw new RangeError(`${n} is negative`);
  return 2 * n;
}
";

#[test]
fn clients_call_map_and_report_errors() {
    let mut site = Site::new();
    site.deploy_relays();
    site.deploy("checked", "node", "checked:checked", "checked.mjs", CHECKED);
    site.start_nodes(1);
    let folder = site.cluster.folder().to_owned();
    let tokens = folder.join("tokens");
    let token =
        site.cluster.run("routines", &["token", tokens.to_str().unwrap(), "anna", "deploy"]).unwrap().out;
    let gateway = Gateway::start_with(&site.cluster, &["--tokens", tokens.to_str().unwrap()]);
    let url = format!("http://{}", gateway.address);
    let token = format!("ROUTINES_TOKEN={}", token.trim());
    let client = of_routines("clients/javascript/routines.mjs").canonicalize().unwrap();
    fs::write(folder.join("client.mjs"), JAVASCRIPT.replace("CLIENT", client.to_str().unwrap())).unwrap();
    fs::write(folder.join("Program.java"), JAVA).unwrap();
    for (file, program, shim) in
        [("client.R", R, "shims/r/shim.R"), ("client.m", OCTAVE, "shims/octave/shim.m")]
    {
        let shim = of_routines(shim).canonicalize().unwrap();
        fs::write(folder.join(file), program.replace("CLIENT", shim.to_str().unwrap())).unwrap();
    }
    let client = of_routines("clients/java/Client.java");
    for words in [
        &["env", &token, "node", "client.mjs", &url][..],
        &["javac", "-Xlint:all,-serial", "-Werror", "-d", "client", client.to_str().unwrap(), "Program.java"],
        &["env", &token, "java", "-cp", "client", "Program", &url],
        &["env", &token, "Rscript", "client.R", &url],
        &["env", &token, "octave-cli", "--norc", "client.m", &url],
    ] {
        succeed(&folder, words);
    }
}

//! Routines in all languages: the cases of `conform`, calls from each language to each, and results.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use taskwork_tests::cluster::{CommandOutput, Running, program};
use tempfile::tempdir;

use crate::routine_site::{Gateway, Site};

/// The maximum duration of a command with many processes.
const TOOL_MAX: Duration = Duration::from_secs(600);

/// A language: its runtime, the name of its module, and a routine that passes a value along the routines of a path.
const LANGUAGES: &[(&str, &str, &str)] = &[
    (
        "python3",
        "relay.py",
        "import routines\n\ndef run(path, value):\n    return routines.call(path[0], path[1:], value) if path else value\n",
    ),
    (
        "node",
        "relay.mjs",
        "export const run = async ([next, ...rest], value) => (next ? routines.call(next, rest, value) : value);\n",
    ),
    (
        "java",
        "relay.java",
        "import java.util.List;\nimport routines.Routines;\n\nfinal class relay {\n    static Object run(List<String> path, Object value) {\n        return path.isEmpty() ? value : Routines.call(path.get(0), path.subList(1, path.size()), value);\n    }\n}\n",
    ),
    (
        "r",
        "relay.R",
        "run <- function(path, value) {\n  if (length(path)) routines$call(path[[1]], path[-1], value) else value\n}\n",
    ),
    (
        "octave",
        "relay.m",
        "1;\nfunction value = run(path, value)\n  if !isempty(path)\n    value = routines_call(path{1}, path(2:end), value);\n  end\nend\n",
    ),
];

/// Returns the path of a file of the crate.
pub(crate) fn of_routines(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../routines").join(path)
}

/// Runs a command in a folder, which must succeed.
pub(crate) fn succeed(folder: &Path, words: &[&str]) -> CommandOutput {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder);
    let ran = Running::begin(command, folder).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    let ran = ran.end_within(TOOL_MAX).unwrap();
    assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
    ran
}

#[test]
fn conform_passes_in_each_language() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let paths = [
        "shims/c",
        "conform/conform.c",
        "shims/javascript/shim.cjs",
        "shims/java/Routines.java",
        "shims/r/shim.R",
        "shims/octave/shim.m",
    ];
    let [header, c, javascript, java, r, octave] =
        paths.map(|path| of_routines(path).to_str().unwrap().to_owned());
    let compiled = folder.join("conform").to_str().unwrap().to_owned();
    let classes = folder.join("shim").to_str().unwrap().to_owned();
    let cache = format!("-Droutines.cache={}", folder.display());
    let flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"];
    let languages = [
        ([&["cc"], &flags[..], &[&header, &c, "-o", &compiled]].concat(), vec![&*compiled]),
        (vec!["node", "--version"], vec!["node", &javascript]),
        (
            vec!["javac", "-Xlint:all,-serial", "-Werror", "-d", &classes, &java],
            // The first process compiles the module.
            vec!["java", "-XX:+UseSerialGC", &cache, "-cp", &classes, "routines.Routines"],
        ),
        (vec!["Rscript", "--version"], vec!["Rscript", "--vanilla", &r]),
        (vec!["octave-cli", "--version"], vec!["octave-cli", "--norc", "--no-history", &octave]),
    ];
    let conform = program("routines").unwrap();
    thread::scope(|scope| {
        for (compile, words) in languages {
            let conform = conform.to_str().unwrap();
            scope.spawn(move || {
                succeed(folder, &compile);
                let all = succeed(folder, &[&[conform, "conform", "--json", "--"], &*words].concat());
                let all: Value = serde_json::from_str(&all.out).unwrap();
                let passed = all["passed"].as_u64().unwrap();
                assert!(all["failed"] == 0 && passed >= 62, "{words:?}: {all:#}");
            });
        }
    });
}

/// Writes a package with an example.
fn write_package(folder: &Path, runtime: &str, file: &str, code: &str) {
    fs::create_dir_all(folder).unwrap();
    let text = format!(
        "name = 'm'\nversion = '1'\nruntime = '{runtime}'\nentry = 'm:run'\n[[example]]\nargument = []\n"
    );
    fs::write(folder.join("routine.toml"), text).unwrap();
    fs::write(folder.join(file), code).unwrap();
}

/// Checks the package of a folder.
fn check(folder: &Path) -> Value {
    let mut check = Command::new(program("routines").unwrap());
    check.args(["check", "m", "--json"]).current_dir(folder);
    let checked = Running::begin(check, folder).unwrap().end_within(TOOL_MAX).unwrap();
    serde_json::from_str(&checked.out).unwrap_or_else(|_| panic!("{checked:?}"))
}

#[test]
fn check_names_the_place_of_defects_in_each_language() {
    for (runtime, file, code, line, message) in [
        ("node", "m.mjs", "export const run = () => {\n  throw new RangeError('small');\n};", 2, "small"),
        ("node", "m.mjs", "export const run = () => {\n  return (;\n};", 2, "SyntaxError"),
        ("java", "m.java", "final class m {\n static long run() {\n  return 1 / 0;\n }\n}", 3, "by zero"),
        (
            "java",
            "m.java",
            "final class m {\n static long run() {\n  return;\n }\n}",
            3,
            "incompatible types",
        ),
        ("r", "m.R", "run <- function() {\n  stop('small')\n}\n", 2, "small"),
        ("r", "m.R", "run <- function() {\n  1 +* 2\n}\n", 2, "unexpected"),
        ("octave", "m.m", "1;\nfunction value = run()\n  error('small');\nend\n", 3, "small"),
        ("octave", "m.m", "1;\nfunction value = run()\n  value = (;\nend\n", 3, "parse error"),
    ] {
        let folder = tempdir().unwrap();
        write_package(&folder.path().join("m"), runtime, file, code);
        let all = check(folder.path());
        let defect = &all["defects"][0];
        assert_eq!((&defect["file"], &defect["line"]), (&json!(format!("m/{file}")), &json!(line)), "{all}");
        assert!(defect["message"].as_str().unwrap().contains(message), "{all}");
    }
}

/// A routine in Java with a thread that does not end.
const POOL: &str = r"
import java.util.concurrent.*;

final class m {
    static final ExecutorService POOL = Executors.newFixedThreadPool(1);

    static Object run() throws Exception {
        POOL.submit(() -> {}).get();
        CODE
    }
}
";

#[test]
fn java_failure_with_a_running_thread_ends_the_call_with_an_error() {
    for (code, message) in [
        ("throw new RuntimeException() { public String toString() { return null; } };", "null"),
        (
            "throw new RuntimeException() { public String toString() { throw new IllegalStateException(); } };",
            "which throws a java.lang.IllegalStateException",
        ),
        // The shim can send no answer.
        (
            "var pipe = routines.Routines.class.getDeclaredField(\"output\"); pipe.setAccessible(true); pipe.set(null, null); return 1;",
            "NullPointerException",
        ),
    ] {
        let folder = tempdir().unwrap();
        write_package(&folder.path().join("m"), "java", "m.java", &POOL.replace("CODE", code));
        let all = check(folder.path());
        assert!(all["defects"][0]["message"].as_str().unwrap().contains(message), "{code}: {all}");
    }
}

const PARAMETERS_JAVASCRIPT: &str = "
export async function run(first, /* a, b */ second = ['x,)', `}`], { third } = {}, ...rest) {
  return [first, second, rest.length]; // A comment, and another one)
}
";

const PARAMETERS_JAVA: &str = "
final class m {
    static Object run(double first, int second) { return java.util.List.of(first, second, \"int\"); }
    static Object run(double[] first, String second) { return java.util.List.of(first[0], second, \"double[]\"); }
    static Object run(Object first) { return java.util.Arrays.asList(first, \"Object\"); }
}
";

const PARAMETERS_R: &str = r"
run <- function(first, second = 'x', ...) list(first, second, length(list(...)))
";

const PARAMETERS_OCTAVE: &str = "
1;
% run(other) is not this one.
function list = run(first, second = 'x')
  list = {first, second};
end
";

const PARAMETERS_SHELL: &str = r#"
[ "$1" -ge 0 ] || { echo "below 0" >&2; exit 3; }
printf '[%s, "%s"' "$1" "$2"
[ "$2" = open ] || echo ]
"#;

/// A runtime, an entry, a file with its code, and arguments, each with a result or a part of an error.
type Calls =
    (&'static str, &'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const CALLS: &[Calls] = &[
    (
        "node",
        "m:run",
        "m.mjs",
        PARAMETERS_JAVASCRIPT,
        &[
            ("[1]", "[1, ['x,)', '}'], 0]"),
            ("[1, 2, {}, 4, 5]", "[1, 2, 2]"),
            ("{ second = 2, first = 1 }", "[1, 2, 0]"),
            ("{ second = 2 }", "the argument first is missing"),
            ("{ fourth = 2, first = 1 }", "no parameter"),
        ],
    ),
    ("node", "m:run", "m.mjs", "export const run = ({ x, y = 2 }) => x + y;", &[("{ x = 1 }", "3")]),
    (
        "node",
        "m:run",
        "m.mjs",
        "export const run = async x => await x + 1;",
        &[("{ x = 1 }", "2"), ("1", "2")],
    ),
    ("node", "m:run", "m.mjs", "export const run = () => new Promise(() => {});", &[("[]", "promise")]),
    (
        "java",
        "m:run",
        "m.java",
        PARAMETERS_JAVA,
        &[
            ("[1, 2]", "[1.0, 2, 'int']"),
            ("{ second = 'x', first = [1.5, 2] }", "[1.5, 'x', 'double[]']"),
            ("[1]", "[1, 'Object']"),
            ("[[1, 2, 3]]", "[[1, 2, 3], 'Object']"),
            ("[1, 2.5]", "the argument second is a Double"),
            ("{ third = 1 }", "no overload"),
        ],
    ),
    (
        "r",
        "m:run",
        "m.R",
        PARAMETERS_R,
        &[
            ("[1]", "[1, 'x', 0]"),
            ("[1, 2, 3, 4]", "[1, 2, 2]"),
            ("{ second = 2, first = [1] }", "[[1], 2, 0]"),
            ("{ second = 2 }", "\"first\" is missing"),
        ],
    ),
    ("r", "m:run", "m.R", "run <- function(x) 2 + x", &[("3", "5"), ("{ y = 3 }", "no parameter")]),
    (
        "octave",
        "m:run",
        "m.m",
        PARAMETERS_OCTAVE,
        &[
            ("[1]", "[1, 'x']"),
            ("{ second = 2, first = [1] }", "[[1], 2]"),
            ("{ second = 2 }", "the argument first is missing"),
            ("{ third = 2, first = 1 }", "no parameter"),
            ("[1, 2, 3]", "too many inputs"),
        ],
    ),
    ("octave", "m:m", "m.m", "function x = m(x)\n  x = 2 + x;\nend\n", &[("{ x = 3 }", "5"), ("3", "5")]),
    (
        "command",
        "sh {package}/m.sh {first} {second}",
        "m.sh",
        PARAMETERS_SHELL,
        &[
            ("[1, 'a b; $(c)']", "[1, 'a b; $(c)']"),
            ("{ second = 'x', first = 2 }", "[2, 'x']"),
            ("[-1, 'x']", "exit status: 3"),
            ("[1, 'open']", "no JSON"),
            ("[1]", "but 2 placeholders"),
        ],
    ),
];

#[test]
fn arguments_belong_to_parameters_in_each_language() {
    for (runtime, entry, file, code, examples) in CALLS {
        let folder = tempdir().unwrap();
        write_package(&folder.path().join("m"), runtime, file, code);
        // A text is the part of an error.
        let is_result = |text: &str| text.starts_with(['[', '2', '3', '5']);
        let example = |(argument, result): &(&str, &str)| {
            let result = if is_result(result) { format!("result = {result}\n") } else { String::new() };
            format!("[[example]]\nargument = {argument}\n{result}")
        };
        let head = format!("name = 'm'\nversion = '1'\nruntime = '{runtime}'\nentry = '{entry}'\n");
        let text = head + &examples.iter().map(example).collect::<String>();
        fs::write(folder.path().join("m/routine.toml"), text).unwrap();
        let all = check(folder.path());
        let mut defects = all["defects"].as_array().unwrap().iter();
        for (argument, error) in examples.iter().filter(|(_, result)| !is_result(result)) {
            let defect = defects.next().unwrap_or_else(|| panic!("{argument}: {all}"));
            assert!(defect["message"].as_str().unwrap().contains(error), "{argument}: {all}");
        }
        assert!(defects.next().is_none(), "{all}");
    }
}

#[test]
fn missing_interpreter_is_named_with_its_remedy() {
    for (runtime, option) in [
        ("python3", "--python"),
        ("node", "--node"),
        ("java", "--java"),
        ("r", "--rscript"),
        ("octave", "--octave"),
    ] {
        for isolation in ["none", "process"] {
            let folder = tempdir().unwrap();
            write_package(&folder.path().join("m"), runtime, "m", "");
            let mut check = Command::new(program("routines").unwrap());
            check.args(["check", "m", "--isolation", isolation, option, "/missing/program"]);
            check.current_dir(folder.path());
            let checked = Running::begin(check, folder.path()).unwrap().end().unwrap();
            let has = |part: &str| checked.err.contains(part);
            assert!(
                checked.code == 2 && has("/missing/program") && has("install") && has(option),
                "{checked:?}"
            );
        }
    }
}

impl Site {
    pub(crate) fn deploy(&self, name: &str, runtime: &str, entry: &str, file: &str, code: &str) {
        let folder = self.cluster.folder().join(name);
        fs::create_dir(&folder).unwrap();
        let text = format!("name = '{name}'\nversion = '1'\nruntime = '{runtime}'\nentry = '{entry}'\n");
        fs::write(folder.join("routine.toml"), text).unwrap();
        fs::write(folder.join(file), code).unwrap();
        self.cluster.json("routines", &["deploy", folder.to_str().unwrap()]).unwrap();
    }

    pub(crate) fn deploy_relays(&self) {
        for (runtime, file, code) in LANGUAGES {
            self.deploy(&format!("{runtime}-relay"), runtime, "relay:run", file, code);
        }
    }
}

#[test]
fn routines_of_each_language_call_those_of_each() {
    let mut site = Site::new();
    site.deploy_relays();
    site.deploy("pair", "command", "printf [%s,%s] {path} {value}", "file", "");
    site.start_nodes(1);
    let gateway = Gateway::start(&site.cluster);
    let value = json!([
        { "$i": "18446744073709551616" }, { "$i": "-9223372036854775809" }, { "$f": "nan" }, { "$f": "-inf" },
        9_007_199_254_740_992_i64, 1e300, 1.5, [[], [[null, true], {}]], { "ä€😀": { "b": [2.5, "\u{0}\"\\"] } },
        { "$a": { "dtype": "f64", "shape": [2], "data": "AAAAAAAA+D8AAAAAAADw/w==" } },
    ]);
    let names: Vec<String> = LANGUAGES.iter().map(|(runtime, ..)| format!("{runtime}-relay@1")).collect();
    let pairs = names.iter().flat_map(|from| names.iter().map(move |to| vec![from, to]));
    let chain = names.iter().chain(&names[..1]).collect();
    for path in pairs.chain([chain]) {
        let argument = json!([path[1..], value]);
        let (status, answer) =
            gateway.post(&format!("/v1/routines/{}/call", path[0]), "", &json!({ "argument": argument }));
        assert!(status == 200 && answer["value"] == value, "{path:?}: {answer}");
    }
    for name in names {
        let argument = json!({ "argument": [["pair@1"], 7] });
        let (_, answer) = gateway.post(&format!("/v1/routines/{name}/call"), "", &argument);
        assert_eq!(answer["value"], json!([[], 7]), "{answer}");
    }
}

#[test]
fn searches_in_each_language_count_each_state_once_on_two_nodes() {
    let mut site = Site::new();
    let names = ["queens-javascript", "queens-java"];
    for name in names {
        let example = of_routines("examples").join(name.replace('-', "_"));
        site.cluster.json("routines", &["deploy", example.to_str().unwrap()]).unwrap();
    }
    site.start_nodes(2);
    for name in names {
        let found = site.cluster.json("routines", &["search", name, "[12]"]).unwrap();
        assert_eq!(
            found["result"],
            json!({ "best": null, "counts": { "states": 856_189, "solutions": 14_200 } }),
            "{name}"
        );
    }
}

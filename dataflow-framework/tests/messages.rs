//! Compiler errors for invalid tasks: each message names the fault and the remedy.
//!
//! `rustc` compiles the programs against the library that this test was built with, so that nothing is rebuilt. Only
//! parts of the messages are compared, since the rest changes with the compiler.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// The first lines of each program.
const PRELUDE: &str = "#![allow(dead_code)]\nuse dataflow_framework::{Data, task, tasks};\n";

/// A program without faults.
const SOUND: &str = "#[task(retry = 2, timeout = \"1 min\")]\nfn double(of: &u64) -> u64 { of * 2 }\n";

/// Checks a program against a library, without code generation.
fn compile(library: &Path, program: &str) -> io::Result<Output> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("program.rs");
    fs::write(&source, format!("{PRELUDE}{program}"))?;
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--color=never"]);
    command.arg("--out-dir").arg(folder.path());
    let dependencies = library.parent().unwrap_or(Path::new("."));
    command.arg("-L").arg(format!("dependency={}", dependencies.display()));
    command.arg("--extern").arg(format!("dataflow_framework={}", library.display()));
    command.arg(source).output()
}

/// Returns the library that this test was built with: the latest one in its folder that the compiler accepts.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = env::current_exe().expect("a test has a path");
        let folder = test.parent().expect("it is in a folder");
        let names = fs::read_dir(folder).expect("the folder can be read").filter_map(Result::ok);
        let is_library =
            |name: &str| name.starts_with("libdataflow_framework-") && name.strip_suffix(".rlib").is_some();
        let libraries = names.filter(|entry| is_library(&entry.file_name().to_string_lossy()));
        let mut libraries: Vec<_> = libraries
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        libraries.sort();
        let latest_first = libraries.into_iter().rev().map(|(_, path)| path);
        let mut accepted =
            latest_first.filter(|path| compile(path, SOUND).is_ok_and(|it| it.status.success()));
        accepted.next().expect("a program without faults can be compiled against one of them")
    })
}

/// Checks that the compiler rejects a program with the expected messages.
fn refused(program: &str, expected: &[&str]) {
    let output = compile(library(), program).expect("the compiler can be started");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it was compiled: {program}");
    for expected in expected {
        assert!(
            messages.contains(expected),
            "{expected:?} is missing from the messages for {program}:\n{messages}"
        );
    }
}

#[test]
fn unserializable_type_error_names_derives() {
    let to_do =
        ["`Plain` cannot be data of a task", "derive `serde::Serialize` and `serde::Deserialize` for it"];
    refused("struct Plain;\n#[task]\nfn reads(of: &Plain) {}\n", &to_do);
    refused("struct Plain;\n#[task]\nfn makes() -> Plain { Plain }\n", &to_do);
    refused("struct Plain;\n#[task]\nfn takes(of: Plain) {}\n", &to_do);
    refused("struct Plain;\nfn brings() { let _ = Data::new(Plain); }\n", &to_do);
    refused(
        "#[task]\nfn shares(of: &std::rc::Rc<u8>) {}\n",
        &["`Rc<u8>` cannot be data of a task", "it must own all it refers to, and be `Send` and `Sync`"],
    );
}

#[test]
fn unsupported_reference_error_names_replacement() {
    for (parameter, expected) in [
        ("&mut [u8]", "take `&mut Vec<T>`"),
        ("&mut [&u8]", "take `&mut Vec<T>`"),
        ("&mut str", "take `&mut String`"),
        ("&dyn Send", "data has a type of its own, not `dyn`"),
        ("&'static u8", "leave the lifetime out"),
    ] {
        refused(&format!("#[task]\nfn reads(of: {parameter}) {{}}\n"), &[expected]);
    }
}

#[test]
fn unsuitable_function_error_gives_reason() {
    for (function, expected) in [
        ("fn generic<T>(of: &T) {}", "write a task for each type, which may call a generic function"),
        ("fn generic(of: impl Send) {}", "a task cannot be generic, since other nodes find it by its name"),
        ("async fn waits() -> Data<u8> { Data::new(1) }", "return the data, or leave `async` out"),
        ("unsafe fn risks() {}", "a task cannot be unsafe: other nodes call it"),
        ("fn borrows(of: &u8) -> &u8 { of }", "a task returns what it has made, not a reference"),
        ("fn lives<'a>(of: &'a u8) {}", "leave the lifetime out"),
    ] {
        refused(&format!("#[task]\n{function}\n"), &[expected]);
    }
    refused(
        "#[task(cores = 2)]\nasync fn waits() {}\n",
        &["an `async` task occupies no worker: leave `cores` out, or `async` if it computes"],
    );
    refused(
        "#[task]\nasync fn waits() { let not_send = std::rc::Rc::new(1); std::future::ready(()).await; drop(not_send); }\n",
        &["future cannot be sent between threads safely", "`Rc<i32>` which is not `Send`"],
    );
    refused("#[task]\nstruct Data2;\n", &["a task is a function, or an `impl` whose methods are tasks"]);
}

#[test]
fn ignored_failure_without_default_result_is_compile_error() {
    refused(
        "#[task(on_failure = ignore)]\nfn makes() -> Result<std::time::SystemTime, String> { Err(String::new()) }\n",
        &["`SystemTime: Default` is not satisfied", "fn makes() -> Result<std::time::SystemTime, String>"],
    );
}

#[test]
fn unknown_option_error_lists_options() {
    for (options, expected) in [
        (
            "prioritty = 3",
            "there is no option prioritty; the options are priority, retry, pause, pause_max, on_failure, timeout",
        ),
        ("retry = 1, retry = 2", "retry is given twice"),
        (
            "on_failure = retry",
            "on_failure is cancel_successors, cancel_group, fail or ignore, and not retry",
        ),
        ("timeout = \"soon\"", "\"soon\" is no duration such as \"1 min 30 s\""),
        ("retry = \"often\"", "mismatched types"),
    ] {
        refused(&format!("#[task({options})]\nfn task() {{}}\n"), &[expected]);
    }
}

#[test]
fn result_used_as_value_is_compile_error() {
    refused(
        &format!("{SOUND}fn program() -> u64 {{ double(&Data::new(2)) + 1 }}\n"),
        &["cannot add `{integer}` to `Data<u64>`"],
    );
    refused(&format!("{SOUND}fn program() {{ double(&2); }}\n"), &["expected `&Data<u64>`"]);
    refused("#[task]\nfn reads(of: &Vec<u8>) { of.push(1); }\n", &["cannot borrow `*of` as mutable"]);
}

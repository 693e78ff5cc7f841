//! Tests of files as data and of external programs.

use std::{
    error::Error,
    fs,
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use taskwork_child::testing::wait_until_gone;

use super::{File, Run};
use crate::{
    Data, TaskDef, Workflow, WorkflowError,
    encoding::{decode, encode},
    task, tasks,
    value::Value,
};

#[task]
fn increment(counter: &mut File) -> io::Result<()> {
    let number: u64 = counter.read()?;
    counter.write(number + 1)
}

#[task]
fn path(file: &File) -> PathBuf {
    file.path().to_owned()
}

#[task]
fn twice(file: &File) -> io::Result<File> {
    File::made("twice", |to| {
        io::copy(&mut file.reader()?, to)?;
        io::copy(&mut file.reader()?, to).map(drop)
    })
}

#[task]
fn by_value(file: File) -> io::Result<u64> {
    file.len()
}

fn table() -> Vec<&'static TaskDef> {
    tasks![increment, path, twice, by_value].to_vec()
}

pub(super) fn file(content: &str) -> File {
    File::new("data", content).expect("it can be made")
}

/// Runs a program without threads and on three workers.
fn everywhere(program: fn() -> Result<(), Box<dyn Error + Send + Sync>>) {
    let workflow = || Workflow::new(table()).expect("no two tasks have one name");
    workflow().sequential().run(program).expect("it succeeds");
    workflow().workers(3).run(program).expect("it succeeds");
}

#[test]
fn handle_keeps_file_version_before_update() {
    everywhere(|| {
        let mut counter = Data::new(file("1"));
        let before = counter.clone();
        for _ in 0..5 {
            increment(&mut counter);
        }
        let twice = twice(&counter);
        counter.get_mut()?.append("0")?;
        assert_eq!(before.get()?.read::<u64>()?, 1);
        assert_eq!(twice.get()?.read_to_string()?, "66");
        assert_eq!(counter.get()?.read::<u64>()?, 60);
        Ok(())
    });
}

#[test]
fn file_is_updated_in_place_by_last_reader_and_removed_with_last_version() {
    everywhere(|| {
        let mut counter = Data::new(file("1"));
        let first = path(&counter).get()?.clone();
        increment(&mut counter);
        increment(&mut counter);
        let last = path(&counter).get()?.clone();
        assert_eq!(first, last);
        assert_eq!(fs::read_to_string(&last)?, "3");
        drop(counter);
        // Removals of versions are processed before the result of a later call.
        by_value(file("")).get()?;
        assert!(!last.exists());
        Ok(())
    });
}

#[test]
fn file_argument_can_be_passed_by_value() {
    everywhere(|| {
        assert_eq!(*by_value(file("four")).get()?, 4);
        // It is too large to be sent in the assignment.
        assert_eq!(*by_value(file(&"x".repeat(100_000))).get()?, 100_000);
        Ok(())
    });
}

#[test]
fn encoded_file_leaves_memory_when_it_is_read() {
    let value = Value::new(file("content"));
    let (total, bytes) = value.part(0, usize::MAX).expect("it is there");
    assert_eq!((total, value.size()), (bytes.len() as u64, bytes.len() as u64));
    let came = Value::from_encoded(bytes.clone());
    assert_eq!(came.fingerprint(), value.fingerprint());
    assert!(came.is_encoded());
    let read = came.clone().read::<File>().expect("it is one");
    assert_eq!(read.read_to_string().expect("it is a text"), "content");
    assert!(!came.is_encoded());
    assert_eq!(came.part(0, usize::MAX).expect("it is there"), (total, bytes));
    assert!(!came.is_encoded() && !value.is_encoded());
    assert_eq!(came.fingerprint(), value.fingerprint());
    // There is another reader, so it is copied.
    let mut own = came.own::<File>().expect("it is one");
    assert_ne!(own.path(), read.path());
    own.write("other").expect("it can be written");
    assert_eq!(read.read_to_string().expect("it is a text"), "content");
}

#[test]
fn opened_file_is_independent_of_its_original() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let original = place.path().join("original.sh");
    fs::write(&original, "one")?;
    fs::set_permissions(&original, fs::Permissions::from_mode(0o555))?;
    let mut taken = File::open(&original)?;
    assert_eq!((taken.name(), taken.len()?, taken.is_empty()?), ("original.sh", 3, false));
    assert_eq!(taken.path().metadata()?.permissions().mode() & 0o777, 0o700);
    taken.append(" two")?;
    assert_eq!(taken.read_bytes()?, b"one two");
    assert_eq!(fs::read(&original)?, b"one");
    let copy = taken.copy()?;
    taken.write_with(|to| to.write_all(b"three"))?;
    assert_eq!((copy.read_to_string()?, taken.read_to_string()?), ("one two".into(), "three".into()));
    Ok(())
}

#[test]
fn open_error_has_path_and_reason() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let at = |name: &str| place.path().join(name);
    fs::write(at("file"), "")?;
    symlink(at("nowhere"), at("dangling"))?;
    symlink(at("circle"), at("circle"))?;
    let undecodable: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff");
    fs::write(place.path().join(undecodable), "")?;
    for (path, expected) in [
        (at("missing"), "No such file"),
        (at("dangling"), "No such file"),
        (at("circle"), "symbolic links"),
        (at("file/below"), "Not a directory"),
        (at("."), "it is a directory, not a file"),
        (at(".."), "does not end with a name"),
        (place.path().join(undecodable), "its name is not UTF-8"),
        (PathBuf::from("/dev/full"), "it is not a regular file"),
        (PathBuf::new(), "does not end with a name"),
    ] {
        let error = File::open(&path).expect_err("it cannot be").to_string();
        let shown = format!("{}: it cannot be imported: ", path.display());
        assert!(error.starts_with(&shown) && error.contains(expected), "{error}");
    }
    Ok(())
}

#[test]
fn invalid_file_name_is_refused() {
    for name in ["", ".", "..", "a/b", "/", "\0", &"ä".repeat(128)] {
        let error = File::new(name, "").expect_err("it is no name");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("cannot be the name of a file"), "{error}");
    }
    for name in ["-rf", "...", "a b\n", &"ä".repeat(127)] {
        assert_eq!(File::new(name, "").expect("it is a name").name(), name);
    }
}

#[test]
fn vanished_file_fails_its_readers() -> Result<(), WorkflowError> {
    let error = Workflow::new(table())?.workers(2).run(|| {
        let counter = Data::new(file("1"));
        fs::remove_file(counter.get()?.path())?;
        let twice = twice(&counter);
        let failure = twice.get().expect_err("it cannot be read");
        assert!(failure.reason().contains("data: it cannot be read: No such file"), "{failure}");
        twice.publish("never")?;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    });
    let error = error.expect_err("it depends on a call that has failed").to_string();
    assert!(error.contains("task `twice`") && !Path::new("never").exists(), "{error}");
    Ok(())
}

#[test]
fn unparsable_content_is_reported() {
    let error = file("12 apples").read::<u64>().expect_err("it is none").to_string();
    assert!(error.ends_with("data: it cannot be parsed: invalid digit found in string in \"12 apples\""));
    let error =
        File::new("binary", [0xff]).and_then(|file| file.read_to_string()).expect_err("it is no text");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

#[test]
fn program_finds_only_its_arguments_under_their_names() -> io::Result<()> {
    let (first, second) = (File::new("same", "1")?, File::new("same", "2")?);
    let dash = File::new("-x", "3")?;
    let list = |run: Run<'_>| run.stdout_to("list").and_then(|list| list.read_to_string());
    let script = "echo \"$@\"; echo $(ls) $EXTRA; cat \"$@\" -";
    let run = Run::new("sh").word("-c").word(script).word("script");
    let said = list(run.arg(&first).arg(&second).arg(&dash).stdin_from(&first).env("EXTRA", "it is"))?;
    assert_eq!(said, "same 2/same ./-x\n-x 2 same it is\n1231");
    // Changes by the program affect only its copies and its links.
    let changed = Run::new("sh").words("-c").word("echo 9 >> same; rm 2/same").word("script");
    let changed = changed.arg_to_change(&first).arg(&second).file("same")?;
    assert_eq!(changed.read_to_string()?, "19\n");
    assert_eq!((first.read_to_string()?, second.read_to_string()?), ("1".into(), "2".into()));
    Ok(())
}

#[test]
fn program_can_write_several_files() -> io::Result<()> {
    let script = "echo a > a; ln -s a b; echo c > c; ln c d; echo said";
    let [a, b] = Run::new("sh").word("-c").word(script).files(["a", "b"])?;
    assert_eq!((a.read_to_string()?, b.read_to_string()?), ("a\n".into(), "a\n".into()));
    assert_eq!((a.name(), b.name()), ("a", "b"));
    // Two names of one file become two files.
    let [mut c, d] = Run::new("sh").word("-c").word(script).files(["c", "d"])?;
    c.append("more")?;
    assert_eq!((c.read_to_string()?, d.read_to_string()?), ("c\nmore".into(), "c\n".into()));
    let error =
        Run::new("sh").word("-c").word(script).files(["a", "e"]).expect_err("there is no e").to_string();
    assert!(
        error.contains("has not written the file `e`: No such file") && error.contains("said"),
        "{error}"
    );
    let error = Run::new("mkdir").word("d").file("d").expect_err("it is a directory").to_string();
    assert!(error.contains("it is a directory") && error.ends_with("it has printed nothing"), "{error}");
    let error = Run::new("true").file("../d").expect_err("it is outside").to_string();
    assert!(error.contains("contains `/`"), "{error}");
    Ok(())
}

#[test]
fn failed_program_is_reported_with_its_last_lines() {
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo \"line number $i\" >&2; done; exit 3";
    let error = Run::new("sh").word("-c").word(script).stdout_to("out").expect_err("it fails").to_string();
    assert!(error.starts_with("`sh -c \"i=0;") && error.contains("has failed: exit status: 3"), "{error}");
    assert!(
        error.ends_with("line number 2999\nline number 3000") && !error.contains("number 2980\n"),
        "{error}"
    );
    let error =
        Run::new("sh").word("-c").word("kill -9 $$").file("out").expect_err("it is killed").to_string();
    assert!(error.contains("has failed: signal: 9"), "{error}");
    let long = Run::new("false").word("x".repeat(5000)).stdout_to("out").expect_err("it fails").to_string();
    assert!(long.len() < 1000, "{long}");
}

#[test]
fn program_start_failure_is_explained() {
    let error = Run::new("no-such-program").words("-A 0").stdout_to("out").expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = error.to_string();
    assert!(error.contains("`no-such-program`") && error.contains("install it on every node"), "{error}");
    assert!(error.contains("by `no-such-program -A 0`"), "{error}");
    let error = Run::new("./no-such-program").file("out").expect_err("there is none").to_string();
    assert!(error.contains("there is no such file") && !error.contains("./"), "{error}");
    let text = file("text");
    let error = Run::new(text.path()).file("out").expect_err("it is a text").to_string();
    assert!(error.contains("it is not a program that may be executed"), "{error}");
}

#[test]
fn program_can_be_data() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let script = place.path().join("script");
    fs::write(&script, "#!/bin/sh\necho it runs\n")?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let script = File::open(&script)?;
    let said = Run::new(script.path()).stdout_to("said")?;
    assert_eq!(said.read_to_string()?, "it runs\n");
    Ok(())
}

/// Returns a command that runs one test of this program in a new process, with a variable set.
fn again(name: &str, variable: &str) -> Command {
    // The unit is 512 bytes or 1 KiB, depending on the shell.
    let script = "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"";
    let mut again = Command::new("sh");
    again.args(["-c", script]).arg(std::env::current_exe().expect("it runs"));
    again.args(["--exact", "--nocapture", &format!("file::tests::{name}")]).env(variable, "1");
    again
}

/// Simulates a full disk. The limit applies to a process, so the test runs itself in a new process with the limit.
#[test]
fn file_too_large_for_disk_is_reported() {
    const LIMITED: &str = "DATAFLOW_TEST_LIMITED";
    if std::env::var_os(LIMITED).is_some() {
        let large = vec![0; 1 << 20];
        let error = File::new("large", &large).expect_err("it does not fit");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
        assert!(error.to_string().contains("large: it cannot be written"), "{error}");
        let head = encode(&("large", false, large.len() as u64, None::<()>, 8_u64)).expect("it can be");
        let chunk = encode(&large[..1 << 17].to_vec()).expect("it can be");
        let error = decode::<File>(&[head, chunk.repeat(8)].concat()).expect_err("it does not fit");
        assert!(error.reason.contains("large: it cannot be written: File too large"), "{}", error.reason);
        return;
    }
    let output = again("file_too_large_for_disk_is_reported", LIMITED).output();
    let output = output.expect("it can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn files_of_killed_process_are_removed_by_the_next_one() -> io::Result<()> {
    const KEEPS: &str = "DATAFLOW_TEST_KEEPS";
    if std::env::var_os(KEEPS).is_some() {
        let _kept = File::new("kept", "until the end")?;
        println!("\nit is there");
        return io::stdin().read_line(&mut String::new()).map(drop);
    }
    let place = tempfile::tempdir()?;
    let left = || fs::read_dir(place.path()).map(Iterator::count);
    let keeps = || {
        let mut again = again("files_of_killed_process_are_removed_by_the_next_one", KEEPS);
        again.env("DATAFLOW_WORK_DIR", place.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        again
    };
    let mut lives = keeps().spawn()?;
    let said = BufReader::new(lives.stdout.take().expect("it is a pipe")).lines();
    assert!(said.map_while(Result::ok).any(|line| line == "it is there"));
    assert_eq!(left()?, 1);
    // The directory of a living process stays.
    assert!(keeps().stdin(Stdio::null()).output()?.status.success());
    assert_eq!(left()?, 1);
    lives.kill()?;
    lives.wait()?;
    assert_eq!(left()?, 1);
    assert!(keeps().stdin(Stdio::null()).output()?.status.success());
    assert_eq!(left()?, 0);
    Ok(())
}

#[test]
fn programs_are_killed_when_their_starter_exits() -> io::Result<()> {
    const STARTS: &str = "DATAFLOW_TEST_STARTS";
    let name = "programs_are_killed_when_their_starter_exits";
    if let Some(to) = std::env::var_os(STARTS) {
        // The first program succeeds: later ones are still supervised.
        Run::new("true").stdout_to("nothing")?;
        let script = r#"sleep 3600 & echo "$$ $!" > "$1.new"; mv "$1.new" "$1"; wait"#;
        return Run::new("sh").word("-c").word(script).word("sh").word(to).stdout_to("nothing").map(drop);
    }
    let place = tempfile::tempdir()?;
    let told = place.path().join("processes");
    let mut lives = again(name, STARTS);
    // The output may go to a file, whose size is limited in the new process.
    lives.stdout(Stdio::null()).stderr(Stdio::null());
    let mut lives = lives.env(STARTS, &told).env("DATAFLOW_WORK_DIR", place.path()).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !told.exists() {
        assert!(Instant::now() < deadline && lives.try_wait()?.is_none(), "it has not begun");
        thread::sleep(Duration::from_millis(10));
    }
    lives.kill()?;
    lives.wait()?;
    fs::read_to_string(&told)?.split_whitespace().for_each(wait_until_gone);
    Ok(())
}

#[test]
fn program_is_killed_when_call_exceeds_timeout() -> Result<(), Box<dyn Error + Send + Sync>> {
    #[task]
    fn linger() -> io::Result<File> {
        // The second `sleep` runs in the background and keeps standard error open.
        Run::new("sh").word("-c").word("echo lingers >&2; sleep 3 & sleep 3600").stdout_to("nothing")
    }
    #[task]
    fn hurry() -> io::Result<File> {
        Run::new("sh").word("-c").word("echo done").stdout_to("said")
    }
    Workflow::new(tasks![linger, hurry])?.workers(2).run(|| {
        let hour = Duration::from_secs(3600);
        assert_eq!(hurry::with().timeout(hour).call().get()?.read_to_string()?, "done\n");
        let late = linger::with().timeout(Duration::from_millis(200)).call();
        let failure = late.get().expect_err("it takes too long");
        assert!(failure.reason().contains("longer than 200ms"), "{failure}");
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    })?;
    Ok(())
}

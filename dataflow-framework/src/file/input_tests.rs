//! Tests of files that tasks and programs read: versions, and files that every node has.

use std::{
    error::Error,
    fs, io,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, SystemTime},
};

use nix::unistd::{AccessFlags, eaccess};

use super::{File, Run, tests::file};
use crate::{
    Data, Main, Program, TaskDef, Workflow,
    encoding::{decode, encode},
    failure::Trouble,
    task, tasks,
    value::Value,
};

/// The user without privileges.
const NOBODY: u32 = 65534;

/// If this process may write to read-only files, runs a test in a process that may not, and returns `true`.
fn ran_without_privileges(test: &str) -> io::Result<bool> {
    let place = tempfile::tempdir()?;
    let [probe, program] = ["probe", "test"].map(|name| place.path().join(name));
    fs::write(&probe, "")?;
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o400))?;
    if eaccess(&probe, AccessFlags::W_OK).is_err() {
        return Ok(false);
    }
    // Other users may not reach the folder of the program. In another process: a process that another thread starts would
    // inherit the open file, which cannot be executed in that time.
    assert!(Command::new("cp").arg(std::env::current_exe()?).arg(&program).status()?.success());
    for path in [place.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
    }
    let mut again = Command::new(&program);
    again.args(["--exact", "--nocapture", &format!("file::input_tests::{test}")]).current_dir(place.path());
    for variable in ["TMPDIR", "DATAFLOW_WORK_DIR"] {
        again.env(variable, place.path());
    }
    let output = again.uid(NOBODY).gid(NOBODY).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    Ok(true)
}

/// Returns a file that is a version.
fn version(content: &str) -> (Value, Arc<File>) {
    let value = Value::new(file(content));
    let file = value.clone().read().expect("it is one");
    (value, file)
}

fn shell(script: &str) -> Run<'_> {
    Run::new("sh").word("-c").word(script).word("script")
}

#[test]
fn program_reads_links_to_versions_and_cannot_write_to_them() -> io::Result<()> {
    if ran_without_privileges("program_reads_links_to_versions_and_cannot_write_to_them")? {
        return Ok(());
    }
    let (value, data) = version("one");
    let inodes =
        shell("ls -i \"$1\" in/a | cut -d' ' -f1").arg(&data).input("in/a", &data).stdout_to("inodes")?;
    let inode = data.path().metadata()?.ino();
    assert_eq!(inodes.read_to_string()?, format!("{inode}\n{inode}\n"));
    for script in ["echo 9 >> data", "echo 9 > data"] {
        let error = shell(script).arg(&data).file("data").expect_err("it is read-only").to_string();
        assert!(error.contains("ermission denied"), "{error}");
    }
    // Its name and its place in the directory are those of the program.
    let mut moved = shell("mv data moved").arg(&data).file("moved")?;
    moved.append("!")?;
    let replaced = shell("sed s/one/two/ data > new; mv -f new data").arg(&data).file("data")?;
    let changed = shell("printf 9 >> data").arg_to_change(&data).file("data")?;
    let texts = [&moved, &replaced, &changed].map(File::read_to_string);
    assert_eq!(texts.into_iter().collect::<io::Result<Vec<_>>>()?, ["one!", "two", "one9"]);
    assert_eq!(data.read_to_string()?, "one");
    value.check().expect("it is unchanged");
    Ok(())
}

#[test]
fn program_that_makes_its_input_writable_fails_and_change_is_detected() -> io::Result<()> {
    if ran_without_privileges("program_that_makes_its_input_writable_fails_and_change_is_detected")? {
        return Ok(());
    }
    let (value, data) = version("one");
    let run = shell("chmod u+w data; echo 9 >> data; echo done > out").arg(&data);
    let error = run.file("out").expect_err("it has changed its input").to_string();
    assert!(
        error.contains("has changed its input `data`") && error.contains("Run::arg_to_change"),
        "{error}"
    );
    let failed = value.check().expect_err("it is damaged");
    assert_eq!(failed.trouble, Trouble::Content);
    assert!(failed.reason.contains("data: it has changed since it was written"), "{}", failed.reason);
    Ok(())
}

/// Runs a program that writes to its input, and returns its output or its error.
#[task]
fn scribble(data: &File) -> String {
    let run = shell("echo 9 >> data && cat data").arg(data);
    run.stdout_to("out").and_then(|out| out.read_to_string()).unwrap_or_else(|error| error.to_string())
}

#[task]
fn content(data: &File) -> io::Result<String> {
    data.read_to_string()
}

#[task]
fn append(data: &mut File) -> io::Result<()> {
    let mode = data.path().metadata()?.permissions().mode() & 0o777;
    fs::write(data.path(), format!("{} {mode:o}", data.read_to_string()?))
}

/// Changes a read-only input.
#[task]
fn corrupt(data: &File) -> io::Result<bool> {
    fs::set_permissions(data.path(), fs::Permissions::from_mode(0o600))?;
    fs::write(data.path(), "corrupt").map(|()| true)
}

#[task]
fn make() -> io::Result<File> {
    File::new("data", "one")
}

fn table() -> Vec<&'static TaskDef> {
    tasks![scribble, content, append, corrupt, make].to_vec()
}

/// Reads a version after a task has changed it, and a file of every node on all nodes.
struct Reads;

impl Program for Reads {
    type Arguments = PathBuf;
    type Output = (String, Vec<String>);

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run(path: &PathBuf) -> Result<(String, Vec<String>), Box<dyn Error + Send + Sync>> {
        let data = make();
        corrupt(&data).get()?;
        let restored = content(&data).get()?.clone();
        let installed = Data::new(File::everywhere(path)?);
        let contents: Vec<_> = (0..9).map(|_| content::with().spread().call(&installed)).collect();
        let contents = contents.iter().map(|content| Ok(content.get()?.clone()));
        Ok((restored, contents.collect::<Result<_, crate::Failure>>()?))
    }
}

#[test]
fn changed_version_is_computed_again_and_every_node_reads_its_own_file() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let path = installed(place.path(), "genome", 1)?;
    let report = Main::<Reads>::job(path).nodes(3).run()?;
    assert_eq!(
        Main::<Reads>::returned(&report).expect("it succeeds"),
        ("one".to_owned(), vec!["genome".to_owned(); 9])
    );
    Ok(())
}

fn run(program: impl Fn() -> Result<(), Box<dyn Error + Send + Sync>>) -> Result<(), Box<dyn Error>> {
    Workflow::new(table())?.sequential().run(&program)?;
    Workflow::new(table())?.workers(3).run(&program)?;
    Ok(())
}

#[test]
fn program_that_writes_to_its_input_changes_no_other_reader() -> Result<(), Box<dyn Error>> {
    run(|| {
        let data = Data::new(file("one"));
        let scribbled: Vec<_> = (0..4).map(|_| scribble(&data)).collect();
        for text in scribbled {
            let text = text.get()?.clone();
            assert!(text == "one9\n" || text.contains("ermission denied"), "{text}");
            assert_eq!(*content(&data).get()?, "one");
        }
        Ok(())
    })
}

#[test]
fn version_is_read_only_until_it_is_updated() -> Result<(), Box<dyn Error>> {
    run(|| {
        let mut data = Data::new(file("one"));
        let before = data.clone();
        assert_eq!(data.get()?.path().metadata()?.permissions().mode() & 0o777, 0o400);
        append(&mut data);
        append(&mut data);
        assert_eq!(*content(&data).get()?, "one 600 600");
        data.get_mut()?.write("two")?;
        assert_eq!((&**content(&data).get()?, &**content(&before).get()?), ("two", "one"));
        Ok(())
    })
}

#[test]
fn version_with_another_link_is_copied_for_its_update() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let kept = place.path().join("kept");
    run(|| {
        let mut data = Data::new(file("one"));
        fs::hard_link(data.get()?.path(), &kept)?;
        append(&mut data);
        assert_eq!(*content(&data).get()?, "one 600");
        assert_eq!(fs::read_to_string(&kept)?, "one");
        fs::remove_file(&kept)?;
        Ok(())
    })
}

#[test]
fn version_changed_by_its_reader_fails_later_readers() -> Result<(), Box<dyn Error>> {
    run(|| {
        let data = Data::new(file("one"));
        corrupt(&data).get()?;
        let failure = content(&data).get().expect_err("it is corrupt");
        assert!(failure.reason().contains("data: it has changed since it was written"), "{failure}");
        Ok(())
    })
}

/// Creates a file that was last changed some time ago.
fn installed(place: &Path, content: &str, hours: u64) -> io::Result<PathBuf> {
    let path = place.join("genome.fa");
    fs::write(&path, content)?;
    let time = SystemTime::now() - Duration::from_secs(3600 * hours);
    fs::File::options().append(true).open(&path)?.set_modified(time)?;
    Ok(path)
}

#[test]
fn file_of_every_node_is_read_at_its_path_without_copies() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let path = installed(place.path(), &"x".repeat(1 << 20), 1)?;
    let original = File::everywhere(&path)?;
    assert_eq!((original.path(), original.name(), original.len()?), (&*path, "genome.fa", 1 << 20));
    let encoded = encode(&original).expect("it can be");
    assert!(encoded.len() < 200, "{} bytes", encoded.len());
    assert_eq!(original.part(0, usize::MAX).expect("it is there"), (encoded.len() as u64, encoded.clone()));
    let other: File = decode(&encoded).expect("it is there");
    assert_eq!(other.path(), path);
    let link = shell("readlink genome.fa; wc -c < genome.fa").arg(&other).stdout_to("out")?;
    assert_eq!(link.read_to_string()?, format!("{}\n{}\n", path.display(), 1 << 20));
    drop((original, other));
    assert!(path.exists());
    Ok(())
}

#[test]
fn file_of_every_node_is_copied_for_its_update() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let path = installed(place.path(), "one", 1)?;
    let mut written = File::everywhere(&path)?;
    written.append("!")?;
    assert_ne!(written.path(), path);
    assert_eq!(written.read_to_string()?, "one!");
    run(|| {
        let mut data = Data::new(File::everywhere(&path)?);
        append(&mut data);
        assert_eq!(*content(&data).get()?, "one 600");
        assert_eq!(fs::read_to_string(&path)?, "one");
        Ok(())
    })
}

#[test]
fn node_without_file_of_every_node_is_unfit_and_names_remedy() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let path = installed(place.path(), "one", 1)?;
    let encoded = encode(&File::everywhere(&path)?).expect("it can be");
    let (value, received) = (Value::new(File::everywhere(&path)?), Value::from_encoded(encoded));
    let check = |expected: &str| {
        for failed in [value.check().err(), received.clone().read::<File>().err()] {
            let failed = failed.expect("it is not the same file");
            assert_eq!(failed.trouble, Trouble::Node, "{}", failed.reason);
            let shown = path.display().to_string();
            assert!(failed.reason.contains(&shown) && failed.reason.contains(expected), "{}", failed.reason);
        }
    };
    // The same size, but another time; then the same time, but another size.
    installed(place.path(), "two", 2)?;
    check("restore it, or start the program again");
    installed(place.path(), "three", 1)?;
    check("restore it, or start the program again");
    fs::remove_file(&path)?;
    check("install it on this one, or mount its file system");
    Ok(())
}

#[test]
fn program_that_writes_to_file_of_every_node_fails() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let path = installed(place.path(), "one", 1)?;
    let data = File::everywhere(&path)?;
    let changed = shell("echo 9 >> genome.fa; cp genome.fa out").arg_to_change(&data).file("out")?;
    assert_eq!((&*changed.read_to_string()?, &*fs::read_to_string(&path)?), ("one9\n", "one"));
    let error =
        shell("echo 9 >> genome.fa").arg(&data).stdout_to("out").expect_err("it has changed its input");
    assert!(error.to_string().contains("has changed its input `genome.fa`"), "{error}");
    Ok(())
}

#[test]
fn second_input_at_a_path_is_refused_and_the_first_one_is_unchanged() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let path = installed(place.path(), "one", 1)?;
    let installed = File::everywhere(&path)?;
    let (_value, data) = version("two");
    for [first, second] in [[&installed, &installed], [&installed, &*data], [&*data, &*data]] {
        let run = shell("true").input("in/a", first).input("in/a", second);
        let error = run.stdout_to("out").expect_err("they are at one path").to_string();
        assert_eq!(error, "two inputs of a program are at `in/a`");
    }
    assert_eq!((&*fs::read_to_string(&path)?, &*data.read_to_string()?), ("one", "two"));
    Ok(())
}

#[test]
fn path_that_cannot_be_on_every_node_is_refused() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let folder = place.path().display().to_string();
    let fifo = format!("{folder}/fifo");
    nix::unistd::mkfifo(&*fifo, nix::sys::stat::Mode::S_IRWXU)?;
    for (path, expected) in [
        (&*fifo, "it is not a regular file"),
        ("relative", "it is not absolute"),
        ("", "it is not absolute"),
        ("/dev/null", "it is not a regular file"),
        (&*folder, "it is not a regular file"),
        ("/tmp/..", "it names a directory"),
        ("/", "it is empty"),
        (&*format!("{folder}/missing"), "install it on this one"),
    ] {
        let error = File::everywhere(path).expect_err(path).to_string();
        assert!(error.contains(expected), "{path}: {error}");
    }
    Ok(())
}

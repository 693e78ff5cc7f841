//! Files of the programs, and the files left afterwards.

use std::{
    error::Error,
    fs,
    path::Path,
    process::{Command, Output},
};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Returns the command `increment`, which keeps its files in this directory.
fn increment(place: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_increment"));
    command.env("DATAFLOW_WORK_DIR", place.join("work")).args(["solve", "--quiet"]);
    command
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Returns the names in the folder of files.
fn left(place: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(place.join("work"))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

#[test]
fn program_leaves_only_published_files() -> Result {
    for more in [&["--sequential"][..], &["--nodes", "1"], &["--nodes", "3"]] {
        let place = tempfile::tempdir()?;
        let result = place.path().join("counter.txt");
        let output = increment(place.path()).args(more).arg("--output").arg(&result).output()?;
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(fs::read_to_string(&result)?, "11");
        assert_eq!(left(place.path())?, [""; 0], "with {more:?}");
    }
    Ok(())
}

#[test]
fn unpublishable_file_fails_program_with_reason() -> Result {
    let place = tempfile::tempdir()?;
    let output = increment(place.path()).args(["--output", "/dev/null/counter"]).output()?;
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/dev/null/counter cannot be published"), "{}", said(&output));
    Ok(())
}

#[test]
fn publish_outside_of_the_folder_of_the_option_is_refused_by_its_name() -> Result {
    let place = tempfile::tempdir()?;
    let (inside, outside) = (place.path().join("in"), place.path().join("out"));
    fs::create_dir(&inside)?;
    let publish =
        |to: &Path| increment(place.path()).arg("--publish-to").arg(&inside).arg("--output").arg(to).output();
    let refused = publish(&outside)?;
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("--publish-to") && !outside.exists(), "{}", said(&refused));
    let allowed = publish(&inside.join("counter"))?;
    assert!(allowed.status.success(), "{}", said(&allowed));
    let unknown = increment(place.path()).arg("--publish-to").arg(&outside).output()?;
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("--publish-to"), "{}", said(&unknown));
    Ok(())
}

#[test]
fn unwritable_file_store_is_reported_with_path() -> Result {
    let place = tempfile::tempdir()?;
    let output = increment(place.path()).env("DATAFLOW_WORK_DIR", "/dev/null/work").output()?;
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains("/dev/null/work: no files can be kept there (set DATAFLOW_WORK_DIR"), "{said}");
    Ok(())
}

/// As on a disk that is full.
#[test]
fn full_disk_fails_program_with_path() -> Result {
    let place = tempfile::tempdir()?;
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""]);
    limited.arg(env!("CARGO_BIN_EXE_increment")).args(["solve", "--sequential"]);
    let output = limited.env("DATAFLOW_WORK_DIR", place.path().join("work")).output()?;
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains("counter: it cannot be written: File too large"), "{said}");
    assert_eq!(left(place.path())?, [""; 0]);
    Ok(())
}

//! Tests of files that are published.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use super::tests::file;
use crate::{Data, PublishError, tests::sequential};

#[test]
fn published_file_replaces_previous_file() -> io::Result<()> {
    sequential(|| {
        let place = tempfile::tempdir()?;
        let to = place.path().join("result");
        let data = Data::new(file("one"));
        data.publish(&to).expect("it can be");
        fs::create_dir(place.path().join("directory"))?;
        let long = place.path().join("ü".repeat(127));
        Data::new(file("two")).publish(&to).expect("it can be");
        data.publish(&long).expect("it can be");
        assert_eq!(fs::read_to_string(&to)?, "two");
        // The mode depends on the umask of this process, as for any other file.
        fs::write(place.path().join("other"), "")?;
        let mode =
            |name: &str| fs::metadata(place.path().join(name)).map(|metadata| metadata.permissions().mode());
        assert_eq!(mode("result")?, mode("other")?);
        for (path, expected) in [
            (place.path().join("directory"), "there is a directory of this name"),
            (place.path().join("missing/result"), "No such file"),
            (place.path().join("result/below"), "Not a directory"),
            (place.path().join(".."), "does not end with a name"),
            (place.path().join("n".repeat(256)), "File name too long"),
        ] {
            let error = data.publish(&path).expect_err("it cannot be");
            assert!(matches!(error, PublishError::Write { .. }));
            let error = error.to_string();
            assert!(error.starts_with(&path.display().to_string()) && error.contains(expected), "{error}");
        }
        let mut names: Vec<_> = fs::read_dir(place.path())?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        names.sort();
        assert_eq!(
            names,
            [
                "directory",
                "other",
                "result",
                long.file_name().and_then(|name| name.to_str()).expect("it has one")
            ]
        );
        Ok(())
    })
}

#[test]
fn publish_writes_through_links_and_devices_and_keeps_modes() -> io::Result<()> {
    sequential(|| {
        let place = tempfile::tempdir()?;
        let at = |name: &str| place.path().join(name);
        let data = Data::new(file("new"));
        fs::write(at("target"), "previous")?;
        fs::set_permissions(at("target"), fs::Permissions::from_mode(0o600))?;
        symlink("target", at("link"))?;
        data.publish(at("link")).expect("the target is written");
        assert!(fs::symlink_metadata(at("link"))?.is_symlink());
        assert_eq!(fs::read_to_string(at("target"))?, "new");
        assert_eq!(fs::metadata(at("target"))?.permissions().mode() & 0o777, 0o600);
        data.publish("/dev/null").expect("the device is written");
        assert!(!fs::symlink_metadata("/dev/null")?.is_file());
        Ok(())
    })
}

#[test]
fn publish_sets_executable_bits_of_previous_file_from_content() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let to = place.path().join("tool");
    let content = file("new");
    for (before, is_executable, after) in [(0o640, true, 0o750), (0o600, true, 0o700), (0o755, false, 0o644)]
    {
        fs::write(&to, "previous")?;
        fs::set_permissions(&to, fs::Permissions::from_mode(before))?;
        content.set_executable(is_executable)?;
        content.publish(&to)?;
        assert_eq!(fs::metadata(&to)?.permissions().mode() & 0o777, after, "from {before:o}");
    }
    Ok(())
}

#[test]
fn publish_outside_of_folder_is_refused_and_names_option() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let root = fs::canonicalize(place.path())?;
    fs::create_dir(root.join("in"))?;
    let folder = root.join("in");
    let content = file("new");
    content.put_at(&folder.join("report"), None, Some(&folder))?;
    let refused = content.put_at(&root.join("report"), None, Some(&folder)).expect_err("it is outside");
    let why = "the node that writes it was started with --publish-to";
    assert!(refused.to_string().ends_with(why), "{refused}");
    assert!(folder.join("report").exists() && !root.join("report").exists());
    Ok(())
}

#[test]
fn publish_again_removes_partial_file_of_killed_attempt() -> io::Result<()> {
    sequential(|| {
        let place = tempfile::tempdir()?;
        let to = place.path().join("report");
        let data = Data::new(file("whole"));
        let operation = data.operation().expect("a program has one");
        let mut left = None;
        // An attempt that was killed leaves the file that its closure sees.
        taskwork::lowlevel::OutputFile::new(&to).attempt_of(&operation).write(|to| {
            let entry = fs::read_dir(place.path())?.next().expect("there is a temporary file")?;
            left = Some(entry.path());
            to.write_all(b"part")
        })?;
        let left = left.expect("it was seen");
        fs::rename(&to, &left)?;
        data.publish(&to).expect("it is written");
        assert!(!left.exists() && to.exists());
        Ok(())
    })
}

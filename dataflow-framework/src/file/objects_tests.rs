//! Tests of files in stores of objects.

use std::{error::Error, fs, io, os::unix::fs::PermissionsExt as _};

use taskwork_store::testing::Server;

use super::File;
use crate::{Data, FailureKind, Main, Program, TaskDef, Workflow, WorkflowError, task, tasks};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

#[task]
fn length(file: &File) -> io::Result<u64> {
    file.len()
}

#[task]
fn upper(file: &File) -> io::Result<File> {
    File::new("upper.txt", file.read_to_string()?.to_uppercase())
}

/// Fetches and publishes in a task.
#[task]
fn upper_of(from: String, to: String) -> Data<u64> {
    upper(&File::at(from)).publish_to(to)
}

fn table() -> Vec<&'static TaskDef> {
    tasks![length, upper, upper_of].to_vec()
}

fn workflow() -> Workflow {
    Workflow::new(table()).expect("no two tasks have one name")
}

/// Runs a program without threads and on three workers.
fn run(program: impl Fn() -> Outcome) -> Result<(), WorkflowError> {
    workflow().sequential().run(&program)?;
    workflow().workers(3).run(&program)
}

#[test]
fn object_of_a_store_is_read_as_file_and_written() -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;
    let at = |path: &str| format!("{}{path}", server.place());
    server.state().objects.insert("/in/text.txt".to_owned(), b"one".to_vec());
    run(|| {
        let text = File::at(at("/in/text.txt"));
        assert_eq!((text.get()?.name(), *length(&text).get()?), ("text.txt", 3));
        assert_eq!(*upper(&text).publish_to(at("/out/text.txt")).get()?, 3);
        assert_eq!(server.state().objects.remove("/out/text.txt"), Some(b"ONE".to_vec()));
        assert_eq!(*upper_of(at("/in/text.txt"), at("/out/other")).get()?, 3);
        assert_eq!(server.state().objects.remove("/out/other"), Some(b"ONE".to_vec()));
        Ok(())
    })?;
    // One look-up and one transfer serve all readers.
    let requests = server.state().requests.iter().filter(|request| request.contains("/in/")).count();
    assert_eq!(requests, 2 * 2 * 2);
    Ok(())
}

/// Publishes an object in another form.
struct Uppers;

impl Program for Uppers {
    type Arguments = Vec<(String, String)>;
    type Output = u64;

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run(uris: &Vec<(String, String)>) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let bytes: Vec<_> = uris.iter().map(|(from, to)| upper(&File::at(from)).publish_to(to)).collect();
        Ok(bytes.iter().map(|bytes| Ok(*bytes.get()?)).sum::<Result<u64, crate::Failure>>()?)
    }
}

#[test]
fn objects_are_fetched_and_published_once_on_several_nodes() -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;
    let uris: Vec<_> = (0..9).map(|number| format!("{}/{number}", server.place())).collect();
    server.state().objects.extend((0..9).map(|number| (format!("/{number}"), b"text".to_vec())));
    let pairs = uris.iter().map(|uri| (uri.clone(), format!("{uri}.out"))).collect();
    let report = Main::<Uppers>::job(pairs).nodes(3).run()?;
    assert_eq!(Main::<Uppers>::returned(&report).expect("it succeeds"), 9 * 4);
    let state = server.state();
    assert!((0..9).all(|number| state.objects[&format!("/{number}.out")] == b"TEXT"));
    for method in ["HEAD", "GET", "PUT"] {
        let requests = state.requests.iter().filter(|request| request.starts_with(method)).count();
        assert_eq!(requests, 9, "{method}: {:?}", state.requests);
    }
    Ok(())
}

#[test]
fn object_that_changes_after_its_look_up_fails_its_readers() -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;
    let uri = format!("{}/text.txt", server.place());
    server.state().objects.insert("/text.txt".to_owned(), b"one".to_vec());
    let tag = taskwork_store::Object::new(&uri)?.tag()?;
    run(|| {
        server.state().objects.insert("/text.txt".to_owned(), b"two".to_vec());
        let text = super::objects::fetch_object(uri.clone(), &Data::new(tag.clone()));
        let failure = length(&text).get().expect_err("it has changed");
        let expected = "/text.txt has changed since the program began: start it again";
        assert!(failure.reason().contains(expected), "{failure}");
        assert_eq!(failure.kind(), FailureKind::Error);
        Ok(())
    })?;
    Ok(())
}

#[test]
fn file_that_differs_is_a_fault_of_the_node() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let path = place.path().join("text.txt");
    fs::write(&path, "one")?;
    let uri = format!("file://{}", path.display());
    let tag = taskwork_store::Object::new(&uri)?.tag()?;
    fs::write(&path, "other")?;
    let fetch = || super::objects::fetch_object::now(uri.clone(), &tag);
    let (fetched, is_in_trouble) = super::trouble::during(fetch);
    let error = fetched.expect_err("it has changed").to_string();
    assert!(is_in_trouble && error.contains("or differs on this node: start it again"), "{error}");
    Ok(())
}

#[test]
fn invalid_or_missing_object_fails_its_readers_with_one_line() -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;
    run(|| {
        for (uri, expected) in [
            (format!("{}/missing", server.place()), "/missing: "),
            ("ftp://host/file".to_owned(), "its scheme is none of"),
            ("https://user:secret@host/file".to_owned(), "it contains credentials"),
            ("file:///no/such/file".to_owned(), "file:///no/such/file: "),
        ] {
            let failure = File::at(&uri).get().expect_err(&uri);
            let text = failure.to_string();
            assert!(text.contains(expected) && !text.contains("secret"), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
            let written = upper(&Data::new(File::new("a", "a")?)).publish_to(&uri);
            assert_eq!(written.get().is_ok(), uri.ends_with("/missing"), "{uri}");
            server.state().objects.clear();
        }
        Ok(())
    })?;
    Ok(())
}

#[test]
fn unavailable_store_is_asked_again_and_object_is_complete() -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;
    let uri = format!("{}/text.txt", server.place());
    server.state().objects.insert("/text.txt".to_owned(), vec![b'x'; 100_000]);
    run(|| {
        server.state().unavailable = 2;
        server.state().cuts = vec![60_000];
        let copied = upper(&File::at(&uri)).publish_to(format!("{uri}.copy"));
        assert_eq!(*copied.get()?, 100_000);
        assert!(server.state().objects["/text.txt.copy"] == vec![b'X'; 100_000]);
        Ok(())
    })?;
    Ok(())
}

#[test]
fn path_of_this_machine_is_read_and_published_like_other_paths() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let uri = |name: &str| format!("file://{}", place.path().join(name).display());
    fs::write(place.path().join("in"), "one")?;
    fs::set_permissions(place.path().join("in"), fs::Permissions::from_mode(0o755))?;
    run(|| {
        let text = File::at(uri("in"));
        assert!(super::is_executable(&text.get()?.path().metadata()?));
        assert_ne!(text.get()?.path(), place.path().join("in"));
        assert_eq!(*upper(&text).publish_to(uri("out")).get()?, 3);
        assert_eq!(fs::read_to_string(place.path().join("out"))?, "ONE");
        // As `publish`, it creates no folders.
        let failure = text.publish_to(uri("new/out")).get().expect_err("there is no folder");
        assert!(failure.reason().contains("No such file"), "{failure}");
        assert!(!place.path().join("new").exists());
        Ok(())
    })?;
    Ok(())
}

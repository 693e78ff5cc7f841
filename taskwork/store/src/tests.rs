//! Tests of objects on a web server, in a bucket and in the file system.
#![allow(clippy::unwrap_used, reason = "an error fails the test")]

use std::{
    fs,
    io::{self, ErrorKind, Write as _},
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use object_store::path::Path;
use url::Url;

use crate::{Object, Objects, testing::Server};

/// Returns a content that needs several reads.
fn content(seed: u8) -> Vec<u8> {
    (0..300_000_u32).map(|place| u8::try_from(place % 251).unwrap() ^ seed).collect()
}

/// The content of the last object of a round trip. A file of the same size may have the same time.
fn last() -> Vec<u8> {
    [content(2), vec![2]].concat()
}

fn served(path: &str, content: Vec<u8>) -> (Server, Object) {
    let server = Server::start().unwrap();
    server.state().objects.insert(path.to_owned(), content);
    let object = Object::new(&format!("{}{path}", server.place())).unwrap();
    (server, object)
}

fn fetched(object: &Object) -> io::Result<Vec<u8>> {
    let (tag, mut content) = (object.tag()?, Vec::new());
    object.fetch(&tag, &mut content)?;
    assert_eq!(tag.bytes(), content.len() as u64);
    Ok(content)
}

fn put(object: &Object, content: &[u8]) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(content)?;
    object.put(&mut file.reopen()?)
}

/// Writes, reads and replaces an object.
fn round_trip(uri: &str, name: &str) {
    let object = Object::new(uri).unwrap();
    assert_eq!(object.name(), name);
    assert_eq!(object.tag().unwrap_err().kind(), ErrorKind::NotFound);
    for text in [content(0), Vec::new(), content(1)] {
        put(&object, &text).unwrap();
        assert!(fetched(&object).unwrap() == text);
    }
    let tag = object.tag().unwrap();
    put(&object, &last()).unwrap();
    let error = object.fetch(&tag, &mut Vec::new()).unwrap_err();
    // A file may differ on other machines.
    let (kind, here) = match object.local_path() {
        Some(_) => (ErrorKind::Other, ", or differs on this node"),
        None => (ErrorKind::InvalidData, ""),
    };
    assert_eq!(error.kind(), kind);
    assert_eq!(error.to_string(), format!("{uri} has changed since the program began{here}: start it again"));
}

#[test]
fn objects_of_web_servers_are_written_and_read() {
    let server = Server::start().unwrap();
    round_trip(&format!("{}/a%20folder/genome.fa", server.place()), "genome.fa");
    assert!(server.state().objects.contains_key("/a%20folder/genome.fa"));
}

#[test]
fn objects_of_file_system_are_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    round_trip(&format!("file://{}/new/genome.fa", folder.path().display()), "genome.fa");
    assert!(fs::read(folder.path().join("new/genome.fa")).unwrap() == last());
}

#[test]
fn file_that_changes_during_transfer_is_refused() {
    /// Changes the source of its content.
    struct Changes<'a>(&'a dyn Fn());
    impl io::Write for Changes<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            (self.0)();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("genome.fa");
    let object = Object::new(&format!("file://{}", path.display())).unwrap();
    let open = || fs::File::options().append(true).open(&path).unwrap();
    let shrink = || open().set_len(10).unwrap();
    let grow = || open().write_all(b"more").unwrap();
    for change in [&shrink as &dyn Fn(), &grow] {
        fs::write(&path, content(0)).unwrap();
        let error = object.fetch(&object.tag().unwrap(), &mut Changes(change)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other, "{error}");
        assert!(error.to_string().contains("has changed since the program began"), "{error}");
    }
}

#[test]
fn fifo_is_refused_without_waiting_for_its_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (done, tag) = mpsc::channel();
    let object = Object::new(&format!("file://{}", path.display())).unwrap();
    thread::spawn(move || done.send(object.tag()));
    let error = tag.recv_timeout(Duration::from_secs(60)).expect("it is not opened").unwrap_err();
    assert!(error.to_string().ends_with("/fifo: it is not a regular file"), "{error}");
}

#[test]
fn write_is_waited_for_longer_than_a_read() {
    let server = Server::start().unwrap();
    let (url, short) = (Url::parse(&server.place()).unwrap(), Duration::from_millis(100));
    let objects = Objects::connected(&url, &Path::default(), short, short).unwrap();
    server.state().delay = 20 * short;
    objects.put("a", content(0)).unwrap();
    let mut upload = objects.upload("b");
    upload.write_all(&content(1)).unwrap();
    upload.shutdown().unwrap();
    assert_eq!(server.state().requests, ["PUT /a", "PUT /b"]);
    objects.get("a").unwrap_err();
    server.state().delay = Duration::ZERO;
    assert!(objects.get("a").unwrap() == content(0));
}

/// The environment of a process is read when a bucket is opened, so the test runs itself in a new process.
#[test]
fn objects_of_buckets_are_written_and_read_with_settings_of_environment() {
    const AGAIN: &str = "TASKWORK_STORE_TEST_AGAIN";
    if std::env::var_os(AGAIN).is_some() {
        return round_trip("s3://bucket/folder/genome.fa", "genome.fa");
    }
    let server = Server::start().unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    let test = "tests::objects_of_buckets_are_written_and_read_with_settings_of_environment";
    again.args(["--exact", "--nocapture", test]).env(AGAIN, "1").env("AWS_ENDPOINT", server.place());
    for (variable, value) in [("ALLOW_HTTP", "true"), ("SKIP_SIGNATURE", "true"), ("REGION", "here")] {
        again.env(format!("AWS_{variable}"), value);
    }
    let output = again.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(server.state().objects["/bucket/folder/genome.fa"] == last());
}

#[test]
#[ignore = "needs a bucket: `tests/s3.py` starts a server and sets the variable"]
fn large_objects_of_buckets_are_written_in_parts() {
    let bucket = std::env::var("ROUTINES_TEST_S3").unwrap();
    round_trip(&format!("{bucket}/folder/genome.fa"), "genome.fa");
    let object = Object::new(&format!("{bucket}/large")).unwrap();
    let large = content(0).repeat(70);
    assert!(large.len() > 2 * crate::PART_BYTES);
    put(&object, &large).unwrap();
    assert!(fetched(&object).unwrap() == large);
}

#[test]
fn transfer_that_is_cut_off_continues_where_it_stopped() {
    for has_no_tags in [false, true] {
        let (server, object) = served("/a", content(0));
        server.state().has_no_tags = has_no_tags;
        server.state().cuts = vec![200_000, 70_000];
        assert!(fetched(&object).unwrap() == content(0));
        let requests = server.state().requests.clone();
        let ranges: Vec<_> = requests.iter().filter(|request| request.contains("bytes=")).collect();
        assert_eq!(ranges.len(), 2, "{requests:?}");
        assert!(ranges[0].starts_with("GET /a bytes=70000-"), "{requests:?}");
    }
}

#[test]
fn object_that_changes_during_transfer_is_refused() {
    for has_no_tags in [false, true] {
        let (server, object) = served("/a", content(0));
        server.state().has_no_tags = has_no_tags;
        server.state().cuts = vec![70_000];
        // Without versions, only another size or time shows that.
        server.state().changes = vec![("/a".to_owned(), [content(1), vec![1]].concat())];
        let error = fetched(&object).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}

#[test]
fn request_is_repeated_while_server_is_unavailable() {
    let (server, object) = served("/a", content(0));
    server.state().unavailable = 3;
    assert!(fetched(&object).unwrap() == content(0));
    server.state().unavailable = 2;
    put(&object, &content(1)).unwrap();
    assert!(server.state().objects["/a"] == content(1));
}

#[test]
fn redirection_to_file_is_not_followed() {
    let (server, object) = served("/b", Vec::new());
    server.state().redirects.insert("/b".to_owned(), "file:///etc/passwd".to_owned());
    let error = object.tag().unwrap_err().to_string();
    assert!(error.contains("/b") && !error.contains("root:"), "{error}");
}

#[test]
fn full_disk_is_reported_as_error_of_target() {
    /// A target without room.
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (_server, object) = served("/a", content(0));
    let error = object.fetch(&object.tag().unwrap(), &mut Full).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().contains("/a: it cannot be stored"), "{error}");
}

#[test]
fn invalid_uri_is_refused_without_its_credentials() {
    let long = format!("ftp://host/{}", "a".repeat(10_000));
    for (uri, expected) in [
        ("", "it is not SCHEME://PLACE/NAME"),
        ("genome.fa", "it is not SCHEME://PLACE/NAME"),
        ("ftp://host/genome.fa", "its scheme is none of"),
        (&*long, "its scheme is none of"),
        ("s3://key:secret@bucket/genome.fa", "it contains credentials"),
        ("https://secret@host/genome.fa", "it contains credentials"),
        ("az://container:secret@account/genome.fa", "it contains credentials"),
        ("https://host/genome.fa?signature=secret", "it has a query or a fragment"),
        ("https://host/genome.fa#secret", "it has a query or a fragment"),
        ("s3://bucket/../genome.fa", "contains `.` or `..`"),
        ("s3://bucket/a/%2e%2e/%2E%2e/genome.fa", "contains `.` or `..`"),
        ("s3://bucket/a//genome.fa", "empty or invalid parts"),
        ("s3://bucket/folder/", "it does not end with a name"),
        ("s3://bucket", "it does not end with a name"),
        ("s3:///genome.fa", "its place is missing"),
        ("file://host/genome.fa", "its place is missing"),
    ] {
        let error = Object::new(uri).map(|object| object.name().to_owned()).expect_err(uri);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let text = error.to_string();
        assert!(text.contains(expected) && !text.contains("secret") && text.len() < 600, "{uri}: {text}");
        assert_eq!(text.lines().count(), 1);
    }
}
